"""Looks into the items of the journal: those of one envelope, those of a type behind a place, and those that fit."""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import TypeAlias, cast
from uuid import UUID

from xbus.admin.repair.moves import find_event
from xbus.admin.repair.payload import Payload, mask
from xbus.broker.journal.database.connection import Connection, connected
from xbus.broker.journal.log.planning import position_before
from xbus.broker.journal.log.reading import read_head, read_segments
from xbus.broker.journal.log.repeats import Past
from xbus.broker.journal.log.segments import Segment
from xbus.broker.journal.log.slices.items import read_slice
from xbus.broker.journal.log.slices.listing import Start, read_list_page, read_start
from xbus.broker.journal.log.slices.values import LAST_HASH, Place, Slice, SliceBounds, Stretch, key_hash
from xbus.broker.journal.operations.envelopes.listing import known_type_id
from xbus.broker.journal.operations.envelopes.search import SearchedEvent, read_search_page
from xbus.broker.journal.operations.event_types import read_secret_fields
from xbus.broker.journal.operations.parked import find_past
from xbus.errors import Refused
from xbus.json_text import parse_json
from xbus.rpc.codec import Value, unpack_items

Fit: TypeAlias = Callable[[Value], bool]
"""Says whether an item fits."""


def any_text(text: str) -> Fit:
    """Have a text be in the item: in a name, a text or a number of it, in capitals or not."""
    folded = text.casefold()

    def fits(item: Value) -> bool:
        if isinstance(item, dict):
            return any(fits(part) for pair in item.items() for part in pair)
        if isinstance(item, list | tuple):
            return any(map(fits, item))
        return not isinstance(item, bytes) and folded in str(item).casefold()

    return fits


@dataclass(frozen=True, slots=True)
class Condition:
    """A field must have a value.

    Args:
        path: the names on the way to the field; a number is also the place in a list.
        text: the value as a person writes it: it fits a text of these characters, and what this is in JSON.
        value: the same read as JSON; the text again where it is none.
    """

    path: tuple[str, ...]
    text: str
    value: Value

    @classmethod
    def of(cls, text: str) -> "Condition":
        """Read a condition such as ``number=4711`` or ``client.name=ADA``.

        Raises:
            Refused: it has no field or no equals sign (``bad_condition``).
        """
        field, equals, wanted = text.partition("=")
        names = tuple(field.strip().split("."))
        if not equals or not all(names):
            raise Refused(
                f'"{text}" is no condition', "write it as FIELD=VALUE, such as client.number=4711", code="bad_condition"
            )
        try:
            value = cast(Value, parse_json(wanted))
        except ValueError:
            value = wanted
        return cls(names, wanted, value)

    def fits(self, item: Value) -> bool:
        """Check whether the field of an item has the value; of a list on the way one element suffices."""
        return self._fits(item, self.path)

    def _fits(self, value: Value, path: Sequence[str]) -> bool:
        if not path:
            return self._is_value(value) or (isinstance(value, list) and any(map(self._is_value, value)))
        if isinstance(value, dict):
            if path[0] in value and self._fits(value[path[0]], path[1:]):
                return True
            # A name may itself have full stops in it.
            joined = (".".join(path[:length]) for length in range(2, len(path) + 1))
            return len(path) > 1 and any(
                name in value and self._fits(value[name], path[length:]) for length, name in enumerate(joined, 2)
            )
        if isinstance(value, list):
            name, *rest = path
            if name.isdecimal() and int(name) < len(value) and self._fits(value[int(name)], rest):
                return True
            return any(self._fits(element, path) for element in value if isinstance(element, dict | list))
        return False

    def _is_value(self, value: Value) -> bool:
        if isinstance(value, str):
            return value == self.text or value == self.value
        # In Python, True and 1 are equal.
        return value == self.value and isinstance(value, bool) == isinstance(self.value, bool)


PAGE_BYTES = 1 << 20
"""Bytes of items that are read at once. More need more memory, and fewer take more statements."""


SHOWN_BYTES = 64 << 20
"""Bytes of items that one page shows at the most. An item may have 16 MiB."""


@dataclass(frozen=True, slots=True)
class EnvelopeItem:
    """An item, and its place.

    Args:
        position: of its envelope; None unless that is received.
        secret: paths of the fields that are hidden.
    """

    envelope_id: UUID
    position: int | None
    event_id: UUID
    event_number: int
    type_name: str
    index: int
    data: bytes
    secret: Set[str] = frozenset()

    @property
    def payload(self) -> Payload:
        """Its value, which shows no secret fields."""
        return Payload.of(self.data, self.secret)

    def plain(self) -> Mapping[str, object]:
        """Make an object of it for a program."""
        payload = self.payload
        return {
            "envelope_id": self.envelope_id,
            "position": self.position,
            "event_id": self.event_id,
            "event_number": self.event_number,
            "type": self.type_name,
            "index": self.index,
            "format": payload.kind,
            "bytes": len(self.data),
            "value": payload.plain,
        }


@dataclass(frozen=True, slots=True)
class ItemPage:
    """Items that follow each other.

    Args:
        next_event: the number of the event with the next item; None where all were read.
        next_index: its index there.
    """

    items: tuple[EnvelopeItem, ...]
    next_event: int | None = None
    next_index: int = 0


def read_items_page(
    connection: Connection,
    envelope_id: UUID,
    position: int | None,
    event: str | None,
    first: int,
    limit: int,
    max_bytes: int = SHOWN_BYTES,
    *,
    show_secrets: bool = False,
) -> ItemPage:
    """Read items of an envelope, as its emitter sent them: of an open one those that are durable so far.

    Args:
        position: the envelope's.
        event: where to begin, an event's number or id; None for the first event.
        first: where to begin in that event, from 0.
        limit: how many items at the most.
        max_bytes: how many bytes of them, unless the first item alone has more.
        show_secrets: whether the items show the fields that their event types call secret.

    Raises:
        Refused: the envelope (``envelope_unknown``) or the event (``event_unknown``) does not exist, or only an archive
            has the items (``envelope_archived``).
    """
    past = find_past(connection, envelope_id)
    if past.archived:
        raise Refused(
            f"the items of envelope {envelope_id} are in an archive only",
            f"restore them first: xbus restore {envelope_id}",
            code="envelope_archived",
        )
    secrets = {} if show_secrets else read_secret_fields(connection)
    found: list[EnvelopeItem] = []
    size = 0
    for item in _walk(connection, past, position, event, first):
        if len(found) == limit or (found and size + len(item.data) > max_bytes):
            return ItemPage(tuple(found), item.event_number, item.index)
        found.append(replace(item, secret=secrets.get(item.type_name, frozenset())))
        size += len(item.data)
    return ItemPage(tuple(found))


def _walk(
    connection: Connection, past: Past, position: int | None, event: str | None, first: int
) -> Iterator[EnvelopeItem]:
    if not past.events:
        return
    begin = past.events[0] if event is None else find_event(past, event)
    for each in past.events:
        if each.number >= begin.number:
            from_index = first if each is begin else 0
            for index, data in walk_event(connection, each.segments_id, from_index):
                place = (past.envelope_id, position, each.event_id, each.number, each.type_name, index)
                yield EnvelopeItem(*place, data)


def walk_event(connection: Connection, segments_id: UUID, first: int = 0) -> Iterator[tuple[int, bytes]]:
    """Iterate over the items of an event that the journal has, from an index on, with their indices."""
    while segments := read_segments(connection, segments_id, first, PAGE_BYTES):
        yield from items_of(segments, first)
        first = segments[-1].first_index + segments[-1].items


def items_of(segments: Sequence[Segment], first: int) -> Iterator[tuple[int, bytes]]:
    """Iterate over the items of segments that follow each other, from an index on, with their indices."""
    for segment in segments:
        for index, data in enumerate(unpack_items(segment.data, segment.items), segment.first_index):
            if index >= first:
                yield index, data


PAGE = SliceBounds(items=5_000, bytes=1 << 20)
"""Items that are read at once. More need more memory, and fewer take more statements."""


@dataclass(frozen=True, slots=True)
class StreamedItem:
    """An item as readers get it, with its place in the log."""

    place: Place
    sealed_at: datetime
    item: EnvelopeItem


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """The items that a person wants to read.

    Args:
        start: where to begin.
        key: a partition key, or the ordering key of events without one; None for all.
        conditions: all of them must fit.
        show_secrets: whether the fields that the type calls secret are shown, and compared.
    """

    type_name: str
    start: Start
    key: str | None
    conditions: Sequence[Fit]
    show_secrets: bool = False


_LISTS = partial(read_list_page, passes_archived=True)
"""A person looks at what is there: nothing is put back for that."""


def read_stream(url: str, wanted: StreamRequest, wait: Callable[[], bool]) -> Iterator[StreamedItem]:
    """Read the items of a type, as readers get them: corrected, where a person has corrected them.

    Args:
        url: the database.
        wait: called at the end of the log; it waits a moment, and says whether to look again.

    Raises:
        Refused: no event type has this name (``unknown_type``).
        BadPlace: the log ends before the place at which to begin (``place_beyond_end``).
    """
    first, last = (0, LAST_HASH) if wanted.key is None else (key_hash(wanted.key),) * 2
    with connected(url) as connection:
        with connection.begin():
            types = frozenset([known_type_id(connection, wanted.type_name)])
            hidden = {} if wanted.show_secrets else read_secret_fields(connection)
            place = read_start(connection, wanted.start)
        secret = hidden.get(wanted.type_name, frozenset())
        while True:
            with connection.begin():
                found = read_slice(connection, types, [Stretch(first, last, place)], PAGE, _LISTS)
            for streamed in _items_of_part(found, secret):
                # Who does not see a field must not find out its value by asking for one after the other.
                value = mask(Payload.of(streamed.item.data).value, secret)
                if all(fits(value) for fits in wanted.conditions):
                    yield streamed
            if found.to == place and not wait():
                return
            place = found.to


def _items_of_part(found: Slice, secret: Set[str]) -> Iterator[StreamedItem]:
    for event in found.events:
        facts = event.facts
        about = (UUID(facts.envelope_id), facts.position, UUID(facts.event_id), facts.event + 1, facts.type_name)
        for index, data in enumerate(unpack_items(event.data, event.items), event.first_index):
            place = facts.place._replace(item=index)
            yield StreamedItem(place, facts.sealed_at, EnvelopeItem(*about, index, data, secret))


MOST_ITEMS = 1_000_000
"""Items that one search reads at the most, unless its user wants it otherwise. It reads some 50,000 in a second."""

MOST_BYTES = 1 << 30
"""Bytes of items that one search reads at the most. Few items may be large."""


@dataclass(frozen=True, slots=True)
class Search:
    """The request for a search.

    Args:
        conditions: all of them must fit.
        since: only items of envelopes that were sealed since; None for all.
        below: a position; only items below it. None for all.
        limit: how many items to find.
        most_items: how many to read.
        most_bytes: and how many bytes of them.
        most_events: into how many events to look; None for any number.
        show_secrets: whether the fields that the type calls secret are searched and shown.
    """

    type_name: str
    conditions: Sequence[Fit]
    since: datetime | None = None
    below: int | None = None
    limit: int = 20
    most_items: int = MOST_ITEMS
    most_bytes: int = MOST_BYTES
    most_events: int | None = None
    show_secrets: bool = False


@dataclass(slots=True)
class SearchResult:
    """The result of a search, as far as it has come.

    Args:
        found: the items that fit with the moments of their seals, the newest envelope first.
        read_items: how many items were read.
        read_bytes: and how many bytes of them.
        read_events: into how many events it looked.
        archived: how many events were left out, because only an archive has their items.
        searched_from: all from this position on was searched; None for nothing yet.
        stopped: whether it ended before the beginning of the log or of the time that was asked for.
        is_bounded: whether it ended because it had read as much as it may.
        secret: paths of the fields that are hidden.
    """

    found: list[tuple[EnvelopeItem, datetime]] = field(default_factory=list)
    read_items: int = 0
    read_bytes: int = 0
    read_events: int = 0
    archived: int = 0
    searched_from: int | None = None
    stopped: bool = False
    is_bounded: bool = False
    secret: Set[str] = frozenset()

    @property
    def next_below(self) -> int | None:
        """The position below which a further search goes on; None where it would find the same again."""
        places = [item.position or 0 for item, _ in self.found]
        if self.searched_from is None or not (self.is_bounded or max(places, default=0) >= self.searched_from):
            return None
        return self.searched_from


def search_items(url: str, search: Search, on_progress: Callable[[int, int], object]) -> SearchResult:
    """Search the items of a type; each read is a short transaction of its own.

    Args:
        url: the database.
        on_progress: called behind each page, with the number of positions that were searched, and of all.

    Raises:
        Refused: no event type has this name (``unknown_type``).
    """
    result = SearchResult()
    with connected(url) as connection:
        with connection.begin():
            type_id = known_type_id(connection, search.type_name)
            if not search.show_secrets:
                result.secret = read_secret_fields(connection).get(search.type_name, frozenset())
            above = 0 if search.since is None else position_before(connection, search.since)
            head = read_head(connection)
        top = head + 1 if search.below is None else min(search.below, head + 1)
        below: int | None = top
        while below is not None and not result.stopped:
            with connection.begin():
                page = read_search_page(connection, type_id, below, above)
            for event in page.events:
                if event.position < below:
                    # The envelopes before it were searched whole.
                    result.searched_from, below = (None if below == top else below), event.position
                if not _search_event(connection, search, event, result):
                    break
            else:
                below = page.below
                result.searched_from = below or result.searched_from
                on_progress(top - (below or above + 1), top - above - 1)
    return result


def _search_event(connection: Connection, search: Search, event: SearchedEvent, result: SearchResult) -> bool:
    """Search the items of an event; return whether the search may go on behind it."""
    if result.read_events == search.most_events:
        result.stopped = result.is_bounded = True
        return False
    result.read_events += 1
    if not event.here:
        result.archived += event.archived
        return True
    for index, data in _items(connection, event.event_id):
        result.is_bounded = result.read_items >= search.most_items or result.read_bytes >= search.most_bytes
        result.stopped = result.is_bounded or len(result.found) >= search.limit
        if result.stopped:
            return False
        result.read_items += 1
        result.read_bytes += len(data)
        # Who does not see a field must not find out its value by asking for one after the other.
        value = mask(Payload.of(data).value, result.secret)
        if all(fits(value) for fits in search.conditions):
            place = (event.envelope_id, event.position, event.event_id, event.number, search.type_name, index)
            result.found.append((EnvelopeItem(*place, data, result.secret), event.closed_at))
    return True


def _items(connection: Connection, event_id: UUID) -> Iterator[tuple[int, bytes]]:
    first = 0
    while True:
        with connection.begin():
            segments = read_segments(connection, event_id, first, PAGE_BYTES)
        if not segments:
            return
        yield from items_of(segments, first)
        first = segments[-1].first_index + segments[-1].items
