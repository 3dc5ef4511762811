"""Envelopes, events and items as the author of a recipient sees them."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import product
from types import NoneType
from typing import Any, TypeAlias, TypeGuard

from xbus.errors import ProtocolError, Refused
from xbus.files import IncomingFile
from xbus.headers import HeaderValue, unpack_headers
from xbus.recipient.refusal import Refusal
from xbus.rpc.codec import Key, Value, unpack, unpack_items
from xbus.rpc.items import item_bytes

NOTE_FIELDS = 6
"""The fields of a note that are read; a newer broker may tell more behind them."""

Note: TypeAlias = tuple[str | None, str | None, str | None, int | None, float | None, int | None]
"""The facts that the broker tells of an envelope: emitter, key, ordering key, position, when it was sealed in seconds
of unix time, and which attempt this is."""

NO_NOTE: Note = (None, None, None, None, None, None)

Rows: TypeAlias = Sequence[Any]
"""Rows of the wire, of which the types of all fields are looked at together."""

_TEXT = (str, NoneType)
_BYTES = (bytes, NoneType)
_NOTES = frozenset(product(_TEXT, _TEXT, _TEXT, (int,), (float, int, NoneType), (int,)))
"""The types of the fields of a note. One look tells whether all of them fit."""

_EARLIEST, _LATEST = -62_135_596_800.0, 253_402_300_800.0
"""The bounds of a moment in seconds of unix time: the years 1 to 9999, as a ``datetime`` takes no others."""

MOST_TOLD = 2**63 - 1
"""The greatest number that a report of progress holds, as msgpack and the journal take no greater one."""


class _Delivered:
    """An envelope or an event that is being delivered, with a place for what its author keeps of it."""

    _state: dict[str, Any] | None = None
    _packed_headers: bytes | None = None
    _headers: Mapping[str, HeaderValue] | None = None

    @property
    def state(self) -> dict[str, Any]:
        """The author's own, empty at first: a transaction, an open file, a count."""
        if self._state is None:
            self._state = {}
        return self._state

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._state = state


class Envelope(_Delivered):
    """An envelope that is being delivered.

    Args:
        envelope_id: its UUID as text.
        note: what the broker tells of it, as of ``checked_notes``; None where it tells nothing.

    Attributes:
        id: its UUID as text; the same each time that it comes.
        is_stopped: set as soon as the envelope is to be rolled back, while a method may still work on it: what is long
            may end then.
        files: what ``Event.save`` writes.

    ``emitter``, ``key``, ``ordering_key``, ``position``, ``sealed_at`` and ``attempt`` are None where the bus says
    nothing: in an event with an immediate reply, as the envelope is not sealed yet; in a ``rollback`` of an envelope
    that is not known here; and with a broker older than 0.3.0.
    """

    # Most authors ask for little of this, and most envelopes are small: only what is asked for is made.
    is_stopped: bool = False
    files: Sequence[IncomingFile] = ()
    _note: Note = NO_NOTE

    def __init__(self, envelope_id: str, note: Note | None = None) -> None:
        self.id = envelope_id
        if note is not None:
            self._note = note

    def __repr__(self) -> str:
        return f"Envelope({self.id!r})"

    @property
    def emitter(self) -> str | None:
        """The login of the emitter that sent it."""
        return self._note[0]

    @property
    def key(self) -> str | None:
        """The emitter's name for it, None without one."""
        return self._note[1]

    @property
    def ordering_key(self) -> str | None:
        """The ordering key that the emitter gave it, None without one."""
        return self._note[2]

    @property
    def position(self) -> int | None:
        """Its place among all sealed envelopes of the bus. A repeated delivery has the same, a replay another."""
        return self._note[3]

    @property
    def sealed_at(self) -> datetime | None:
        """The moment at which it was sealed, in UTC."""
        sealed_at = self._note[4]
        return None if sealed_at is None else datetime.fromtimestamp(sealed_at, UTC)

    @property
    def attempt(self) -> int | None:
        """The number of times that it has come to this recipient, with this time; 1 for the first time."""
        return self._note[5]

    @property
    def headers(self) -> Mapping[str, HeaderValue]:
        """The headers that the emitter gave to the envelope, by name; empty without any. Moments are in UTC."""
        if self._headers is None:
            self._headers = _unpacked(self._packed_headers)
        return self._headers

    @headers.setter
    def headers(self, headers: Mapping[str, HeaderValue]) -> None:
        self._headers = headers

    def read_note(self, note: list[Value]) -> None:
        """Take up what the broker tells of the envelope.

        Raises:
            Refused: it is no note (``wrong_arguments``).
        """
        (self._note,) = checked_notes([note])


def checked_notes(notes: Rows) -> list[Note]:
    """Let notes pass; no function of Python is called for each.

    Raises:
        Refused: one of them is none (``wrong_arguments``).
    """
    checked: list[Note] = []
    for note in notes:
        told: Any = tuple(note[:NOTE_FIELDS]) if type(note) is list else ()
        if tuple(map(type, told)) not in _NOTES or not (told[4] is None or _EARLIEST <= told[4] < _LATEST):
            raise Refused(
                "a note is not [emitter, key, ordering_key, position, sealed_at, attempt]", code="wrong_arguments"
            )
        checked.append(told)
    return checked


def packed_headers(told: Mapping[Key, Any]) -> tuple[bytes | None, str | None, bytes | None]:
    """Read a map of the broker: the headers of an event, its partition key, and the headers of its envelope.

    Raises:
        Refused: the map has another form (``wrong_arguments``).
    """
    own, key, of_envelope = told.get("headers"), told.get("partition_key"), told.get("envelope_headers")
    if type(own) not in _BYTES or type(key) not in _TEXT or type(of_envelope) not in _BYTES:
        raise Refused("headers are not a map of headers, partition_key and envelope_headers", code="wrong_arguments")
    return own, key, of_envelope


def _unpacked(headers: bytes | None) -> dict[str, HeaderValue]:
    """Unpack headers at their first use: most authors ask for none.

    Raises:
        Refusal: they are no headers; they never will be.
    """
    try:
        return unpack_headers(headers)
    except Refused as error:
        raise Refusal(error.cause) from error


class Event(_Delivered):
    """An event that is being delivered.

    Args:
        event_id: its UUID as text.
        type_name: its event type.
        envelope: the envelope that it belongs to.

    Attributes:
        id: its UUID as text; the same each time that it comes.
        type_name: its event type.
        envelope: the envelope that it belongs to.
        taken: how many of its items have been through the author's code.
        partition_key: as the emitter gave it, None without one.
        reports: how often ``progress`` was called.
        file: what ``save`` writes, with the name and the size that its sender gave; None without it.
    """

    taken: int = 0
    partition_key: str | None = None
    file: IncomingFile | None = None
    reports: int = 0
    _told: tuple[int, int | None] | None = None

    def __init__(self, event_id: str, type_name: str, envelope: Envelope) -> None:
        self.id = event_id
        self.type_name = type_name
        self.envelope = envelope

    def __repr__(self) -> str:
        return f"Event({self.id!r}, {self.type_name!r})"

    @property
    def headers(self) -> Mapping[str, HeaderValue]:
        """The headers that the emitter gave to the event or to its envelope, by name.

        The event's own count where both have a name. Moments are in UTC. Behind a worker an event has them, too.
        """
        if self._packed_headers is None:
            return self.envelope.headers
        if self._headers is None:
            self._headers = {**self.envelope.headers, **_unpacked(self._packed_headers)}
        return self._headers

    def read_headers(self, headers: Mapping[Key, Value]) -> None:
        """Take up the headers that the broker tells of the event, and with its first event of the envelope.

        Raises:
            Refused: they have another form (``wrong_arguments``).
        """
        self._packed_headers, self.partition_key, of_envelope = packed_headers(headers)
        if of_envelope is not None:
            self.envelope._packed_headers = of_envelope

    def save(self, path: str | os.PathLike[str]) -> IncomingFile:
        """Write the file that the event brings, in ``on_event_start``; its items come to no other method then::

            def on_event_start(self, event):
                event.save(f"/in/{event.id}.pdf")

        The file is complete and checked when ``on_event_end`` is called. It appears at its path, in the place of one
        that is there, when the envelope is committed: ``commit`` finds it. A rollback removes what was written.

        Args:
            path: of the file; or a folder that is there, for the name that its sender gave it.

        Raises:
            OSError: nothing can be written there; the broker redelivers the envelope then.
            Refusal: items of the event have come already.
        """
        if self.taken or self.file is not None:
            raise Refusal("event.save comes too late: call it once, in on_event_start")
        self.file = IncomingFile(path, self.id)
        self.envelope.files = (*self.envelope.files, self.file)
        return self.file

    def progress(self, done: int, of: int | None = None) -> None:
        """Report the progress of a long piece of work, from any thread, as a sign of life.

        Only a method that works on many items at once, or long on one, needs it: ``on_item`` counts its items anyway.
        Operators see the report::

            for number, page in enumerate(pages):
                event.progress(number, len(pages))

        Args:
            done: the work done, in any unit.
            of: the whole work, if it is known.
        """
        # A heartbeat with anything else could not be sent.
        self._told = (min(int(done), MOST_TOLD), None if of is None else min(int(of), MOST_TOLD))
        self.reports += 1

    @property
    def steps(self) -> int:
        """Grows while the author's code advances."""
        return self.taken + self.reports

    @property
    def told(self) -> tuple[int, int | None]:
        """The work done, and the whole of it: as the author reported, otherwise the items taken."""
        return self._told or (self.taken, None)


NO_INDEX = -1

WIRE_FIELDS = 4
"""The fields of a batch in a call: first index, number of items, data, indices."""

_NOT_READ = object()


class Item:
    """One item of an event.

    Attributes:
        data: its bytes as they came.
        index: the first of its indices; -1 where it has none.
    """

    __slots__ = ("_indices", "_value", "data", "index")

    def __init__(self, data: bytes, index: int, indices: list[int] | None = None) -> None:
        self.data = data
        self.index = index
        self._indices = indices
        self._value = _NOT_READ

    @classmethod
    def of(cls, value: object, indices: Iterable[int] = ()) -> "Item":
        """Make a new item, for a worker to answer.

        Args:
            value: bytes as they are; any other value is packed by msgpack.
            indices: the emitter's indexes of the items that it was made of.

        Raises:
            Refused: msgpack has no way to write the value (``bad_items``).
        """
        made_of = list(indices)
        return cls(item_bytes(value), made_of[0] if made_of else NO_INDEX, made_of)

    @property
    def value(self) -> Any:
        """The value of the bytes in msgpack, unpacked at its first use.

        Raises:
            Refusal: they are no msgpack; they never will be.
        """
        if self._value is _NOT_READ:
            try:
                self._value = unpack(self.data)
            except ProtocolError as error:
                raise Refusal(f"the item is not msgpack: {error.cause}", self.indices) from error
        return self._value

    @property
    def indices(self) -> list[int]:
        """The places, counted from 0, of the items in the emitter's event that this one was made of."""
        return [self.index] if self._indices is None else self._indices

    @property
    def is_original(self) -> bool:
        """True if it is the one item at ``index``."""
        return self._indices is None

    def with_value(self, value: object) -> "Item":
        """Make a new item from this one: another value, the same indices.

        Raises:
            Refused: msgpack has no way to write the value (``bad_items``).
        """
        return Item(item_bytes(value), self.index, self._indices)


def indices_of(items: list[Item]) -> list[list[int]] | None:
    """Give the indices of each item. None where all are original, and each has the place behind the one before it."""
    first = items[0].index
    # No call for each item: a worker that passes items on does little else.
    if [item._indices for item in items].count(None) == len(items) and [item.index for item in items] == list(
        range(first, first + len(items))
    ):
        return None
    return [item.indices for item in items]


class RoutedItem(Item):
    """An item of which its worker says as which event type it goes on.

    Attributes:
        event_type: the name of that type.
    """

    __slots__ = ("event_type",)

    def __init__(self, event_type: str, item: Item) -> None:
        super().__init__(item.data, item.index, item._indices)
        self.event_type = event_type


class Out:
    """A worker's answer that says as which event type it goes on: one of those that its node emits::

        def on_item(self, event, item):
            yield Out("refunds", value) if value["amount"] < 0 else value

    Args:
        event_type: the name of the type.
        value: bytes as they are, an ``Item``, or any value that msgpack can pack.
    """

    __slots__ = ("event_type", "value")

    def __init__(self, event_type: str, value: object) -> None:
        self.event_type = event_type
        self.value = value

    def made_of(self, source: Item | None) -> RoutedItem:
        """Make the item, with the indices of the one that it was made of, unless the value has its own."""
        if isinstance(self.value, Item):
            return RoutedItem(self.event_type, self.value)
        made = Item.of(self.value) if source is None else source.with_value(self.value)
        return RoutedItem(self.event_type, made)


class Batch:
    """Items of one event that came together; iterating over it gives each as an ``Item``.

    Attributes:
        data: the bytes of each item, the fastest way to them.
    """

    __slots__ = ("_first_index", "_indices", "data")

    def __init__(self, data: list[bytes], first_index: int, indices: list[list[int]] | None = None) -> None:
        self.data = data
        self._first_index = first_index
        self._indices = indices

    @classmethod
    def unpacked(cls, first_index: int, items: int, data: bytes, indices: list[Value] | None) -> "Batch":
        """Read the batch in the arguments of ``xbus.send_items``.

        Raises:
            Refused: they do not fit together (``bad_items``).
        """
        if indices is not None and not _are_indices(indices, items):
            raise Refused("the indices of a batch are not one list of numbers per item", code="bad_items")
        try:
            return cls(unpack_items(data, items), first_index, indices)
        except ProtocolError as error:
            raise Refused(error.cause, error.next_step, code="bad_items") from error

    @classmethod
    def of_item(cls, data: bytes, indices: list[Value]) -> "Batch":
        """Read the batch in the arguments of ``send_item``, which brings one item.

        Raises:
            Refused: its indices are no numbers (``bad_items``).
        """
        of_items: list[Value] = [indices]
        if not _are_indices(of_items, 1):
            raise Refused("the indices of an item are not a list of numbers", code="bad_items")
        return cls([data], 0, of_items)

    @classmethod
    def of_wire(cls, batch: Value) -> "Batch":
        """Read the batch in ``[first_index, items, data, indices]``.

        Raises:
            Refused: it has not that form, or does not fit together (``bad_items``).
        """
        if isinstance(batch, list) and len(batch) == WIRE_FIELDS:
            first_index, items, data, indices = batch
            if (
                isinstance(first_index, int)
                and isinstance(items, int)
                and isinstance(data, bytes)
                and (indices is None or isinstance(indices, list))
            ):
                return cls.unpacked(first_index, items, data, indices)
        raise Refused("a batch is not [first_index, items, data, indices]", code="bad_items")

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[Item]:
        if self._indices is None:
            return map(Item, self.data, range(self._first_index, self._first_index + len(self.data)))
        first_ones = (indices[0] if indices else NO_INDEX for indices in self._indices)
        return map(Item, self.data, first_ones, self._indices)


def _are_indices(indices: list[Value], items: int) -> TypeGuard[list[list[int]]]:
    return len(indices) == items and all(
        type(of_item) is list and all(type(index) is int for index in of_item) for of_item in indices
    )
