"""Reading segments in bulk: ranges of an event or an output, and the log of a type, past the broker.

Each reader has a connection of its own. It reads page by page, each page in a transaction of its own, as an open
transaction would keep SQLite from carrying its log over; what is sealed, or an output that is ready, never changes.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

from xbus.broker.journal.database.compression import PLAIN_SIZE_TEXT
from xbus.broker.journal.database.paging import pages
from xbus.broker.journal.database.raw_reader import Fetcher, Query, fetching
from xbus.broker.journal.log.planning import GONE, LogRange, SegmentRange
from xbus.broker.journal.objects.reading import STORED_DATA_TEXT, fetched_data
from xbus.errors import JournalError
from xbus.headers import NO_TAGS, EventTags

PAGE_BYTES = 4 * 1024 * 1024
"""Segments are fetched until their data would exceed this, at least one."""

PAGE_ROWS = 5_000

TAG_ROWS = 500
"""Events are fetched so many at a time together with their headers, which may take 8 KiB each."""

Place: TypeAlias = tuple[int, int]
"""The place of a segment: (0, first_index) in an event, (part, number) in an output."""

_SegmentRow: TypeAlias = tuple[int, bytes, int | None, int | None, bytes, int, bytes | None]
"""Number of items, data as it is stored, first index and sources."""

_LoggedRow: TypeAlias = tuple[UUID, int, int, *tuple[Any, ...]]
"""The event that has the items, their first index and number, and their stored data if asked for."""


@dataclass(frozen=True, slots=True)
class BulkSegment:
    """Consecutive items.

    Args:
        items: how many.
        data: each as a msgpack bin, one after the other.
        first_index: the index of the event's item that the first one is, or was made of; without meaning where
            ``sources`` is there.
        sources: see ``model.bulk_segment``; None where the indices follow each other.
    """

    items: int
    data: bytes
    first_index: int
    sources: bytes | None


@dataclass(frozen=True, slots=True)
class LoggedSegment:
    """Consecutive items of an event in the log, with what is to be known of their envelope.

    Args:
        first_index: the index of the first item in its event.
        data: each as a msgpack bin, one after the other; empty where it was not asked for.
        tags: those of the event, where they were asked for.
        envelope_headers: packed, where they were asked for.
    """

    envelope_id: UUID
    event_id: UUID
    position: int
    emitter: str
    sealed_at: datetime
    first_index: int
    items: int
    data: bytes
    tags: EventTags = NO_TAGS
    envelope_headers: bytes | None = None


@contextmanager
def open_reader(url: str, page_bytes: int = PAGE_BYTES) -> Iterator["SegmentReader"]:
    """Open a reader with a connection of its own.

    Args:
        url: the journal's SQLAlchemy URL.
        page_bytes: about so many bytes are read at once.

    Raises:
        JournalUnavailable: the database can't be reached.
        ConfigurationError: the URL can't be used.
    """
    with fetching(url) as fetcher:
        yield SegmentReader(fetcher, page_bytes)


class SegmentReader:
    """Reads segments; not to be shared between threads.

    Args:
        fetcher: its connection.
        page_bytes: about so many bytes are read at once.
    """

    def __init__(self, fetcher: Fetcher, page_bytes: int = PAGE_BYTES) -> None:
        self._fetcher = fetcher
        self._data = fetched_data(fetcher)
        self._page_bytes = page_bytes

    def segments(self, wanted: SegmentRange) -> Iterator[BulkSegment]:
        """Iterate over the segments of a range, in order.

        Raises:
            JournalError: segments_gone: some of them were removed meanwhile.
            JournalUnavailable: the database can't be read now.
        """
        texts = _OUTPUT if wanted.is_output else _EVENT
        found = 0
        for segment in self._in_pages(texts, wanted.source, wanted.first, wanted.last):
            found += segment.items
            yield segment
        if found != wanted.items:
            raise JournalError(f"{wanted.source} has {found} items where {wanted.items} were", code=GONE)

    def log(
        self, type_id: int, after: int, until: int, columns: Collection[str] = ("data",)
    ) -> Iterator[LoggedSegment]:
        """Iterate over the segments of a type in a part of the log, by position, event and index.

        Args:
            type_id: of the event type.
            after: a position; what is read lies above it.
            until: the last position that is read.
            columns: what is wanted; without ``data`` that is left out, and not read. So are headers and partition keys
                without ``headers`` and ``partition_key``.

        Raises:
            JournalError: segments_gone: something was removed while it was read.
            JournalUnavailable: the database can't be read now.
        """
        with_data = "data" in columns
        gathered: list[_EventHeader] = []
        size = 0
        for event in self._events(type_id, after, until, columns):
            is_next = not gathered or gathered[-1].position != event.position
            if gathered and is_next and size + event.envelope_bytes > self._page_bytes:
                yield from self._gathered(gathered, type_id, with_data)
                gathered, size = [], 0
            # The data of an event is not more than that of its envelope.
            if event.envelope_bytes > self._page_bytes:
                yield from self._large(event, 0, event.items, with_data)
                continue
            gathered.append(event)
            size += event.envelope_bytes if is_next else 0
        if gathered:
            yield from self._gathered(gathered, type_id, with_data)

    def log_range(self, wanted: LogRange, columns: Collection[str] = ("data",)) -> Iterator[LoggedSegment]:
        """Iterate as ``log`` does, over a range that ``log_planning`` cut."""
        if wanted.number is None:
            yield from self.log(wanted.type_id, wanted.after, wanted.until, columns)
            return
        for event in self._events(wanted.type_id, wanted.after, wanted.until, columns):
            if event.number == wanted.number:
                yield from self._large(event, wanted.first, wanted.end, "data" in columns)
                return
        raise JournalError(f"event {wanted.number} at position {wanted.until} was removed", code=GONE)

    def _in_pages(self, texts: "_Texts", source: UUID, first: int, last: int) -> Iterator[BulkSegment]:
        """Iterate over a source's segments, in pages of so much data."""
        after: Place = texts.before(first)
        while sizes := self._fetcher.fetch(texts.sizes, source=source, a=after[0], b=after[1], last=last):
            for page in pages(sizes, self._page_bytes):
                start, end = page[0], page[-1]
                values = {"a": start[0], "b": start[1], "c": end[0], "d": end[1]}
                for row in self._fetcher.fetch(texts.data, source=source, **values):
                    items, data, plain_bytes, store_id, digest, first_index, sources = row
                    # A page that is not asked for its data has none.
                    plain = data if data is None else self._data.plain(data, plain_bytes, store_id, digest)
                    yield BulkSegment(items, plain, first_index, sources)
            after = (sizes[-1][0], sizes[-1][1])

    def _events(self, type_id: int, after: int, until: int, columns: Collection[str]) -> Iterator["_EventHeader"]:
        query = _LOG_EVENTS if _TAGS.isdisjoint(columns) else _LOG_EVENTS_WITH_TAGS
        number = 2**31 - 1
        while found := self._fetcher.fetch(query, type_id=type_id, after=after, number=number, until=until):
            for row in found:
                yield _EventHeader(*row)
            after, number = found[-1][4], found[-1][5]

    def _gathered(self, events: Sequence["_EventHeader"], type_id: int, with_data: bool) -> Iterator[LoggedSegment]:
        """Iterate over the segments of all events of some small envelopes."""
        query = _LOG_SEGMENTS if with_data else _LOG_SEGMENTS_BARE
        first, last = events[0].position, events[-1].position
        found: defaultdict[UUID, list[_LoggedRow]] = defaultdict(list)
        for row in self._fetcher.fetch(query, type_id=type_id, first=first, last=last):
            found[row[0]].append(row)
        for event in events:
            expected = 0
            for _, first_index, items, *data in found[event.source]:
                _expect(event, expected, first_index)
                yield event.segment(first_index, items, self._data.plain(*data) if with_data else b"")
                expected += items
            _expect(event, expected, event.items)

    def _large(self, event: "_EventHeader", first: int, end: int, with_data: bool) -> Iterator[LoggedSegment]:
        texts = _EVENT if with_data else _EVENT_BARE
        expected = first
        for found in self._in_pages(texts, event.source, first, end - 1):
            _expect(event, expected, found.first_index)
            expected += found.items
            yield event.segment(found.first_index, found.items, found.data if with_data else b"")
        _expect(event, expected, end)


@dataclass(frozen=True, slots=True)
class _EventHeader:
    envelope_id: UUID
    event_id: UUID
    source: UUID
    items: int
    position: int
    number: int
    emitter: str
    sealed_at: datetime
    envelope_bytes: int
    headers: bytes | None = None
    partition_key: str | None = None
    envelope_headers: bytes | None = None

    def segment(self, first_index: int, items: int, data: bytes) -> LoggedSegment:
        return LoggedSegment(
            *(self.envelope_id, self.event_id, self.position, self.emitter, self.sealed_at),
            *(first_index, items, data),
            *(EventTags(self.headers, self.partition_key), self.envelope_headers),
        )


def _expect(event: _EventHeader, expected: int, found: int) -> None:
    if expected != found:
        raise JournalError(f"segments of event {event.event_id} were removed at index {expected}", code=GONE)


@dataclass(frozen=True, slots=True)
class _Texts:
    """The statements that read the segments of a source.

    Args:
        sizes: the places that follow (a, b), up to last, each with the size of its data.
        data: the rows at the places from (a, b) to (c, d).
        is_output: whether a place is a part and a number.
    """

    sizes: Query[tuple[int, int, int]]
    data: Query[_SegmentRow]
    is_output: bool

    def before(self, first: int) -> Place:
        return (first, -1) if self.is_output else (0, first - 1)


_EVENT = _Texts(
    Query(
        f"SELECT 0, first_index, {PLAIN_SIZE_TEXT} FROM log_segment WHERE event_id = %(source)s AND first_index > %(b)s"
        f" AND %(a)s = 0 AND first_index <= %(last)s ORDER BY first_index LIMIT {PAGE_ROWS}",
        "iqi",
    ),
    Query(
        f"SELECT items, {STORED_DATA_TEXT}, first_index, NULL FROM log_segment"
        " WHERE event_id = %(source)s AND %(a)s = %(c)s"
        " AND first_index >= %(b)s AND first_index <= %(d)s ORDER BY first_index",
        "ibiibqb",
    ),
    is_output=False,
)
_EVENT_BARE = _Texts(
    Query(_EVENT.sizes.text.replace(PLAIN_SIZE_TEXT, "0"), "iqi"),
    Query(_EVENT.data.text.replace(STORED_DATA_TEXT, "NULL, NULL, NULL, NULL"), "ibiibqb"),
    is_output=False,
)
_OUTPUT = _Texts(
    Query(
        "SELECT part, number, length(data) FROM bulk_segment WHERE attempt_id = %(source)s"
        " AND (part, number) > (%(a)s, %(b)s) AND part <= %(last)s"
        f" ORDER BY part, number LIMIT {PAGE_ROWS}",
        "iii",
    ),
    Query(
        "SELECT items, data, NULL, NULL, hash, first_index, sources FROM bulk_segment WHERE attempt_id = %(source)s"
        " AND (part, number) >= (%(a)s, %(b)s) AND (part, number) <= (%(c)s, %(d)s) ORDER BY part, number",
        "ibiibqb",
    ),
    is_output=True,
)
_TAGS = frozenset({"headers", "partition_key"})
"""The columns for which headers and partition keys are read."""

_LOG_EVENTS: Query[tuple[UUID, UUID, UUID, int, int, int, str, datetime, int, *tuple[Any, ...]]] = Query(
    "SELECT envelope_id, event_id, segments_id, items, position, number, emitter, sealed_at, envelope_bytes"
    " FROM log_event WHERE position >= %(after)s AND position <= %(until)s AND pruned_at IS NULL"
    " AND (position > %(after)s OR number > %(number)s) AND event_type_id = %(type_id)s"
    f" ORDER BY position, number LIMIT {PAGE_ROWS}",
    "uuuqqistq",
)
_LOG_EVENTS_WITH_TAGS: Query[tuple[UUID, UUID, UUID, int, int, int, str, datetime, int, *tuple[Any, ...]]] = Query(
    _LOG_EVENTS.text.replace(
        "envelope_bytes FROM", "envelope_bytes, headers, partition_key, envelope_headers FROM"
    ).replace(f"LIMIT {PAGE_ROWS}", f"LIMIT {TAG_ROWS}"),
    "uuuqqistqbsb",
)
_LOG_SEGMENTS: Query[_LoggedRow] = Query(
    f"SELECT event_id, first_index, items, {STORED_DATA_TEXT} FROM log_segment WHERE event_id IN"
    " (SELECT segments_id FROM log_event WHERE position >= %(first)s AND position <= %(last)s"
    " AND pruned_at IS NULL AND event_type_id = %(type_id)s)"
    " ORDER BY event_id, first_index",
    "uqibiib",
)
_LOG_SEGMENTS_BARE: Query[_LoggedRow] = Query(_LOG_SEGMENTS.text.replace(f", {STORED_DATA_TEXT}", ""), "uqi")
