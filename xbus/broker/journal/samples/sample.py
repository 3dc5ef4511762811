"""Samples as values: the figures of a span of time, and what several spans came to together; pure."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, TypeAlias, TypeVar

K = TypeVar("K")
V = TypeVar("V")

MOST_PARTS = 1000
"""So many pairs of emitter and type, and so many roles, are kept of a sample: those with most."""


class Count(NamedTuple):
    """Numbers of events, and of the items in them."""

    events: int
    items: int

    def __add__(self, other: object) -> "Count":
        assert isinstance(other, Count)
        return Count(self.events + other.events, self.items + other.items)


class Delivered(NamedTuple):
    """Numbers of envelopes that a role has committed, and of the items in them."""

    envelopes: int
    items: int

    def __add__(self, other: object) -> "Delivered":
        assert isinstance(other, Delivered)
        return Delivered(self.envelopes + other.envelopes, self.items + other.items)


NOTHING = Count(0, 0)

Traffic: TypeAlias = Mapping[tuple[int, int], Count]
"""The events that came, by the ids of emitter and event type."""


class RoleLag(NamedTuple):
    """A role's arrears.

    Args:
        lag: envelopes that it lacks and that arrive by themselves.
        lag_seconds: the age of the oldest of them.
        parked: envelopes and items that are parked for it.
    """

    lag: int
    lag_seconds: float
    parked: int

    def most(self, other: "RoleLag") -> "RoleLag":
        """Give the greater of each figure."""
        return RoleLag(
            max(self.lag, other.lag), max(self.lag_seconds, other.lag_seconds), max(self.parked, other.parked)
        )


@dataclass(frozen=True, slots=True)
class Sample:
    """The figures of a span of time.

    Args:
        step: the kind: see ``model.sample``.
        observed: seconds of it in which a monitor ran; 0 for one that only says where counting began.
        position: the end of the log at its end.
        envelopes: those received in it.
        traffic: the events received in it.
        roles: arrears by role id; roles without any are left out.
        lag: the most envelopes that all roles together lacked.
        delivered: the envelopes that roles have committed in it, by role id; without roles that committed none.
    """

    step: int
    began_at: datetime
    ended_at: datetime
    observed: float
    position: int
    envelopes: int = 0
    events: int = 0
    items: int = 0
    lag: int = 0
    lag_seconds: float = 0.0
    parked: int = 0
    traffic: Traffic = field(default_factory=dict)
    roles: Mapping[int, RoleLag] = field(default_factory=dict)
    delivered: Mapping[int, Delivered] = field(default_factory=dict)


def join(samples: Sequence[Sample], step: int, began_at: datetime) -> Sample:
    """Make one sample of several that follow each other: what came is added up, of what lagged the most is kept."""
    traffic: defaultdict[tuple[int, int], Count] = defaultdict(lambda: NOTHING)
    roles: dict[int, RoleLag] = {}
    delivered: defaultdict[int, Delivered] = defaultdict(lambda: Delivered(0, 0))
    for sample in samples:
        for pair, count in sample.traffic.items():
            traffic[pair] += count
        for role_id, lag in sample.roles.items():
            roles[role_id] = lag.most(roles.get(role_id, lag))
        for role_id, number in sample.delivered.items():
            delivered[role_id] += number
    return Sample(
        step=step,
        began_at=began_at,
        ended_at=samples[-1].ended_at,
        observed=sum(sample.observed for sample in samples),
        position=samples[-1].position,
        envelopes=sum(sample.envelopes for sample in samples),
        events=sum(sample.events for sample in samples),
        items=sum(sample.items for sample in samples),
        lag=max(sample.lag for sample in samples),
        lag_seconds=max(sample.lag_seconds for sample in samples),
        parked=max(sample.parked for sample in samples),
        traffic=most_of(traffic, lambda count: count.events),
        roles=most_of(roles, lambda lag: lag.lag + lag.parked),
        delivered=most_of(delivered, lambda number: number.envelopes),
    )


def most_of(found: Mapping[K, V], size: Callable[[V], int], most: int = MOST_PARTS) -> Mapping[K, V]:
    """Keep those that have most."""
    if len(found) <= most:
        return found
    chosen = sorted(found, key=lambda each: size(found[each]), reverse=True)[:most]
    return {key: found[key] for key in chosen}
