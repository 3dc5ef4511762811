"""The maps of the verbs by which operators look into the memory of the broker: ``docs/wire.md`` describes them."""

from typing import TypedDict


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
