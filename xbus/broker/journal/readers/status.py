"""Tells people how far readers are: ranges, lag, and the history of their places."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.rows import value_of
from xbus.broker.journal.log.contents import find_listed, read_contents_end
from xbus.broker.journal.log.reading import is_kept
from xbus.broker.journal.log.slices.values import Place
from xbus.broker.journal.readers.people import OF_BOTS
from xbus.broker.journal.readers.ranges import ReaderRange, read_ranges
from xbus.broker.journal.readers.settings import LogPart, ReaderEntry, read_readers
from xbus.broker.journal.readers.steps import ReaderAct
from xbus.states import PresenceState

# -- subscribers -------------------------------------------------------------------------------------------------------
# Tells people how the calls of subscriptions go.


@dataclass(frozen=True, slots=True)
class SubscriberStatus:
    """A subscription in use, and how its calls went.

    Args:
        name: of the subscription.
        failures: how many calls failed one after another.
        failing_since: when the first of these failed; None while it is well.
        retry_at: until when nobody calls; None while it is well.
        code: of the last failure.
        error: the last failure in words.
        ended_at: when the subscriber said that it wants no more; None while it does.
        parked: how many of its batches wait for a person.
    """

    name: str
    url: str
    format: str
    failures: int
    failing_since: datetime | None
    retry_at: datetime | None
    code: str | None
    error: str | None
    ended_at: datetime | None
    parked: int = 0

    @property
    def state(self) -> str:
        """Its state in a word."""
        if self.ended_at is not None:
            return "stopped"
        return "failed" if self.failures else "healthy"


def read_subscribers(connection: sa.Connection) -> dict[int, SubscriberStatus]:
    """Read the subscriptions in use, by the ids of the readers that they stand on."""
    row, state = model.subscription.c, model.subscription_state.c
    parked = _count_parked(connection)
    columns = (state.failing_since, state.retry_at, state.code, state.error, state.ended_at)
    found = connection.execute(
        sa.select(row.service_id, row.name, row.url, row.format, sa.func.coalesce(state.failures, 0), *columns)
        .outerjoin(model.subscription_state, state.service_id == row.service_id)
        .where(row.removed_at.is_(None))
    )
    return {service_id: SubscriberStatus(*[*values, parked[service_id]]) for service_id, *values in found}


def _count_parked(connection: sa.Connection) -> Counter[int]:
    """Count the batches that are parked, by the ids of their readers."""
    row = model.reader_range.c
    counted = sa.select(row.service_id, sa.func.count()).where(row.parked_at.is_not(None)).group_by(row.service_id)
    return Counter(dict(connection.execute(counted).all()))


MOST_COUNTED_EVENTS = 10_000
"""Lag is counted up to here: a longer one need not be exact, and would take long to count."""

POSITIONS_AT_ONCE = 500
"""Positions of a statement that counts. SQLite takes a thousand parameters or so."""

NO_END = 2**62
"""A position that no log reaches."""

LOOKED_AT = 16
"""Envelopes of one look for the first that waits: the table of contents may name some that were removed."""


@dataclass(frozen=True, slots=True)
class RangeStatus:
    """A range as people see it.

    Args:
        role: the login of its owner; None for none.
        settled_at: when a batch of it was settled last.
        behind: events of the reader's types from its place on, up to ``MOST_COUNTED_EVENTS``; other ranges read some.
    """

    range: ReaderRange
    role: str | None
    expires_at: datetime | None
    settled_at: datetime | None
    behind: int


@dataclass(frozen=True, slots=True)
class ReaderStatus:
    """A reader as people see it.

    Args:
        event_types: the names of the types that it reads.
        ranges: in the order of their hashes.
        place: that of its range that is furthest behind.
        lag: events of its types from there on, up to ``MOST_COUNTED_EVENTS``: its other ranges have read some of them.
        waits_since: when the first of these events was sealed; None where there is none.
        is_paused: whether all of its programs get nothing new.
        subscriber: whom gateways call with its batches; None for a reader of programs.
    """

    entry: ReaderEntry
    event_types: Sequence[str]
    ranges: Sequence[RangeStatus]
    place: Place
    lag: int
    waits_since: datetime | None
    is_paused: bool
    subscriber: SubscriberStatus | None = None

    @property
    def state(self) -> PresenceState:
        """Its state: paused, detached as it lags too far, present while a program has a range, or absent."""
        if self.is_paused:
            return PresenceState.PAUSED
        if self.entry.is_detached:
            return PresenceState.DETACHED
        return PresenceState.PRESENT if self.programs else PresenceState.ABSENT

    @property
    def is_ended(self) -> bool:
        """True once its subscriber wants no more: nobody reads for it then."""
        return self.subscriber is not None and self.subscriber.ended_at is not None

    @property
    def is_waited_for(self) -> bool:
        """True while retention keeps what it has not read."""
        return self.entry.keeps and not self.entry.is_detached and not self.is_ended

    @property
    def bot(self) -> str | None:
        """The bot that it gives batches to; None for a reader of the bus file."""
        return self.entry.name.removeprefix(OF_BOTS) if self.entry.name.startswith(OF_BOTS) else None

    @property
    def logins(self) -> Sequence[str]:
        """The logins of the roles that have ranges."""
        return sorted({each.role for each in self.ranges if each.role is not None})

    @property
    def programs(self) -> int:
        """The number of programs that have ranges."""
        return len({each.range.owner for each in self.ranges} - {None})

    @property
    def skipped(self) -> int:
        """The number of envelopes that retention removed before it read them."""
        return max((each.range.skipped for each in self.ranges), default=0)


@dataclass(frozen=True, slots=True)
class PlaceMove:
    """A row of the history of a reader."""

    act: UUID
    at: datetime
    who: str
    kind: str
    reason: str
    undoes: UUID | None
    first: str
    last: str
    before: Place
    after: Place


def list_readers(connection: sa.Connection, name: str | None = None) -> list[ReaderStatus]:
    """List the readers in use, by name.

    Args:
        name: only this one; None for all.
    """
    chosen = {entry.id: entry for entry in read_readers(connection) if name in (None, entry.name)}
    ranges: dict[int, list[RangeStatus]] = {service_id: [] for service_id in chosen}

    @cache  # Ranges often stand at the same place.
    def beyond(service_id: int, position: int) -> tuple[int, datetime | None]:
        return _lag(connection, chosen[service_id], Place(position))

    told = {row.id: row for row in connection.execute(_ROWS).all()}
    for each in read_ranges(connection, [*ranges]):
        row = told[each.id]
        role = None if each.owner is None else row.login
        behind, _ = beyond(each.service_id, each.place.position)
        ranges[each.service_id].append(RangeStatus(each, role, row.expires_at, row.settled_at, behind))
    subscribers = read_subscribers(connection)
    pause = model.pause.c
    paused = set(connection.execute(sa.select(pause.subject_id).where(pause.kind == "service")).scalars())
    types = model.event_type.c
    statuses = []
    for entry in chosen.values():
        names = sa.select(types.name).where(types.id.in_(list(entry.event_types))).order_by(types.name)
        event_types = connection.execute(names).scalars().all()
        place = min(each.range.place for each in ranges[entry.id])
        waits = beyond(entry.id, place.position)
        own = (entry.id in paused, subscribers.get(entry.id))
        statuses.append(ReaderStatus(entry, event_types, ranges[entry.id], place, *waits, *own))
    return statuses


def count_lag(connection: sa.Connection, entry: ReaderEntry, place: Place, most: int) -> int:
    """Count the events that a reader gets from a place on, up to a number."""
    return _lag(connection, entry, place, most)[0]


def _lag(
    connection: sa.Connection, entry: ReaderEntry, place: Place, most: int = MOST_COUNTED_EVENTS
) -> tuple[int, datetime | None]:
    """Count the events of a reader from a place on, and find when the first was sealed."""
    counts, moments = [0], []
    for part in entry.parts(place.position):
        count, since = _lag_of_part(connection, part, most - sum(counts))
        counts.append(count)
        moments += [since] if since is not None else []
    return sum(counts), min(moments, default=None)


def _lag_of_part(connection: sa.Connection, part: LogPart, most: int) -> tuple[int, datetime | None]:
    graphs = connection.execute(_GRAPHS, {"types": sorted(part.types)}).scalars().all()
    count, since = 0, None
    for positions in _positions(connection, graphs, part):
        if count >= most:
            break
        found, first = connection.execute(_AT, {"positions": positions, "graphs": graphs}).one()
        count, since = count + found, since or first
    if count < most:
        found, first = _behind(connection, graphs, part, most - count)
        count, since = count + found, since or first
    return min(count, most), since


def find_waiting_since(connection: sa.Connection, entry: ReaderEntry, place: Place) -> datetime | None:
    """Find when the first event that a reader gets from a place on was sealed; None where there is none."""
    found = (_waiting_since(connection, part) for part in entry.parts(place.position))
    return min((moment for moment in found if moment is not None), default=None)


def _waiting_since(connection: sa.Connection, part: LogPart) -> datetime | None:
    graphs = connection.execute(_GRAPHS, {"types": sorted(part.types)}).scalars().all()
    for positions in _positions(connection, graphs, part, at_once=LOOKED_AT):
        _, since = connection.execute(_AT, {"positions": positions, "graphs": graphs}).one()
        if since is not None:
            found: datetime = since
            return found
    return _behind(connection, graphs, part, 1)[1]


def _behind(connection: sa.Connection, graphs: Sequence[int], part: LogPart, most: int) -> tuple[int, datetime | None]:
    """Count the events of a part that are not listed yet, and find when the first was sealed."""
    above = max(part.first - 1, read_contents_end(connection))
    upto = NO_END if part.until is None else part.until
    row = connection.execute(_BEHIND, {"above": above, "upto": upto, "graphs": graphs, "most": most}).one()
    return row[0], row[1]


def _positions(
    connection: sa.Connection, graphs: Sequence[int], part: LogPart, at_once: int = POSITIONS_AT_ONCE
) -> Iterator[Sequence[int]]:
    """Iterate over the listed positions of a part, as many at once as a statement takes."""
    after = part.first - 1
    while part.until is None or after < part.until:
        listed = find_listed(connection, graphs, after, at_once)
        if not listed.positions:
            return
        yield [each for each in listed.positions if part.until is None or each <= part.until]
        after = listed.upto


def list_moves(connection: sa.Connection, service_id: int, limit: int) -> list[PlaceMove]:
    """List the history of a reader, the newest first, without moves past what falls into other ranges."""
    row = model.reader_move.c
    shown = sa.and_(row.service_id == service_id, row.kind != ReaderAct.PASS.value)
    wanted = sa.select(model.reader_move).where(shown).order_by(row.id.desc()).limit(limit)
    return [
        value_of(
            PlaceMove,
            each,
            before=Place(each.from_position, each.from_event, each.from_item),
            after=Place(each.to_position, each.to_event, each.to_item),
        )
        for each in connection.execute(wanted).all()
    ]


_ENVELOPE, _EVENT = model.envelope.c, model.event.c
_WANTED: sa.BindParameter[int] = sa.bindparam("graphs", expanding=True)
_GRAPHS = sa.select(model.graph.c.id).where(model.graph.c.event_type_id.in_(sa.bindparam("types", expanding=True)))
_WAITING = (
    sa.select(_ENVELOPE.position, _ENVELOPE.closed_at)
    .join(model.event, _EVENT.envelope_id == _ENVELOPE.id)
    .where(is_kept(), _EVENT.graph_id.in_(_WANTED))
)
_NAMED = _WAITING.where(_ENVELOPE.position.in_(sa.bindparam("positions", expanding=True))).subquery()
_AT = sa.select(sa.func.count(), sa.func.min(_NAMED.c.closed_at))
_TAIL = (
    _WAITING.where(_ENVELOPE.position > sa.bindparam("above"), _ENVELOPE.position <= sa.bindparam("upto"))
    .order_by(_ENVELOPE.position)
    .limit(sa.bindparam("most"))
    .subquery()
)
_BEHIND = sa.select(sa.func.count(), sa.func.min(_TAIL.c.closed_at))
_ROWS = (
    sa.select(
        model.reader_range.c.id,
        model.reader_range.c.expires_at,
        model.reader_range.c.settled_at,
        model.role.c.login,
    )
    .outerjoin(model.role, model.role.c.id == model.reader_range.c.role_id)
    .where(model.reader_range.c.completed_at.is_(None))
)
