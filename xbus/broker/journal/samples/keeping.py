"""Keeps samples, thins them with time, and reads them back.

A sample begins at the end of the one before it, and this moment is its key. So of two monitors that go on from the same
sample one is too late, and nothing is counted twice. After a time without a monitor a sample without figures says where
counting begins anew.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import groupby, pairwise
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from xbus import model
from xbus.broker.journal.database.rows import NamedRow, NamedRows
from xbus.broker.journal.samples.sample import Count, Delivered, RoleLag, Sample, join

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
    found = []
    for row in _up_to_now(connection, _WITH_PARTS, step, since):
        parts: Mapping[str, Any] = row.parts
        lag, number = _of_role(parts["roles"], role_id), _of_role(_delivered(parts), role_id)
        lags = {} if lag is None else {role_id: RoleLag(*lag)}
        delivered = {} if number is None else {role_id: Delivered(*number)}
        found.append(replace(_total(row), roles=lags, delivered=delivered))
    return found


def _of_role(rows: Sequence[Sequence[int]], role_id: int) -> Sequence[int] | None:
    """Give the figures of a role among the rows of a part; None where it has none."""
    return next((row[1:] for row in rows if row[0] == role_id), None)


def read_totals(connection: sa.Connection, step: int, since: datetime) -> list[Sample]:
    """Read them up to now without their parts, which is faster."""
    return [_total(row) for row in _up_to_now(connection, _TOTALS, step, since)]


def _up_to_now(connection: sa.Connection, samples: NamedRows, step: int, since: datetime) -> Iterator[NamedRow]:
    """Read the samples of a kind, then the shorter ones that none of them has yet."""
    for kind in sorted((kind for kind in KEPT if kind <= step), reverse=True):
        found = connection.execute(samples, {"step": kind, "since": since}).all()
        yield from found
        if found:
            since = found[-1].began_at + timedelta(seconds=kind)


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
    return connection.execute(_INSERT[connection.dialect.name], row).rowcount == 1


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
    return replace(_total(row), traffic=traffic, roles=roles, delivered=delivered)


def _total(row: NamedRow) -> Sample:
    return Sample(**{name: getattr(row, name) for name in _COLUMNS})


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
_INSERT: Mapping[str, sa.Insert] = {
    "sqlite": sqlite.insert(model.sample).on_conflict_do_nothing(),
    "postgresql": postgresql.insert(model.sample).on_conflict_do_nothing(),
}
