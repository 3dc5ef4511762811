"""The maps of the wire that have named fields, as ``docs/wire.md`` describes them.

Whoever sends one is checked by mypy; whoever gets one checks it by ``xbus.rpc.shapes``. Fields that are not required
are missing in what older brokers, emitters and recipients send.
"""

from typing import NotRequired, TypedDict

from xbus.rpc.codec import Value


class EnvelopeOptionsMap(TypedDict, total=False):
    """The options of ``xbus.start_envelope`` and ``xbus.put_envelope``."""

    ordering_key: str | None
    key: str | None


class FrontLogin(TypedDict):
    """The answer of the front to ``xbus.login``."""

    token: str
    session_seconds: int | float
    max_item_bytes: int
    max_batch_bytes: int
    max_envelope_items: NotRequired[int]
    max_envelope_bytes: NotRequired[int]
    immediate_reply_timeout: NotRequired[int | float]


class EventEnd(TypedDict):
    """The answer of the front to ``xbus.end_event``."""

    items: NotRequired[int]
    reply: Value
    replied: NotRequired[bool]


class EnvelopeReceipt(TypedDict):
    """The answer of the front to ``xbus.end_envelope`` and ``xbus.put_envelope``; ``queued`` is of an outbox alone."""

    envelope_id: str
    position: int
    events: int
    items: int
    hash: bytes
    queued: NotRequired[bool]


class BackLogin(TypedDict):
    """The answer of the back to ``xbus.login``."""

    token: str
    session_seconds: NotRequired[int | float]
    max_batch_bytes: int
    heartbeat: NotRequired[int | float]


class Registered(TypedDict):
    """The answer to ``xbus.heartbeat``: whether the recipient is registered."""

    registered: bool


class OutputWanted(TypedDict):
    """The answer to ``xbus.renew_output``."""

    wanted: bool


class OutputAccepted(TypedDict):
    """The answer to ``xbus.output_ready`` and ``xbus.output_failed``."""

    accepted: bool


class EnvelopeWork(TypedDict):
    """An open envelope in a heartbeat; ``done`` and ``of`` are those of its newest event."""

    envelope_id: str
    progress: int
    event_id: NotRequired[str]
    done: NotRequired[int]
    of: NotRequired[int | None]


class OutputWork(TypedDict):
    """An output that is being made, in a heartbeat."""

    attempt_id: str
    event_id: str
    progress: int
    done: int
    of: int


class OutputHandover(TypedDict):
    """The last argument of ``xbus.take_output``."""

    attempt_id: str
    node: str
    event_id: str
    input: str | None
    items: int | None
    lease: float


class MadeOutput(TypedDict):
    """The output that ``xbus.output_ready`` reports."""

    items: int
    bytes: int
    hash: bytes


FailedOutput = TypedDict(
    "FailedOutput", {"class": str, "code": str, "message": str, "errors": list[tuple[list[int], str]]}
)
"""The failure that ``xbus.output_failed`` reports."""


class HealthProblem(TypedDict):
    """A problem of a process of the broker; ``since`` is None only where ``xbus health`` itself tells of it."""

    code: str
    about: NotRequired[str]
    cause: str
    since: str | None
    next_step: str


class HealthReport(TypedDict):
    """The answer to ``xbus.health``."""

    healthy: bool
    name: str
    since: str
    problems: list[HealthProblem]


class BulkAbility(TypedDict):
    """The announcement of a bulk worker."""

    min_items: int
    attempts: list[str]


class RecipientAbilities(TypedDict):
    """The announcement of a recipient in its metadata, under ``xbus``."""

    batches: int
    envelopes: int
    heartbeats: bool
    kind: NotRequired[str]
    bundles: NotRequired[bool]
    notes: NotRequired[bool]
    bulk: NotRequired[BulkAbility]


class RecipientMetadata(TypedDict):
    """The answer of a recipient to ``get_metadata``."""

    name: str
    version: float
    api_version: float
    host: str
    start_date: str
    local_time: str
    xbus: RecipientAbilities
