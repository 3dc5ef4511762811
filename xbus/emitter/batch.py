"""Gathers the items of one event into batches. Pure: no socket, no loop, no clock."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Protocol, TypeVar

from xbus.errors import CallError, Refused
from xbus.rpc.codec import exact_packer
from xbus.rpc.items import PackHook, as_text, cut, item_bytes

T_co = TypeVar("T_co", covariant=True)


def check_size(size: int, max_item_bytes: int) -> None:
    """Let an item of ``size`` bytes pass.

    Raises:
        Refused: it is larger than the bus takes (``item_too_large``).
    """
    if size > max_item_bytes:
        raise Refused(
            f"an item of {size} bytes is larger than the {max_item_bytes} that the bus takes",
            "send it in parts, or have max_item_bytes raised",
            code="item_too_large",
        )


class Failing(Protocol):
    """The calls that carry batches; a ``Stream`` is one."""

    error: CallError | None
    """The error that broke them off; None while they go on."""


class Full(Protocol[T_co]):
    """Is called when a batch is full and must be taken."""

    def __call__(self, *, timeout: float | None) -> T_co:
        """Take it, or have it taken.

        Args:
            timeout: the seconds that its caller may wait; None for those of the envelope.
        """


class Add(Protocol[T_co]):
    """Puts one item into a batch."""

    def __call__(self, item: object, *, timeout: float | None = None) -> T_co | None:
        """Put it in, and call ``Full`` where that is due.

        Returns:
            The answer of ``Full``; None where it was not called.

        Raises:
            Refused: the batch takes no items now, or the item can't be packed or is too large.
        """


class OutgoingBatch:
    """The items of one event that wait for company.

    Any thread adds, but only one takes: who takes also sends, and batches must be sent in the order taken. No lock is
    needed, which each item would pay for: a list takes an item, or gives its first ones away, in one step.

    Args:
        max_items: items that make it full.
        max_bytes: bytes that make it full.
        max_item_bytes: the largest item that the bus takes.
        max_batch_bytes: the largest batch that the bus takes.
        calls: will carry it; once they are broken off it counts as full, so that who adds learns of the error.
        hook: packs the values that msgpack does not know.

    Attributes:
        error: the reason for which it takes no items; None while it takes some.
    """

    def __init__(
        self,
        max_items: int,
        max_bytes: int,
        max_item_bytes: int,
        max_batch_bytes: int,
        calls: Failing,
        hook: PackHook = as_text,
    ) -> None:
        self.error: Refused | None = None
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._max_item_bytes = max_item_bytes
        self._max_batch_bytes = max_batch_bytes
        self._calls = calls
        self._hook = hook
        self._pack: Callable[[object], bytes] = exact_packer()
        self._items: list[bytes] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._items)

    def adder(self, full: Full[T_co]) -> Add[T_co]:
        """Make the function that puts an item in: the only Python function that a send of an item calls.

        Args:
            full: called in the thread that adds.
        """
        items, append, calls = self._items, self._items.append, self._calls
        max_items, max_bytes, max_item_bytes = self._max_items, self._max_bytes, self._max_item_bytes

        def add(item: object, *, timeout: float | None = None) -> T_co | None:
            if self.error is not None:
                raise self.error
            data = item if type(item) is bytes else self._packed(item)
            size = len(data)
            if size > max_item_bytes:
                check_size(size, max_item_bytes)
            append(data)
            self._bytes += size
            if len(items) >= max_items or self._bytes >= max_bytes or calls.error is not None:
                return full(timeout=timeout)
            return None

        return add

    def fill(self, given: Iterable[object]) -> Iterator[None]:
        """Put many items in; stop each time that the batch is full and must be taken.

        Raises:
            Refused: as ``Add``; the items before are in.
        """
        items, append, calls = self._items, self._items.append, self._calls
        max_items, max_bytes, max_item_bytes = self._max_items, self._max_bytes, self._max_item_bytes
        for item in given:
            if self.error is not None:
                raise self.error
            data = item if type(item) is bytes else self._packed(item)
            size = len(data)
            if size > max_item_bytes:
                check_size(size, max_item_bytes)
            append(data)
            self._bytes += size
            if len(items) >= max_items or self._bytes >= max_bytes or calls.error is not None:
                yield

    def _packed(self, item: object) -> bytes:
        if type(item) is not dict and type(item) is not list:
            return item_bytes(item, self._hook)
        try:
            return self._pack(item)
        except (TypeError, ValueError, OverflowError):
            # The next items are likely to have a date, too, and each try costs as much as a short item.
            self._pack = partial(item_bytes, hook=self._hook)
            return self._pack(item)

    def take(self) -> Iterator[list[bytes]]:
        """Empty it: the items in lists small enough for the bus, mostly one."""
        taken = self._items[:]
        del self._items[: len(taken)]
        # An item that is added just now may count for this batch or for none, which only makes a batch larger or
        # smaller by an item: the limit of the bus is kept by the true sizes.
        self._bytes = 0
        return cut(taken, self._max_batch_bytes)
