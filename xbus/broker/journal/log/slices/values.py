"""Places in the log, stretches of the ring of hashes, and what a slice of the log holds; pure."""

import hashlib
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from xbus.errors import XbusError

# -- cutting -----------------------------------------------------------------------------------------------------------
# Cuts the data of segments between items, by their lengths, and replaces items; pure.
#
# An item is a msgpack bin: a mark, the number of its bytes in one, two or four bytes, and these bytes. See
# https://github.com/msgpack/msgpack/blob/master/spec.md#bin-format-family.


def skip_items(data: bytes, items: int, place: int = 0) -> int:
    """Find the place behind so many items."""
    for _ in range(items):
        place = _behind(data, place)
    return place


def cut_items(data: bytes, first: int, end: int) -> bytes:
    """Cut out the items from one index up to another."""
    start = skip_items(data, first)
    return data[start : skip_items(data, end - first, start)]


def replace_items(data: bytes, items: int, instead: Mapping[int, bytes]) -> bytes:
    """Replace some items.

    Args:
        items: the number of items in data.
        instead: items by their index in data.
    """
    pieces: list[bytes] = []
    kept = place = 0
    for index in range(items):
        start, place = place, _behind(data, place)
        if (item := instead.get(index)) is not None:
            pieces += (data[kept:start], _header(len(item)), item)
            kept = place
    return b"".join((*pieces, data[kept:]))


def _behind(data: bytes, place: int) -> int:
    mark = data[place]
    if mark == 0xC4:
        return place + 2 + data[place + 1]
    if mark == 0xC5:
        return place + 3 + int.from_bytes(data[place + 1 : place + 3], "big")
    return place + 5 + int.from_bytes(data[place + 1 : place + 5], "big")


def _header(length: int) -> bytes:
    if length < 2**8:
        return b"\xc4" + length.to_bytes(1, "big")
    return b"\xc5" + length.to_bytes(2, "big") if length < 2**16 else b"\xc6" + length.to_bytes(4, "big")


LAST_HASH = 2**64 - 1
"""The last hash of the ring; the first one is 0."""

EVENT_BYTES = 256
"""Bytes that each event of a slice counts beside its items and headers: its ids and its names take about as much."""

_HIGHEST = 2**63 - 1
"""The largest number that the journal keeps."""


class BadPlace(XbusError):
    """A text or a value that is no place in the log."""

    default_code = "place_invalid"


class Place(NamedTuple):
    """A place in the log, before the next item to be read.

    Args:
        position: of an envelope.
        event: which of its events, from 0.
        item: which item of that event, from 0.

    Example:
        >>> str(Place.parse("1234:0:500")), str(Place(1234))
        ('1234:0:500', '1234')
    """

    position: int
    event: int = 0
    item: int = 0

    def __str__(self) -> str:
        return ":".join(map(str, self)) if self.event or self.item else str(self.position)

    @classmethod
    def parse(cls, text: str) -> "Place":
        """Read a place as people write it: ``1234``, or ``1234:0:500``.

        Raises:
            BadPlace: it is written otherwise.
        """
        if not re.fullmatch(r"[0-9]{1,19}(:[0-9]{1,19}:[0-9]{1,19})?", text):
            raise BadPlace(f"{text!r:.60} is no place in the log", _FORM)
        return cls.of([int(part) for part in text.split(":")])

    @classmethod
    def of(cls, value: object) -> "Place":
        """Read a place as it travels: a list of one or three numbers.

        Raises:
            BadPlace: it is something else.
        """
        if not isinstance(value, list | tuple) or len(value) not in (1, 3):
            raise BadPlace(f"{value!r:.60} is no place in the log", _FORM)
        if not all(type(each) is int and 0 <= each <= _HIGHEST for each in value):
            raise BadPlace(f"{value!r:.60} is no place in the log", _FORM)
        return cls(*value)


_FORM = "name a position, as 1234, or position, event and item, as 1234:0:500"


def ring_hash(partition_key: str | None, ordering_key: str | None, event_id: str) -> int:
    """Hash what an event is about onto the ring: its partition key, else its ordering key, else the event itself.

    The hash is the first eight bytes of a SHA-256, as a big-endian number. It is made of the key in UTF-8, or of the 16
    bytes of the event's id. ``docs/wire.md`` tells it to others: it never changes.
    """
    key = partition_key if partition_key is not None else ordering_key
    return _hash(bytes.fromhex(event_id.replace("-", ""))) if key is None else key_hash(key)


def key_hash(key: str) -> int:
    """Hash a partition key or ordering key onto the ring."""
    return _hash(key.encode())


def _hash(hashed: bytes) -> int:
    return int.from_bytes(hashlib.sha256(hashed).digest()[:8], "big")


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of the ring, and the place up to which its items were read.

    Args:
        first: its first hash.
        last: its last hash, which belongs to it.
        position: the place of its next item.
        until: where it ends, if exactly these items are to be read again; None to read on up to the bounds of a slice.
    """

    first: int
    last: int
    position: Place
    until: Place | None = None

    @property
    def is_whole_ring(self) -> bool:
        return self.first == 0 and self.last == LAST_HASH

    def __contains__(self, hashed: int) -> bool:
        return self.first <= hashed <= self.last


MOST_EVENTS = 2_000
"""Events of a slice at the most: an answer with more of them would hold more values than the wire allows."""


@dataclass(frozen=True, slots=True)
class SliceBounds:
    """The most that a slice holds; at least one item comes, however large it is.

    Args:
        items: an event without items counts as one.
        bytes: the items' data, the headers, and ``EVENT_BYTES`` for each event.
        events: how many events.
    """

    items: int
    bytes: int
    events: int = MOST_EVENTS


NO_BOUNDS = SliceBounds(sys.maxsize, sys.maxsize, sys.maxsize)
"""The bounds of a slice that is read whole."""


class EventHead(NamedTuple):
    """An event of the log and its envelope, without its items.

    Args:
        envelope_id: a UUID as text, and so is ``event_id``.
        event: its index in its envelope, from 0.
        emitter: the login of its emitter.
        key: the emitter's name for the envelope, if it has one.
        headers: those of the envelope, packed, if it has any.
        event_headers: those of the event.
    """

    envelope_id: str
    event_id: str
    type_name: str
    position: int
    event: int
    emitter: str
    sealed_at: datetime
    key: str | None
    ordering_key: str | None
    partition_key: str | None
    headers: bytes | None
    event_headers: bytes | None

    @property
    def place(self) -> Place:
        """Its place, before its first item."""
        return Place(self.position, self.event)

    @property
    def size(self) -> int:
        """The bytes that it counts in a slice, beside its items."""
        if self.headers is None and self.event_headers is None:
            return EVENT_BYTES
        return EVENT_BYTES + len(self.headers or b"") + len(self.event_headers or b"")


class SliceEvent(NamedTuple):
    """Items of one event that follow each other.

    Args:
        facts: the event.
        first_index: of the first of the items.
        items: how many come.
        data: the items, each as a msgpack bin, one after the other.
    """

    facts: EventHead
    first_index: int
    items: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Slice:
    """Items that were read of the log.

    Args:
        to: where to read on. It also passes what was not wanted.
        events: in the order of the log.
        archived: the envelopes at ``to`` that have to come back of an archive before anything more can be read.
        ends_log: whether the log had nothing more.
    """

    to: Place
    events: tuple[SliceEvent, ...] = ()
    archived: Sequence[str] = ()
    ends_log: bool = False

    @property
    def items(self) -> int:
        """The number of items of all events."""
        return sum(event.items for event in self.events)
