"""The maps of the wire that have named fields, as ``docs/wire.md`` describes them.

mypy checks the sender of one; its receiver checks it by ``xbus.rpc.shapes``. Fields that are not required
are missing in what older brokers, emitters and recipients send.
"""

from typing import NotRequired, TypeAlias, TypedDict

from xbus.rpc.codec import Value


class EnvelopeOptionsMap(TypedDict, total=False):
    """The options of ``xbus.start_envelope`` and ``xbus.put_envelope``."""

    ordering_key: str | None
    key: str | None
    headers: bytes | None


class EventOptionsMap(TypedDict, total=False):
    """The options of ``xbus.start_event`` and of an event in ``xbus.put_envelope``, which has no ``number``."""

    headers: bytes | None
    partition_key: str | None
    number: int


class FrontLimitsMap(TypedDict):
    """The answer of the front to ``xbus.get_limits``."""

    session_seconds: int | float
    max_item_bytes: int
    max_batch_bytes: int
    max_envelope_items: NotRequired[int]
    max_envelope_bytes: NotRequired[int]
    immediate_reply_timeout: NotRequired[int | float]
    headers: NotRequired[bool]
    groups: NotRequired[bool]
    numbers: NotRequired[bool]


class FrontLogin(FrontLimitsMap):
    """The answer of the front to ``xbus.login``."""

    token: str


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


GroupedReceipt: TypeAlias = tuple[bytes, int, bytes]
"""The answer to one envelope of ``xbus.put_envelopes``: its id of 16 bytes, its position, and its hash."""


class GroupedError(TypedDict):
    """The answer to one envelope of ``xbus.put_envelopes`` that was not taken, as an error of a call of its own."""

    refused: bool
    code: str
    cause: str
    next_step: str
    details: dict[str, float]


class ServingLimits(TypedDict):
    """The answer of the back to ``xbus.serve``."""

    max_batch_bytes: int
    heartbeat: NotRequired[int | float]


class BackLogin(ServingLimits):
    """The answer of the back to ``xbus.login``; ``proof`` says that this broker can show who it is."""

    token: str
    proof: NotRequired[bool]
    session_seconds: NotRequired[int | float]


class Registered(TypedDict):
    """The answer to ``xbus.heartbeat``: whether the recipient is registered, and waits for a place of its role.

    ``paused`` tells of the pause of its role in a sentence.
    """

    registered: bool
    standby: NotRequired[bool]
    paused: NotRequired[str]


class ReadEventMap(TypedDict):
    """Items of an event in an answer of ``xbus.read_log`` and ``xbus.read_batch``."""

    envelope_id: str
    event_id: str
    type: str
    position: int
    event: int
    emitter: str
    first_index: int
    items: int
    data: bytes
    sealed_at: float
    key: str | None
    ordering_key: str | None
    partition_key: str | None
    headers: bytes | None
    event_headers: bytes | None


class BotRun(TypedDict):
    """A run of a bot, in the answer to ``xbus.claim_run``.

    Moments are texts in ISO 8601, in UTC; ``slot`` is None for a run that a person fired. ``repeated``
    says whether an attempt began before, counted or not. ``events`` are those of its batch, if the bot ``reads``.
    """

    run: int
    bot: str
    attempt: int
    repeated: bool
    slot: str | None
    due_at: str
    key: str
    call: str
    command: list[str]
    settings: dict[str, object]
    max_seconds: int | float
    emits: list[str]
    login: str
    ticket: str
    reads: list[str]
    events: list[ReadEventMap]


class ClaimedBotRun(TypedDict):
    """The answer to ``xbus.claim_run``: how long the lease of a run is, in seconds, and the run, if one was due."""

    lease: int | float
    run: BotRun | None


class RunsHeld(TypedDict):
    """The answer to ``xbus.renew_runs``: the runs that the program still has."""

    runs: list[int]


class RunEnded(TypedDict):
    """The answer to ``xbus.end_run``: whether the run was still that program's."""

    accepted: bool


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


class HeadersMap(TypedDict):
    """The headers of an event and, with its first event, of an envelope, as a recipient gets them."""

    headers: NotRequired[bytes]
    partition_key: NotRequired[str]
    envelope_headers: NotRequired[bytes]


class OutputHandover(HeadersMap):
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


class HealthPause(TypedDict):
    """Something that an operator has paused; ``until`` is None where somebody has to resume it."""

    kind: str
    name: str
    reason: str
    paused_by: str
    since: str
    until: str | None


class HealthReport(TypedDict):
    """The answer to ``xbus.health``."""

    healthy: bool
    name: str
    since: str
    problems: list[HealthProblem]
    pauses: NotRequired[list[HealthPause]]


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
    prepares: NotRequired[int]
    prepares_next: NotRequired[bool]
    notes: NotRequired[bool]
    headers: NotRequired[bool]
    outs: NotRequired[bool]
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


LogAnswer = TypedDict("LogAnswer", {"from": list[int], "to": list[int], "events": list[ReadEventMap]})
"""The answer to ``xbus.read_log``."""

ClaimedBatchMap = TypedDict(
    "ClaimedBatchMap",
    {
        "range": int,
        "counter": int,
        "from": list[int],
        "to": list[int],
        "id": str,
        "repeated": bool,
        "events": list[ReadEventMap],
    },
)
"""The batch in an answer of ``xbus.read_batch``."""


class BatchAnswer(TypedDict):
    """The answer to ``xbus.read_batch``; ``lease`` in seconds, ``paused`` a sentence about the pause of the program."""

    lease: int | float
    ranges: int
    batch: ClaimedBatchMap | None
    paused: NotRequired[str]


class CheckpointAnswer(TypedDict):
    """The answer to ``xbus.checkpoint``; ``lease`` in seconds."""

    lease: int | float


class RangesAnswer(TypedDict):
    """The answer to ``xbus.renew_ranges``; each range with its counter."""

    ranges: list[list[int]]
    give_up: list[int]


class RoleInsight(TypedDict):
    """A role as the back knows it now; the last four fields are of a consumer. Roles are named by their ids.

    ``state`` is an :class:`xbus.states.ConsumerState`; ``lane_at`` is None while nobody reads the log for the role.
    """

    role: int
    state: str
    programs: int
    is_free: bool
    trouble_since: str | None
    probe_seconds: float | None
    lane_at: int | None
    held_up_by: list[int]
    in_flight: list[int]
    is_settled: bool


class CallInHand(TypedDict):
    """A recipient that has an envelope in hand, and the last call about it."""

    role: int
    verb: str
    since: str


class GraceLeft(TypedDict):
    """A worker service that envelopes wait for in their turn for some seconds more; by its key."""

    service: str
    seconds: float


class Insight(TypedDict):
    """The answer to ``xbus.why``; ``busy`` has the keys of worker services that take no other event now."""

    roles: list[RoleInsight]
    in_hand: list[CallInHand]
    graces: list[GraceLeft]
    busy: list[str]


MOST_ROLES_TOLD = 1000
"""So many roles are told of in one answer of the back. More would keep it from its work for longer."""


class DeliveredToRole(TypedDict):
    """The deliveries to a role, named by its id, since the back began: the envelopes that it has committed."""

    role: int
    envelopes: int
    items: int


class DeliveredSoFar(TypedDict):
    """The answer to ``xbus.delivered``."""

    roles: list[DeliveredToRole]


class RefusedCall(TypedDict):
    """The answer to ``xbus.refused``: the last call about an envelope that the front refused."""

    verb: str
    code: str
    at: str


class SlowedEmitter(TypedDict):
    """The answer to ``xbus.slowed``: the calls of an emitter that were told to slow down without a pause between them.

    ``cause`` and ``verb`` are of the last one, at ``at``; ``since`` is the moment of the first.
    """

    cause: str
    verb: str
    since: str
    at: str
    calls: int


class SubscriptionMap(TypedDict):
    """A subscription, as a gateway needs it; ``reader`` is the key of its reader."""

    name: str
    reader: str
    url: str
    format: str
    secret: str
    verify: bool
    ranges: int
    settings: str


class SubscriptionHealthMap(TypedDict):
    """The health of a subscription, in the answer to ``xbus.measure_subscriptions``. Moments are seconds since 1970.

    ``state`` is healthy, failed, paused or stopped. ``events`` is its lag, ``batch_events`` the most of a batch.
    ``dropped`` counts envelopes that it was made to do without and nobody was told of yet.
    """

    name: str
    state: str
    events: int
    waits_since: int | float | None
    batch_events: int
    failures: int
    failing_since: int | float | None
    retry_at: int | float | None
    code: str
    error: str
    parked: int
    dropped: int


class MeasuredSubscriptions(TypedDict):
    """The answer to ``xbus.measure_subscriptions``."""

    subscriptions: list[SubscriptionHealthMap]


class FailedCallAnswer(TypedDict):
    """The answer to ``xbus.note_callback``.

    ``retry_seconds`` is None where the batch is not called again by itself; ``parked`` tells whether it is parked now.
    """

    retry_seconds: int | float | None
    parked: bool


class SubscriptionsAnswer(TypedDict):
    """The answer to ``xbus.list_subscriptions``; ``changes`` is what the next call gives as ``known``."""

    subscriptions: list[SubscriptionMap]
    changes: int


class TopicMap(TypedDict):
    """An event type in the answer of the front to ``xbus.list_topics``."""

    name: str
    publisher: str | None
    events: int


class SubscriptionWishMap(TypedDict):
    """The wish of ``xbus.subscribe``; ``timeout`` is in milliseconds."""

    topics: list[str]
    url: str
    secret: str
    timeout: int
    max: int


class SubscriberMap(TypedDict):
    """A subscription in the answer of the front to ``xbus.list_subscribers``.

    ``oldest`` is in seconds since 1970. ``secret`` is that of the caller's own subscription, and None for all others.
    """

    name: str
    url: str
    secret: str | None
    max: int
    timeout: int
    topics: list[str]
    sent: int
    queued: int
    oldest: int | None


class ClientTokenMap(TypedDict):
    """An API token in the answer of the front to ``xbus.list_tokens``, without its secret."""

    client: str
    hash: str
