"""Groups of failures that have one fingerprint: the list with its counts, and one group with its history.

An index has all that is counted, so the list of groups reads no message but those that it shows.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.operations.failures.listing import (
    FailureSummary,
    check_fingerprint,
    known_role_id,
    list_failures_of,
    unknown_group,
)
from xbus.broker.journal.operations.failures.past_moves import GROUP_SUBJECT, PastMove, read_past_moves, storable
from xbus.states import TrackingState

_failure = model.failure.c


@dataclass(frozen=True, slots=True)
class GroupFilters:
    """Selects groups; None selects all.

    Args:
        role: the login of the role at which the failures happened.
        code: the code of the failures.
        state: at least one failure is in it.
        owner: at least one failure belongs to the person with this name.
    """

    role: str | None = None
    code: str | None = None
    state: TrackingState | None = None
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failures that have one fingerprint.

    Args:
        count: how many there are.
        tracking: how many are in each state; states of none are left out.
        owners: the names of those who look after some, by name.
        first_at: when the oldest happened.
        newest: the newest, as an example.
    """

    fingerprint: str
    count: int
    tracking: Mapping[TrackingState, int]
    owners: tuple[str, ...]
    first_at: datetime
    newest: FailureSummary


@dataclass(frozen=True, slots=True)
class GroupDetail:
    """A group with some of its failures, newest first, and with what people did with all of it, oldest first."""

    group: FailureGroup
    failures: Sequence[FailureSummary]
    history: tuple[PastMove, ...]


def list_groups(
    connection: sa.Connection, filters: GroupFilters, *, before: int | None = None, limit: int = 20
) -> list[FailureGroup]:
    """List groups, the one with the newest failure first.

    Args:
        before: only those whose newest failure has an id below this one: the newest of the page's last group.

    Raises:
        Refused: no role has or had this login (``unknown_login``).
    """
    statement = _grouped().order_by(sa.desc("newest_id")).limit(limit)
    if filters.role is not None:
        statement = statement.where(_failure.role_id == known_role_id(connection, filters.role))
    if filters.code is not None:
        statement = statement.where(_failure.code == storable(filters.code))
    if filters.state is not None:
        statement = statement.having(_count_of(filters.state) > 0)
    if filters.owner is not None:
        statement = statement.having(_counted(_failure.owner == filters.owner) > 0)
    if before is not None:
        statement = statement.having(sa.func.max(_failure.id) < before)
    return list(_groups(connection, statement))


def show_group(
    connection: sa.Connection, fingerprint: str, *, before: int | None = None, limit: int = 20
) -> GroupDetail:
    """Read a group with its failures.

    Args:
        before: only failures below this id.
        limit: of the failures.

    Raises:
        Refused: no failure has this fingerprint (``failure_group_unknown``).
    """
    check_fingerprint(fingerprint)
    for group in _groups(connection, _grouped().where(_failure.fingerprint == fingerprint)):
        of_it = _failure.fingerprint == fingerprint
        if before is not None:
            of_it &= _failure.id < before
        history = tuple(read_past_moves(connection, GROUP_SUBJECT, fingerprint))
        return GroupDetail(group, list_failures_of(connection, of_it, limit), history)
    raise unknown_group(fingerprint)


def _grouped() -> sa.Select[*tuple[object, ...]]:
    return sa.select(
        _failure.fingerprint,
        sa.func.max(_failure.id).label("newest_id"),
        sa.func.min(_failure.id).label("oldest_id"),
        *(_count_of(state).label(state.value) for state in TrackingState),
    ).group_by(_failure.fingerprint)


def _count_of(state: TrackingState) -> sa.ColumnElement[int]:
    return _counted(_failure.tracking == state.value)


def _counted(condition: sa.ColumnElement[bool]) -> sa.ColumnElement[int]:
    return sa.func.sum(sa.case((condition, 1), else_=0))


def _groups(connection: sa.Connection, grouped: sa.Select[*tuple[object, ...]]) -> Iterator[FailureGroup]:
    rows = connection.execute(grouped).all()
    newest = {each.id: each for each in _failures(connection, [row.newest_id for row in rows])}
    oldest = {each.id: each.at for each in _failures(connection, [row.oldest_id for row in rows])}
    owners = _owners(connection, [row.fingerprint for row in rows])
    for row in rows:
        counts = {state: int(row._mapping[state.value]) for state in TrackingState}
        yield FailureGroup(
            row.fingerprint,
            sum(counts.values()),
            {state: count for state, count in counts.items() if count},
            tuple(owners[row.fingerprint]),
            oldest[row.oldest_id],
            newest[row.newest_id],
        )


def _failures(connection: sa.Connection, ids: Sequence[int]) -> list[FailureSummary]:
    return list_failures_of(connection, _failure.id.in_(ids), len(ids))


def _owners(connection: sa.Connection, fingerprints: Sequence[str]) -> Mapping[str, list[str]]:
    statement = (
        sa.select(_failure.fingerprint, _failure.owner)
        .where(_failure.fingerprint.in_(fingerprints), _failure.owner.is_not(None))
        .distinct()
        .order_by(_failure.owner)
    )
    owners: dict[str, list[str]] = defaultdict(list)
    for fingerprint, owner in connection.execute(statement):
        owners[fingerprint].append(owner)
    return owners
