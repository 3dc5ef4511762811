"""Groups of failures that have one fingerprint: the list with its counts, and one group with its history.

The list looks at the newest failures first. If these do not fill the page, it hops through an index from group to
group. It counts in each group up to a bound, and reads no message but those that it shows. So a page costs about as
much with a million failures as with a thousand.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.paging import portions
from xbus.broker.journal.operations.failures.listing import (
    FailureSummary,
    check_fingerprint,
    known_role_id,
    list_failures_of,
    unknown_group,
)
from xbus.broker.journal.operations.failures.past_moves import GROUP_SUBJECT, PastMove, read_past_moves, storable
from xbus.states import TrackingState

MOST_COUNTED = 1000
"""So many failures of a group are counted in each state. More would tell nobody more, and would cost more."""

PAGE = 500
"""Groups that are compared with filters in one statement."""

_failure = model.failure.c


@dataclass(frozen=True, slots=True)
class GroupBounds:
    """The most work for a page of the list.

    Args:
        newest: failures that are looked at first. More cost much where a few groups have them all.
        groups: groups that are hopped through, if these did not fill the page. More cost a long list much.
        failures: failures that are looked at where the groups are more. Fewer make more pages short.
    """

    newest: int = 200
    groups: int = 5_000
    failures: int = 50_000


USUAL_BOUNDS = GroupBounds()


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
        tracking: how many are in each state, up to :data:`MOST_COUNTED`; states of none are left out.
        owners: the names of those who look after some, by name.
        first_at: when the oldest happened.
        newest: the newest, as an example.
    """

    fingerprint: str
    tracking: Mapping[TrackingState, int]
    owners: tuple[str, ...]
    first_at: datetime
    newest: FailureSummary

    @property
    def count(self) -> int:
        """The failures that were counted."""
        return sum(self.tracking.values())

    @property
    def at_least(self) -> bool:
        """True if more failures may exist than were counted."""
        return MOST_COUNTED in self.tracking.values()


@dataclass(frozen=True, slots=True)
class GroupPage:
    """A page of the list.

    Args:
        groups: the one with the newest failure first. They may be fewer than the page takes, or none, in a long list.
        before: the id below which the list goes on; None at its end.
    """

    groups: Sequence[FailureGroup]
    before: int | None


@dataclass(frozen=True, slots=True)
class GroupDetail:
    """A group with some of its failures, newest first, and with what people did with all of it, oldest first."""

    group: FailureGroup
    failures: Sequence[FailureSummary]
    history: tuple[PastMove, ...]


def list_groups(
    connection: sa.Connection,
    filters: GroupFilters,
    *,
    before: int | None = None,
    limit: int = 20,
    bounds: GroupBounds = USUAL_BOUNDS,
) -> GroupPage:
    """List groups, the one with the newest failure first.

    Args:
        before: only those whose newest failure has an id below this one: that of the page before.
        bounds: of the work.

    Raises:
        Refused: no role has or had this login (``unknown_login``).
    """
    wanted = _conditions(connection, filters)
    found = _look_at(connection, wanted, before, limit, bounds.newest)
    if found.is_short:
        hopped = _hop(connection, wanted, before, limit, bounds.groups)
        found = hopped or _look_at(connection, wanted, before, limit, bounds.failures)
    return GroupPage(_groups(connection, found.newest_ids), found.before)


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
    newest_id = connection.execute(sa.select(_end_of(sa.literal(fingerprint)))).scalar_one()
    if newest_id is None:
        raise unknown_group(fingerprint)
    (group,) = _groups(connection, [newest_id])
    of_it = _failure.fingerprint == fingerprint
    if before is not None:
        of_it &= _failure.id < before
    history = tuple(read_past_moves(connection, GROUP_SUBJECT, fingerprint))
    return GroupDetail(group, list_failures_of(connection, of_it, limit), history)


# -- finding groups ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _GroupIds:
    """The newest failures of the groups of a page, and where the list goes on.

    Args:
        is_short: whether the page has room for groups of failures that were not looked at.
    """

    newest_ids: Sequence[int]
    before: int | None
    is_short: bool = False

    @classmethod
    def of(cls, ids: Sequence[int], limit: int, rest: int | None = None) -> "_GroupIds":
        """Make a page of the first ids.

        Args:
            ids: as many as the page takes, and one more where the list goes on.
            rest: the id below which nothing was looked at; None where all was.
        """
        if len(ids) > limit:
            return cls(ids[:limit], ids[limit - 1])
        return cls(ids, rest, is_short=rest is not None)


def _look_at(
    connection: sa.Connection, wanted: Sequence[sa.ColumnElement[bool]], before: int | None, limit: int, most: int
) -> _GroupIds:
    """Look at so many failures, from the newest down, for those that are the newest of their group."""
    below = sa.true() if before is None else _failure.id < before
    ids = sa.select(_failure.id).where(below).order_by(_failure.id.desc())
    last = connection.execute(ids.offset(most - 1).limit(1)).scalar_one_or_none()
    # PostgreSQL would join all failures for "none is newer".
    is_newest = _failure.id == _end_of(_failure.fingerprint)
    looked_at = ids if last is None else ids.where(_failure.id >= last)
    found = connection.execute(looked_at.where(is_newest, *wanted).limit(limit + 1)).scalars().all()
    return _GroupIds.of(found, limit, last)


def _hop(
    connection: sa.Connection, wanted: Sequence[sa.ColumnElement[bool]], before: int | None, limit: int, most: int
) -> _GroupIds | None:
    """Hop through all groups; None where they are too many."""
    every = _fingerprints(most + 1).subquery()
    ends = connection.execute(sa.select(_end_of(every.c.fingerprint)).select_from(every)).scalars().all()
    if len(ends) > most:
        return None
    found: list[int] = []
    for some in portions(sorted((end for end in ends if before is None or end < before), reverse=True), PAGE):
        if len(found) > limit:
            break
        found += _matching(connection, some, wanted)
    return _GroupIds.of(found, limit)


def _fingerprints(most: int) -> sa.Select[str]:
    """Hop from one fingerprint to the next, so many at the most."""
    walk = sa.select(sa.func.min(_failure.fingerprint).label("fingerprint")).cte("walk", recursive=True)
    following = sa.select(sa.func.min(_failure.fingerprint)).where(_failure.fingerprint > walk.c.fingerprint)
    walk = walk.union_all(sa.select(following.scalar_subquery()).where(walk.c.fingerprint.is_not(None)))
    return sa.select(walk.c.fingerprint).where(walk.c.fingerprint.is_not(None)).limit(most)


def _end_of(fingerprint: sa.ColumnElement[str], *, is_oldest: bool = False) -> sa.ScalarSelect[int]:
    """Build the id of the newest failure of a group, or of the oldest; null where the group has none."""
    failure = model.failure.alias()
    # Both columns of the index are named: PostgreSQL would walk through all failures for the greatest id alone.
    ends = (failure.c.fingerprint, failure.c.id) if is_oldest else (failure.c.fingerprint.desc(), failure.c.id.desc())
    ordered = sa.select(failure.c.id).where(failure.c.fingerprint == fingerprint).order_by(*ends)
    return ordered.limit(1).correlate_except(failure).scalar_subquery()


def _conditions(connection: sa.Connection, filters: GroupFilters) -> list[sa.ColumnElement[bool]]:
    """Build the conditions on the newest failure of a group; role and code are the same in a group."""
    other = model.failure.alias()
    wanted: list[sa.ColumnElement[bool]] = []
    if filters.role is not None:
        wanted.append(_failure.role_id == known_role_id(connection, filters.role))
    if filters.code is not None:
        wanted.append(_failure.code == storable(filters.code))
    if filters.state is not None:
        in_state = other.c.tracking == filters.state.value
        wanted.append(sa.exists().where(other.c.fingerprint == _failure.fingerprint, in_state))
    if filters.owner is not None:
        wanted.append(sa.exists().where(other.c.fingerprint == _failure.fingerprint, other.c.owner == filters.owner))
    return wanted


def _matching(connection: sa.Connection, ids: Sequence[int], wanted: Sequence[sa.ColumnElement[bool]]) -> list[int]:
    if not wanted:
        return list(ids)
    matching = sa.select(_failure.id).where(_failure.id.in_(ids), *wanted).order_by(_failure.id.desc())
    return list(connection.execute(matching).scalars())


# -- counting ----------------------------------------------------------------------------------------------------------


def _groups(connection: sa.Connection, newest_ids: Sequence[int]) -> list[FailureGroup]:
    """Read the groups whose newest failures have these ids, in their order."""
    newest = model.failure.alias("newest")
    counts = [_count_of(newest.c.fingerprint, state).label(state.value) for state in TrackingState]
    oldest_id = _end_of(newest.c.fingerprint, is_oldest=True).label("oldest_id")
    counted = sa.select(newest.c.id, newest.c.fingerprint, oldest_id, *counts).where(newest.c.id.in_(newest_ids))
    rows = {row.id: row for row in connection.execute(counted)}
    ends = {*rows, *(row.oldest_id for row in rows.values())}
    failures = {each.id: each for each in list_failures_of(connection, _failure.id.in_(ends), len(ends))}
    owners = _owners(connection, newest_ids)
    return [
        FailureGroup(
            row.fingerprint,
            {state: count for state in TrackingState if (count := row._mapping[state.value])},
            tuple(owners[row.fingerprint]),
            failures[row.oldest_id].at,
            failures[row.id],
        )
        for row in map(rows.__getitem__, newest_ids)
    ]


def _count_of(fingerprint: sa.ColumnElement[str], state: TrackingState) -> sa.ScalarSelect[int]:
    failure = model.failure.alias()
    of_group = sa.and_(failure.c.fingerprint == fingerprint, failure.c.tracking == state.value)
    bounded = sa.select(failure.c.fingerprint).where(of_group).limit(MOST_COUNTED).correlate_except(failure).subquery()
    return sa.select(sa.func.count()).select_from(bounded).scalar_subquery()


def _owners(connection: sa.Connection, newest_ids: Sequence[int]) -> Mapping[str, list[str]]:
    """Hop from one owner of each group to the next."""
    newest = model.failure.alias("newest")
    first = sa.select(newest.c.fingerprint, _owner_after(newest.c.fingerprint).label("owner"))
    walk = first.where(newest.c.id.in_(newest_ids)).cte("walk", recursive=True)
    following = sa.select(walk.c.fingerprint, _owner_after(walk.c.fingerprint, walk.c.owner))
    walk = walk.union_all(following.where(walk.c.owner.is_not(None)))
    owners: dict[str, list[str]] = defaultdict(list)
    for fingerprint, owner in connection.execute(sa.select(walk).where(walk.c.owner.is_not(None))):
        owners[fingerprint].append(owner)
    return owners


def _owner_after(
    fingerprint: sa.ColumnElement[str], owner: sa.ColumnElement[str] | None = None
) -> sa.ScalarSelect[str | None]:
    """Build the first owner of failures of a group by name, or the first one after another."""
    failure = model.failure.alias()
    following = sa.select(sa.func.min(failure.c.owner)).where(
        failure.c.fingerprint == fingerprint, failure.c.owner.is_not(None)
    )
    if owner is not None:
        following = following.where(failure.c.owner > owner)
    return following.correlate_except(failure).scalar_subquery()
