"""Lists the events of some types from a place of the log on, without their items.

Far behind the head the log's table of contents says which block holds such events next, so that a rare type costs
little. Each list covers all from its first place to its end.
"""

import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TypeAlias
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.log.contents import BLOCK_POSITIONS, block_of, find_block, read_contents_end
from xbus.broker.journal.log.planning import position_before, read_oldest
from xbus.broker.journal.log.reading import is_kept, read_head
from xbus.broker.journal.log.slices.values import BadPlace, EventHead, Place, ring_hash

# -- starting ----------------------------------------------------------------------------------------------------------
# Finds where to begin in the log: at a place, at a moment, or at one of its ends.

Start: TypeAlias = Place | datetime | Literal["head", "oldest"]
"""The place to begin; a moment means the first envelope sealed then or later, the head means the next envelope."""


def parse_start(text: str) -> Start:
    """Read where to begin, as people and programs write it: a place, a moment in ISO 8601, ``head`` or ``oldest``.

    A moment without a time zone is one in UTC.

    Raises:
        BadPlace: it is none of these (``place_invalid``, ``moment_invalid``).
    """
    if text == "head":
        return "head"
    if text == "oldest":
        return "oldest"
    if text.replace(":", "").isdecimal():
        return Place.parse(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadPlace(
            f"{text!r:.60} is neither a place in the log nor a moment",
            "write a place as 1234 or 1234:0:500, a moment as 2026-11-20T10:00Z, head or oldest",
            code="moment_invalid",
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def read_start(connection: sa.Connection, start: Start) -> Place:
    """Find the place at which to begin.

    Raises:
        BadPlace: the place lies beyond the end of the log (``place_beyond_end``).
    """
    end = Place(read_head(connection) + 1)
    if start == "head":
        return end
    if start == "oldest":
        first = read_oldest(connection)
        return end if first is None else Place(first)
    if isinstance(start, datetime):
        return Place(position_before(connection, start) + 1)
    if start > end:
        raise BadPlace(
            f"the place {start} lies beyond the end of the log, which is {end}",
            "begin at the end or before: head is the end",
            code="place_beyond_end",
        )
    return start


PAGE_EVENTS = 4096
"""Events of a page at the most. More spares statements where envelopes hold many events, and takes memory."""


class ListedEvent:
    """An event of which a slice may want items.

    Args:
        facts: the event.
        items: how many it holds.
        segments_id: the event under whose id its items are stored.
        data_bytes: the bytes of its items, where it is alone in its envelope; None where only its segments tell.
    """

    __slots__ = ("_hash", "data_bytes", "facts", "items", "segments_id")

    def __init__(self, facts: EventHead, items: int, segments_id: str, data_bytes: int | None) -> None:
        self.facts = facts
        self.items = items
        self.segments_id = segments_id
        self.data_bytes = data_bytes
        self._hash: int | None = None

    @property
    def hash(self) -> int:
        """Its place on the ring; whoever reads the whole ring never asks."""
        if self._hash is None:
            self._hash = ring_hash(self.facts.partition_key, self.facts.ordering_key, self.facts.event_id)
        return self._hash


def _place(event: ListedEvent) -> Place:
    return event.facts.place


@dataclass(frozen=True, slots=True)
class ListPage:
    """All events of some types in a part of the log, but those for some roles only.

    Args:
        first: where the part begins.
        to: where it ends; the same as ``first`` at the head of the log.
        events: in order.
        archived: the envelopes with the next such events, whose items only an archive has: the part ends before them.
    """

    first: Place
    to: Place
    events: Sequence[ListedEvent]
    archived: Sequence[str] = ()

    def events_from(self, place: Place) -> Sequence[ListedEvent]:
        """Give the events from that of a place on."""
        return self.events[bisect_left(self.events, Place(place.position, place.event), key=_place) :]


def read_list_page(
    connection: sa.Connection,
    types: Collection[int],
    place: Place,
    page_events: int = PAGE_EVENTS,
    *,
    passes_archived: bool = False,
) -> ListPage:
    """Read the list of the next events of some types.

    Args:
        types: the ids of the event types.
        place: where the page begins.
        page_events: how many events come at the most.
        passes_archived: whether the list leaves out what only an archive has; else it ends there.
    """
    head = read_head(connection)
    if place.position > head:
        return ListPage(place, place, ())
    begin, end = place, read_contents_end(connection)
    if place.position <= end:
        block = find_block(connection, _read_graphs(connection, types), block_of(max(place.position, 1)))
        if block is None or block >= block_of(end + 1):
            return ListPage(place, Place(end + 1), ())
        begin = max(place, Place(block * BLOCK_POSITIONS + 1))
    until = min(head, (block_of(max(begin.position, 1)) + 1) * BLOCK_POSITIONS)
    bounds = {"position": begin.position, "number": begin.event, "until": until, "rows": page_events + 1}
    rows = connection.execute(_EVENTS, {**bounds, "types": sorted(types)}).all()
    events = [_listed(*facts) for is_archived, *facts in rows if not is_archived]
    archived = [_listed(*facts).facts for is_archived, *facts in rows if is_archived]
    if archived and not passes_archived:
        return _before(archived, place, events)
    if len(rows) > page_events:
        to = _listed(*rows[-1][1:]).facts.place
        return ListPage(place, to, [event for event in events if event.facts.place < to])
    return ListPage(place, Place(until + 1), events)


def _before(archived: Sequence[EventHead], first: Place, events: Sequence[ListedEvent]) -> ListPage:
    """Make the page of the events before the first archived one."""
    to = archived[0].place
    wanted = dict.fromkeys(facts.envelope_id for facts in archived)
    return ListPage(first, max(first, to), [event for event in events if event.facts.place < to], tuple(wanted))


def _read_graphs(connection: sa.Connection, types: Collection[int]) -> Sequence[int]:
    return connection.execute(_GRAPHS, {"types": sorted(types)}).scalars().all()


def _listed(items: int, origin_id: str | None, events: int, data_bytes: int, *facts: object) -> ListedEvent:
    found = EventHead(*facts)  # type: ignore[arg-type]
    return ListedEvent(found, items, origin_id or found.event_id, data_bytes if events == 1 else None)


def as_text(column: sa.ColumnElement[UUID]) -> sa.ColumnElement[str]:
    """Read ids as texts, in which they also travel: making a UUID of each takes longer than all else of its row."""
    return sa.type_coerce(column, IDS)


class _TextUuid(sa.Uuid[str]):
    """A UUID as text; where the database keeps 32 digits, as SQLite, no UUID is made on the way."""

    def __init__(self) -> None:
        super().__init__(as_uuid=False)

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> Callable[[str | None], str | None]:
        def dashed(found: str | None) -> str | None:
            return found and f"{found[:8]}-{found[8:12]}-{found[12:16]}-{found[16:20]}-{found[20:]}"

        return dashed


IDS = _TextUuid()

_ENVELOPE, _EVENT = model.envelope.c, model.event.c
_TYPES: sa.BindParameter[int] = sa.bindparam("types", expanding=True)
_GRAPHS = sa.select(model.graph.c.id).where(model.graph.c.event_type_id.in_(_TYPES))
_FOR_ALL = sa.or_(
    # Only what repeats another is for some roles only.
    _ENVELOPE.origin_id.is_(None),
    ~sa.exists().where(model.envelope_role.c.envelope_id == _ENVELOPE.id),
)
_EVENTS = (
    sa.select(
        *(_ENVELOPE.pruned_at.is_not(None), _EVENT["items"], as_text(_EVENT.origin_id)),
        *(_ENVELOPE.events, _ENVELOPE.bytes),
        # From here on as in ``EventHead``.
        *(as_text(_ENVELOPE.id), as_text(_EVENT.id), model.event_type.c.name, _ENVELOPE.position, _EVENT.number - 1),
        *(model.emitter.c.login, _ENVELOPE.closed_at, _ENVELOPE.idempotency_key, _ENVELOPE.ordering_key),
        *(_EVENT.partition_key, _ENVELOPE.headers, _EVENT.headers),
    )
    .select_from(model.envelope)
    .join(model.event, _EVENT.envelope_id == _ENVELOPE.id)
    .join(model.event_type, model.event_type.c.id == _EVENT.event_type_id)
    .join(model.emitter, model.emitter.c.id == _ENVELOPE.emitter_id)
    .where(_ENVELOPE.position >= sa.bindparam("position"), _ENVELOPE.position <= sa.bindparam("until"))
    .where(sa.or_(_ENVELOPE.position > sa.bindparam("position"), _EVENT.number > sa.bindparam("number")))
    .where(_EVENT.event_type_id.in_(_TYPES), is_kept(), _FOR_ALL)
    .order_by(_ENVELOPE.position, _EVENT.number)
    .limit(sa.bindparam("rows", type_=sa.Integer))
)


def read_types(connection: sa.Connection, after: int, until: int) -> set[int]:
    """Read the ids of the event types that envelopes above one position and up to another hold."""
    return set(connection.execute(_HELD_TYPES, {"after": after, "until": until}).scalars())


_HELD_TYPES = (
    sa.select(_EVENT.event_type_id)
    .join(model.envelope, _EVENT.envelope_id == _ENVELOPE.id)
    .where(_ENVELOPE.position > sa.bindparam("after"), _ENVELOPE.position <= sa.bindparam("until"))
    .distinct()
)


# -- lists -------------------------------------------------------------------------------------------------------------
# Keeps the lists of events that were read last, so that those who stand near each other read them once.

LISTS_BYTES = 64 * 1024 * 1024
"""Memory that the lists may take. More spares reads to ranges that are far apart."""

LISTED_EVENT_BYTES = 1024
"""Memory that an event in a list takes beside its headers, about."""

PAGE_BYTES = 1024
"""Memory that a list takes beside its events, about."""


class EventLists:
    """The lists that were read last; threads may share it.

    Args:
        max_bytes: the lists that were not used for longest go when all take more than this.
    """

    def __init__(self, max_bytes: int = LISTS_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._blocks: OrderedDict[tuple[frozenset[int], int], list[ListPage]] = OrderedDict()
        """The lists by types and by the block in which they begin, the last used one at the end."""
        self._reading = threading.Lock()

    @property
    def size(self) -> int:
        """The bytes that it takes, about."""
        return self._bytes

    def page(self, connection: sa.Connection, types: frozenset[int], place: Place) -> ListPage:
        """Find or read a list that covers a place; it may begin before it."""
        # Whoever wants the same list waits here while it is read, and finds it.
        with self._reading:
            found = self._find(types, place)
            if found is None:
                found = read_list_page(connection, types, place)
                if found.first < found.to:
                    self._keep(types, found)
            return found

    def _find(self, types: frozenset[int], place: Place) -> ListPage | None:
        block = types, block_of(place.position)
        for page in self._blocks.get(block, ()):
            if page.first <= place < page.to:
                self._blocks.move_to_end(block)
                return page
        return None

    def _keep(self, types: frozenset[int], page: ListPage) -> None:
        block = types, block_of(page.first.position)
        pages = self._blocks.setdefault(block, [])
        self._blocks.move_to_end(block)
        self._bytes += _memory(page)
        if pages and pages[-1].to == page.first and len(pages[-1].events) + len(page.events) <= PAGE_EVENTS:
            # The head of the log grows by a few events at a time.
            last = pages.pop()
            page = ListPage(last.first, page.to, (*last.events, *page.events))
        pages.append(page)
        while self._bytes > self._max_bytes and self._blocks:
            _, oldest = self._blocks.popitem(last=False)
            self._bytes -= sum(map(_memory, oldest))


def _memory(page: ListPage) -> int:
    return PAGE_BYTES + sum([LISTED_EVENT_BYTES + event.facts.size for event in page.events])
