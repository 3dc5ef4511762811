"""Samples as values: the figures of a span of time, and what several spans came to together; pure."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby, pairwise
from typing import Any, NamedTuple, TypeAlias, TypeVar

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.rows import NamedRow, insert_new

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


# -- keeping -----------------------------------------------------------------------------------------------------------
# Keeps samples, thins them with time, and reads them back.
#
# A sample begins at the end of the one before it, and this moment is its key. So of two monitors that go on from the
# same sample one is too late, and nothing is counted twice. After a time without a monitor a sample without figures
# says where counting begins anew.

STEP = 10
"""Seconds of a sample as it is taken."""

KEPT: Mapping[int, timedelta] = {
    STEP: timedelta(hours=1),
    60: timedelta(days=1),
    900: timedelta(days=8),
    5400: timedelta(days=36),
}
"""The time for which samples of each kind are kept, in seconds of their length. More would make the table larger. Plots
go back a part further than a week, and than five weeks."""

GAP = timedelta(seconds=60)
"""After so long a time without a sample counting begins anew: no monitor ran."""


def read_newest(connection: sa.Connection) -> Sample | None:
    """Read the newest sample as it was taken; None without any."""
    newest = _SAMPLES.where(_SAMPLE.step == STEP).order_by(_SAMPLE.began_at.desc()).limit(1)
    row = connection.execute(newest).one_or_none()
    return None if row is None else _sample(row)


def begin(now: datetime, position: int) -> Sample:
    """Make the sample that says where counting begins: monitors that begin at the same time make the same."""
    return Sample(STEP, floor(now, STEP) - timedelta(seconds=STEP), now, 0.0, position)


def goes_on(newest: Sample | None, now: datetime, position: int) -> bool:
    """Check whether a sample may begin at the end of the newest one."""
    return newest is not None and timedelta(0) < now - newest.ended_at < GAP and newest.position <= position


def keep(connection: sa.Connection, sample: Sample) -> bool:
    """Keep a sample, and thin those before it whenever a minute is full.

    Returns:
        Whether it is kept. Another monitor may have been faster.
    """
    if not _put(connection, sample):
        return False
    if floor(sample.began_at, 60) != floor(sample.ended_at, 60):
        _thin(connection, sample.ended_at)
    return True


def floor(at: datetime, step: int) -> datetime:
    """Give the last moment that is a multiple of so many seconds."""
    return datetime.fromtimestamp(at.timestamp() // step * step, UTC)


def read_samples(connection: sa.Connection, step: int, since: datetime) -> list[Sample]:
    """Read the samples of a kind that began at a moment or later, oldest first; with their parts."""
    return [_sample(row) for row in connection.execute(_SINCE, {"step": step, "since": since})]


def read_of_role(connection: sa.Connection, step: int, since: datetime, role_id: int) -> list[Sample]:
    """Read them up to now, with the parts of one role only: all parts take many times as long to make and to join."""

    def of_role(row: Sequence[Any]) -> Sample:
        *totals, parts = row
        lag, number = _of_role(parts["roles"], role_id), _of_role(_delivered(parts), role_id)
        lags = {} if lag is None else {role_id: RoleLag(*lag)}
        delivered = {} if number is None else {role_id: Delivered(*number)}
        return replace(Sample(*totals), roles=lags, delivered=delivered)

    return [*_up_to_now(lambda kind: map(of_role, connection.execute(_WITH_PARTS, kind)), step, since)]


def _of_role(rows: Sequence[Sequence[int]], role_id: int) -> Sequence[int] | None:
    """Give the figures of a role among the rows of a part; None where it has none."""
    return next((row[1:] for row in rows if row[0] == role_id), None)


def read_totals(connection: sa.Connection, step: int, since: datetime) -> list[Sample]:
    """Read them up to now without their parts, which is faster."""
    return [*_up_to_now(lambda kind: (Sample(*row) for row in connection.execute(_TOTALS, kind)), step, since)]


def _up_to_now(
    read: Callable[[Mapping[str, object]], Iterable[Sample]], step: int, since: datetime
) -> Iterator[Sample]:
    """Iterate over the samples of a kind, then over the shorter ones that none of them has yet.

    Args:
        read: reads the samples of a kind, given its ``step``, ``since`` a moment.
    """
    for kind in sorted((kind for kind in KEPT if kind <= step), reverse=True):
        for sample in read({"step": kind, "since": since}):
            yield sample
            since = sample.began_at + timedelta(seconds=kind)


def _thin(connection: sa.Connection, ended_at: datetime) -> None:
    for finer, coarser in pairwise(KEPT):
        for sample in _joined(connection, finer, coarser, floor(ended_at, coarser)):
            _put(connection, sample)
    for step, kept in KEPT.items():
        connection.execute(_FORGET, {"of_step": step, "before": ended_at - kept})


def _joined(connection: sa.Connection, finer: int, coarser: int, until: datetime) -> Iterator[Sample]:
    """Join the samples that began before a moment, and that no longer sample has yet."""
    newest = connection.execute(_NEWEST, {"step": coarser}).scalar_one()
    since = datetime.min.replace(tzinfo=UTC) if newest is None else newest + timedelta(seconds=coarser)
    found = [sample for sample in read_samples(connection, finer, since) if sample.began_at < until]
    for began_at, samples in groupby(found, lambda sample: floor(sample.began_at, coarser)):
        yield join([*samples], coarser, began_at)


def _put(connection: sa.Connection, sample: Sample) -> bool:
    """Insert a sample unless one that began then is there."""
    row = {name: getattr(sample, name) for name in _COLUMNS} | {"parts": _parts(sample)}
    return connection.execute(insert_new(connection, model.sample), row).rowcount == 1


def _parts(sample: Sample) -> Mapping[str, Sequence[Sequence[float]]]:
    return {
        "traffic": [[*pair, *count] for pair, count in sample.traffic.items()],
        "roles": [[role_id, *lag] for role_id, lag in sample.roles.items()],
        "delivered": [[role_id, *number] for role_id, number in sample.delivered.items()],
    }


def _sample(row: NamedRow) -> Sample:
    parts: Mapping[str, Any] = row.parts
    traffic = {(emitter_id, type_id): Count(*count) for emitter_id, type_id, *count in parts["traffic"]}
    roles = {role_id: RoleLag(*lag) for role_id, *lag in parts["roles"]}
    delivered = {role_id: Delivered(*number) for role_id, *number in _delivered(parts)}
    return Sample(**{name: getattr(row, name) for name in _COLUMNS}, traffic=traffic, roles=roles, delivered=delivered)


def _delivered(parts: Mapping[str, Any]) -> Sequence[Sequence[int]]:
    """Give the deliveries among the parts; samples of an earlier version have none."""
    found: Sequence[Sequence[int]] = parts.get("delivered", ())
    return found


_SAMPLE = model.sample.c
_COLUMNS = [name for name in _SAMPLE.keys() if name != "parts"]  # noqa: SIM118 - a collection of columns is no mapping
_SAMPLES = sa.select(model.sample)
_OF_STEP = sa.and_(_SAMPLE.step == sa.bindparam("step"), _SAMPLE.began_at >= sa.bindparam("since"))
_SINCE = _SAMPLES.where(_OF_STEP).order_by(_SAMPLE.began_at)
_TOTALS = sa.select(*(_SAMPLE[name] for name in _COLUMNS)).where(_OF_STEP).order_by(_SAMPLE.began_at)
_WITH_PARTS = _TOTALS.add_columns(_SAMPLE.parts)
_NEWEST = sa.select(sa.func.max(_SAMPLE.began_at, type_=_SAMPLE.began_at.type)).where(
    _SAMPLE.step == sa.bindparam("step")
)
_FORGET = sa.delete(model.sample).where(
    _SAMPLE.step == sa.bindparam("of_step"), _SAMPLE.began_at < sa.bindparam("before")
)
