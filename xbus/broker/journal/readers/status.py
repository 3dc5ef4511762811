"""Tells people how far readers are: ranges, lag, and the history of their places."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.log.contents import find_listed, read_contents_end
from xbus.broker.journal.log.reading import is_kept
from xbus.broker.journal.log.slices import Place
from xbus.broker.journal.readers.people import OF_BOTS
from xbus.broker.journal.readers.ranges import ReaderRange, read_ranges
from xbus.broker.journal.readers.settings import ReaderEntry, read_readers
from xbus.broker.journal.readers.subscribers import SubscriberStatus, read_subscribers
from xbus.states import PresenceState

MOST_COUNTED_EVENTS = 10_000
"""Lag is counted up to here: a longer one need not be exact, and would take long to count."""

POSITIONS_AT_ONCE = 500
"""Positions of a statement that counts. SQLite takes a thousand parameters or so."""

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
    chosen = [entry for entry in read_readers(connection) if name in (None, entry.name)]
    ranges: dict[int, list[RangeStatus]] = {entry.id: [] for entry in chosen}
    waiting = {entry.id: _WaitingEvents(connection, entry) for entry in chosen}
    told = {row.id: row for row in connection.execute(_ROWS).all()}
    for each in read_ranges(connection, [*ranges]):
        row = told[each.id]
        role = None if each.owner is None else row.login
        behind, _ = waiting[each.service_id].beyond(each.place)
        ranges[each.service_id].append(RangeStatus(each, role, row.expires_at, row.settled_at, behind))
    subscribers = read_subscribers(connection)
    statuses = [_status(connection, entry, ranges[entry.id], waiting[entry.id]) for entry in chosen]
    return [replace(status, subscriber=subscribers.get(status.entry.id)) for status in statuses]


def _status(
    connection: sa.Connection, entry: ReaderEntry, ranges: Sequence[RangeStatus], waiting: "_WaitingEvents"
) -> ReaderStatus:
    types = model.event_type.c
    names = sa.select(types.name).where(types.id.in_(list(entry.event_types))).order_by(types.name)
    place = min(each.range.place for each in ranges)
    lag, waits_since = waiting.beyond(place)
    paused = sa.select(model.pause.c.kind).where(model.pause.c.kind == "service", model.pause.c.subject_id == entry.id)
    is_paused = connection.execute(paused).first() is not None
    return ReaderStatus(entry, connection.execute(names).scalars().all(), ranges, place, lag, waits_since, is_paused)


class _WaitingEvents:
    """The events of a reader's types, looked at once for each place: ranges often stand at the same one.

    Args:
        connection: reads.
        entry: the reader.
    """

    def __init__(self, connection: sa.Connection, entry: ReaderEntry) -> None:
        self._connection = connection
        self._entry = entry
        self._found: dict[int, tuple[int, datetime | None]] = {}

    def beyond(self, place: Place) -> tuple[int, datetime | None]:
        """Count those from a place on, and find when the first of them was sealed."""
        if place.position not in self._found:
            self._found[place.position] = _lag(self._connection, self._entry, place)
        return self._found[place.position]


def _lag(connection: sa.Connection, entry: ReaderEntry, place: Place) -> tuple[int, datetime | None]:
    """Count the events of a reader's types from a place on, and find the moment at which the first was sealed."""
    graphs = connection.execute(_GRAPHS, {"types": sorted(entry.event_types)}).scalars().all()
    count, since = 0, None
    for positions in _positions(connection, graphs, place.position):
        found, first = connection.execute(_AT, {"positions": positions, "graphs": graphs}).one()
        count, since = count + found, since or first
        if count >= MOST_COUNTED_EVENTS:
            break
    if count < MOST_COUNTED_EVENTS:
        above = max(place.position - 1, read_contents_end(connection))
        bounds = {"above": above, "graphs": graphs, "most": MOST_COUNTED_EVENTS - count}
        found, first = connection.execute(_BEHIND, bounds).one()
        count, since = count + found, since or first
    return min(count, MOST_COUNTED_EVENTS), since


def find_waiting_since(connection: sa.Connection, entry: ReaderEntry, place: Place) -> datetime | None:
    """Find when the first event of a reader's types from a place on was sealed; None where there is none."""
    graphs = connection.execute(_GRAPHS, {"types": sorted(entry.event_types)}).scalars().all()
    for positions in _positions(connection, graphs, place.position, at_once=LOOKED_AT):
        _, since = connection.execute(_AT, {"positions": positions, "graphs": graphs}).one()
        if since is not None:
            found: datetime = since
            return found
    above = max(place.position - 1, read_contents_end(connection))
    waits_since: datetime | None = connection.execute(_BEHIND, {"above": above, "graphs": graphs, "most": 1}).one()[1]
    return waits_since


def _positions(
    connection: sa.Connection, graphs: Sequence[int], first: int, at_once: int = POSITIONS_AT_ONCE
) -> Iterator[Sequence[int]]:
    """Iterate over the positions that the table of contents names from one on, as many at once as a statement takes."""
    after = first - 1
    while True:
        listed = find_listed(connection, graphs, after, at_once)
        if not listed.positions:
            return
        yield listed.positions
        after = listed.upto


def list_moves(connection: sa.Connection, service_id: int, limit: int) -> list[PlaceMove]:
    """List the history of a reader, the newest first."""
    row = model.reader_move.c
    wanted = sa.select(model.reader_move).where(row.service_id == service_id).order_by(row.id.desc()).limit(limit)
    return [
        PlaceMove(
            each.act,
            each.at,
            each.who,
            each.kind,
            each.reason,
            each.undoes,
            each.first,
            each.last,
            Place(each.from_position, each.from_event, each.from_item),
            Place(each.to_position, each.to_event, each.to_item),
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
    _WAITING.where(_ENVELOPE.position > sa.bindparam("above"))
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
