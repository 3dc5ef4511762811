"""Segments: gathering what arrived meanwhile, hashing it, and writing it for COPY; pure."""

import hashlib
import json
import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from xbus.broker.journal.database.binary_copy import INTEGER, pack_field
from xbus.broker.journal.database.compression import compress
from xbus.broker.journal.objects.reading import SegmentData
from xbus.broker.journal.writes import Append, Indices, StoredObject
from xbus.headers import NO_TAGS, EventTags


class Segment(NamedTuple):
    """A run of consecutive items of an event, as in ``model.segment``."""

    first_index: int
    items: int
    data: bytes
    indices: Indices | None = None


class SegmentRow(NamedTuple):
    """A row of ``model.segment``, ready to be written."""

    event_id: UUID
    first_index: int
    items: int
    data: bytes
    hash: bytes
    indices: Indices | None = None
    plain_bytes: int | None = None
    store_id: int | None = None

    def compressed(self) -> "SegmentRow":
        """Give a plain row as one whose type compresses its segments."""
        data, plain_bytes = compress(self.data)
        return self._replace(data=data, plain_bytes=plain_bytes)

    def plain(self, door: SegmentData) -> "SegmentRow":
        """Give the row with its plain data.

        Raises:
            JournalError: it is damaged (``segment_damaged``) or not where it should be (``object_missing``).
        """
        data = door.plain_of(*(self.event_id, self.first_index), self.data, self.plain_bytes, self.store_id, self.hash)
        return self._replace(data=data, plain_bytes=None, store_id=None)


def make_row(
    event_id: UUID,
    first_index: int,
    items: int,
    data: bytes,
    *,
    compressed: bool,
    stored: StoredObject | None = None,
) -> SegmentRow:
    """Make a row of plain data.

    Args:
        compressed: whether the event's type compresses its segments.
        stored: where the data lies already.
    """
    if stored is not None:
        place = (stored.hash, stored.hash, None, len(data), stored.store_id)
        return SegmentRow(event_id, first_index, items, *place)
    row = SegmentRow(event_id, first_index, items, data, hashlib.sha256(data).digest())
    return row.compressed() if compressed else row


def gather(appends: Sequence[Append], max_bytes: int) -> list[SegmentRow]:
    """Make segments of appends: join neighbours, so that a thousand calls of one item become one row.

    Args:
        appends: in the order in which they came; each event's indices follow each other.
        max_bytes: a segment is closed before it would grow over this.
    """
    by_event: dict[UUID, list[Append]] = {}
    for append in appends:
        by_event.setdefault(append.event_id, []).append(append)
    return [
        _row(run)
        for run_of in by_event.values()
        for run in ((run_of,) if len(run_of) == 1 else _runs(run_of, max_bytes))
    ]


def _runs(appends: Iterable[Append], max_bytes: int) -> Iterator[list[Append]]:
    run: list[Append] = []
    size = following = 0
    for append in appends:
        is_apart = append.first_index != following or size + append.size > max_bytes or append.stored is not None
        if run and is_apart:
            yield run
            run, size = [], 0
        run.append(append)
        # An object is a segment of its own.
        size += append.size if append.stored is None else max_bytes + 1
        following = append.first_index + append.items
    if run:
        yield run


def _row(run: Sequence[Append]) -> SegmentRow:
    first, data, items = run[0], run[0].data, run[0].items
    if len(run) > 1:
        data, items = b"".join([append.data for append in run]), sum([append.items for append in run])
    return make_row(first.event_id, first.first_index, items, data, compressed=first.compress, stored=first.stored)


class EventContent(Protocol):
    """An event of an envelope that is to be hashed; ``hashed_name`` is the first name of its type."""

    @property
    def hashed_name(self) -> str: ...
    @property
    def items(self) -> int: ...
    @property
    def hashes(self) -> Sequence[bytes]: ...
    @property
    def tags(self) -> EventTags: ...


class Content(NamedTuple):
    """The same, for those who keep nothing else of it."""

    hashed_name: str
    items: int
    hashes: Sequence[bytes] = ()
    tags: EventTags = NO_TAGS


_VERSION_2 = b"\0\2"
"""Begins what is hashed by version 2. Version 1 begins with the name of an event type, which has no zero byte."""


def content_hash(events: Collection[EventContent], headers: bytes | None = None) -> bytes:
    """Hash an envelope as ``model.envelope`` defines it.

    An envelope without headers and partition keys is hashed by version 1, as all were before there were any. Version 2
    covers these too: behind its mark come the headers of the envelope; for each event the type name, a zero byte, the
    item count as 8 bytes, the headers, the partition key, the number of segments as 4 bytes, and their hashes. Before
    headers and keys comes their length as 4 bytes, 0 for none. All numbers are big endian.

    Args:
        headers: packed; None without any.
    """
    if headers is None and all(event.tags == NO_TAGS for event in events):
        return _hash_without_headers(events)
    whole = hashlib.sha256(hash_opening(headers))
    for event in events:
        whole.update(event.hashed_name.encode() + b"\0" + event.items.to_bytes(8, "big"))
        key = event.tags.partition_key
        whole.update(_measured(event.tags.headers) + _measured(None if key is None else key.encode()))
        whole.update(len(event.hashes).to_bytes(4, "big") + b"".join(event.hashes))
    return whole.digest()


def hash_opening(headers: bytes | None) -> bytes:
    """Write what the hash of an envelope by version 2 begins with."""
    return _VERSION_2 + _measured(headers)


NO_SEGMENTS = bytes(8) + bytes(4)
LONE_SEGMENT = bytes(8) + (1).to_bytes(4, "big")
"""An event in that hash, without headers and partition key, up to the hashes of so many segments."""


def _hash_without_headers(events: Iterable[EventContent]) -> bytes:
    whole = hashlib.sha256()
    for event in events:
        whole.update(event.hashed_name.encode() + b"\0" + event.items.to_bytes(8, "big"))
        for segment_hash in event.hashes:
            whole.update(segment_hash)
    return whole.digest()


def _measured(data: bytes | None) -> bytes:
    return len(data or b"").to_bytes(4, "big") + (data or b"")


COPY_COLUMNS = ("event_id", "first_index", "items", "data", "hash", "indices", "plain_bytes", "store_id")

_COPY_START = struct.Struct("!hi16siqiii")
"""Up to the data, whose length is the last number. In one go, as each lone item has a row."""


def copy_rows(rows: Iterable[SegmentRow]) -> list[bytes]:
    """Pack rows of ``COPY_COLUMNS`` in pieces, for ``binary_copy.copy_in``."""
    pieces: list[bytes] = []
    for row in rows:
        start = _COPY_START.pack(8, 16, row.event_id.bytes, 8, row.first_index, 4, row.items, len(row.data))
        indices = None if row.indices is None else json.dumps(row.indices).encode()
        plain_bytes = None if row.plain_bytes is None else INTEGER.pack(row.plain_bytes)
        store_id = None if row.store_id is None else INTEGER.pack(row.store_id)
        pieces += (start, row.data, *pack_field(row.hash), *pack_field(indices))
        pieces += (*pack_field(plain_bytes), *pack_field(store_id))
    return pieces
