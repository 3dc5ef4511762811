"""Items as the author of a recipient sees them."""

from collections.abc import Iterable, Iterator
from typing import Any, TypeGuard

from xbus.errors import ProtocolError, Refused
from xbus.recipient.refusal import Refusal
from xbus.rpc.codec import Value, unpack, unpack_items
from xbus.rpc.items import item_bytes

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
    """Give the indices of each item; None where all are original, and each has the place behind the one before it."""
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
