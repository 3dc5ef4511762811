"""Failures for people: the list, one with its history, and groups of those that have one fingerprint.

The list of groups looks at the newest failures first. If these do not fill the page, it hops through an index from
group to group. It counts in each group up to a bound, and reads no message but those that it shows. So a page costs
about as much with a million failures as with a thousand.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.paging import portions
from xbus.broker.journal.database.rows import NamedRow, NamedRows, columns_for, find_id, grouped, value_of
from xbus.broker.journal.writes.fingerprint import is_fingerprint
from xbus.errors import Refused
from xbus.states import TrackingState

SUBJECT = "failure"
"""The name of a failure in the history."""

GROUP_SUBJECT = "failure_group"
"""The name of a group of failures in the history."""

ASSIGNED = "assigned"
"""The move after which a person looks after a failure, whom the reason names."""

RELEASED = "released"
COMMENTED = "commented"


def storable(text: str) -> str:
    """Replace what PostgreSQL takes in no text, though a stranger may have written it."""
    return text.replace("\x00", "\ufffd")


_INSERT = sa.insert(model.history)


@dataclass(frozen=True, slots=True)
class PastMove:
    """A person's move.

    Args:
        who: the person; None where nobody noted it.
        action: what was done, in a word: ``tracked``, ``assigned``, ``released`` or ``commented``.
        tracking: the state since then; None where the move was another.
        owner: who looks after it since then; None where the move was another.
        comment: a remark; may be empty.
    """

    at: datetime
    who: str | None
    action: str
    tracking: TrackingState | None
    owner: str | None
    comment: str

    @property
    def told(self) -> str:
        """The move in a word or two."""
        if self.tracking is not None:
            return self.tracking.value
        return self.action if self.owner is None else f"{self.action} {self.owner}"


def note_past_moves(
    connection: sa.Connection, at: datetime, who: str, subject: str, ids: Sequence[object], move: str, reason: str
) -> None:
    """Note one move on each of some failures, or of some groups."""
    row = {"at": at, "who": who, "subject": subject, "move": move, "reason": storable(reason)}
    connection.execute(_INSERT, [{**row, "subject_id": str(each)} for each in ids])


def read_past_moves(connection: sa.Connection, subject: str, subject_id: str) -> Iterator[PastMove]:
    """Read the moves on one failure, or on one group, the oldest first."""
    history = model.history.c
    statement = (
        sa.select(history.at, history.who, history.move, history.reason)
        .where(history.subject == subject, history.subject_id == subject_id)
        .order_by(history.id)
    )
    return (_move(*row) for row in connection.execute(statement))


def _move(at: datetime, who: str | None, move: str, reason: str) -> PastMove:
    if move == ASSIGNED:
        return PastMove(at, who, move, None, reason, "")
    if move in (RELEASED, COMMENTED):
        return PastMove(at, who, move, None, None, reason)
    return PastMove(at, who, "tracked", TrackingState(move), None, reason)


MOST_ID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class FailureSummary:
    """A call to a recipient that went wrong, or one of the errors that it answered.

    Args:
        event_id: in which event; None at the end of the envelope.
        node: where in the event's graph, several where a role sits in several; None at the end of the envelope.
        role: the login of the recipient's role; None where no recipient was at fault.
        verb: what was asked of it.
        indices: the items that it named; None where it named none.
        tracking: how far the person who looks after it has come.
        fingerprint: the group of those of the same trouble.
        owner: the name of the person who looks after it; None for nobody.
    """

    id: int
    at: datetime
    envelope_id: UUID
    event_id: UUID | None
    node: str | None
    role: str | None
    verb: str
    code: str
    message: str
    indices: list[int] | None
    tracking: TrackingState
    fingerprint: str
    owner: str | None


@dataclass(frozen=True, slots=True)
class FailureDetail:
    """A failure with its history, oldest first."""

    summary: FailureSummary
    history: tuple[PastMove, ...]


def list_failures(
    connection: sa.Connection,
    *,
    state: TrackingState | None = None,
    role: str | None = None,
    code: str | None = None,
    envelope_id: UUID | None = None,
    owner: str | None = None,
    fingerprint: str | None = None,
    before: int | None = None,
    limit: int = 20,
) -> list[FailureSummary]:
    """List failures, the newest first.

    Args:
        state: only those in this tracking state.
        role: only those of the role with this login.
        code: only those with this code.
        envelope_id: only those of this envelope.
        owner: only those of the person with this name.
        fingerprint: only those of this group.
        before: only those below this id: the last one of the page before.

    Raises:
        Refused: no role has or had this login (``unknown_login``), or ``fingerprint`` is none
            (``failure_group_unknown``).
    """
    failure = model.failure.c
    wanted: list[sa.ColumnElement[bool]] = []
    if state is not None:
        wanted.append(failure.tracking == state.value)
    if role is not None:
        wanted.append(failure.role_id == known_role_id(connection, role))
    if code is not None:
        wanted.append(failure.code == storable(code))
    if envelope_id is not None:
        wanted.append(failure.envelope_id == envelope_id)
    if owner is not None:
        wanted.append(failure.owner == owner)
    if fingerprint is not None:
        check_fingerprint(fingerprint)
        wanted.append(failure.fingerprint == fingerprint)
    if before is not None:
        wanted.append(failure.id < before)
    return list_failures_of(connection, sa.and_(sa.true(), *wanted), limit)


def list_failures_of(connection: sa.Connection, which: sa.ColumnElement[bool], limit: int) -> list[FailureSummary]:
    """List the failures of which a condition holds, the newest first."""
    statement = _summaries().where(which).order_by(model.failure.c.id.desc()).limit(limit)
    return [_summary(row) for row in connection.execute(statement)]


def show_failure(connection: sa.Connection, failure_id: int) -> FailureDetail | None:
    """Read all details of one failure; None if no failure has this id."""
    if not 0 < failure_id <= MOST_ID:
        return None
    row = connection.execute(_summaries().where(model.failure.c.id == failure_id)).one_or_none()
    if row is None:
        return None
    return FailureDetail(_summary(row), tuple(read_past_moves(connection, SUBJECT, str(failure_id))))


def unknown_failure(failure_id: int) -> Refused:
    """Make the error for an id that no failure has."""
    return Refused(f"there is no failure {failure_id}", "see xbus failure list", code="failure_unknown")


def check_fingerprint(text: str) -> None:
    """Let a text pass that can be a fingerprint.

    Raises:
        Refused: no failure has it (``failure_group_unknown``).
    """
    if not is_fingerprint(text):
        raise unknown_group(text)


def unknown_group(fingerprint: str) -> Refused:
    """Make the error for a fingerprint that no failure has."""
    cause = f'there is no group "{fingerprint[:40]}" of failures'
    return Refused(cause, "see xbus failure list --groups", code="failure_group_unknown")


def _summaries() -> NamedRows:
    return sa.select(*columns_for(FailureSummary, model.failure), model.role.c.login.label("role")).outerjoin(
        model.role, model.role.c.id == model.failure.c.role_id
    )


def _summary(row: NamedRow) -> FailureSummary:
    return value_of(FailureSummary, row, tracking=TrackingState(row.tracking))


def known_role_id(connection: sa.Connection, login: str) -> int:
    """Find the id of a role, also of a removed one.

    Raises:
        Refused: no role has or had this login (``unknown_login``).
    """
    # Strangers may ask for anything, also for what no database takes.
    found = None if "\0" in login else find_id(connection, model.role.c.login, login)
    if found is None:
        raise Refused(f'there is no role "{login}"', "xbus export shows the roles", code="unknown_login")
    return found


def role_name(connection: sa.Connection, role_id: int) -> str:
    """Read the login of a role, also of a removed one."""
    login: str = connection.execute(sa.select(model.role.c.login).where(model.role.c.id == role_id)).scalar_one()
    return login


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
    found = sa.select(walk.c.fingerprint, walk.c.owner).where(walk.c.owner.is_not(None))
    return grouped(connection.execute(found))


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
