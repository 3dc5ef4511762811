"""Gathers the items of one event into batches. Pure: no socket, no loop, no clock."""

from collections.abc import Iterator

from xbus.errors import Refused
from xbus.rpc.items import cut


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


class OutgoingBatch:
    """The items of one event that wait for company.

    Any thread adds, but only one takes: who takes also sends, and batches must be sent in the order taken. No lock is
    needed, which each item would pay for: a list takes an item, or gives its first ones away, in one step.

    Args:
        max_items: items that make it full.
        max_bytes: bytes that make it full.
        max_item_bytes: the largest item that the bus takes.
        max_batch_bytes: the largest batch that the bus takes.
    """

    def __init__(self, max_items: int, max_bytes: int, max_item_bytes: int, max_batch_bytes: int) -> None:
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._max_item_bytes = max_item_bytes
        self._max_batch_bytes = max_batch_bytes
        self._items: list[bytes] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: bytes) -> bool:
        """Put one item in.

        Returns:
            True when it is full and must be taken now.

        Raises:
            Refused: the item is larger than the bus takes (``item_too_large``).
        """
        size = len(item)
        if size > self._max_item_bytes:
            check_size(size, self._max_item_bytes)
        self._items.append(item)
        self._bytes += size
        return len(self._items) >= self._max_items or self._bytes >= self._max_bytes

    def take(self) -> Iterator[list[bytes]]:
        """Empty it: the items in lists small enough for the bus, mostly one."""
        taken = self._items[:]
        del self._items[: len(taken)]
        # An item that is added just now may count for this batch or for none, which only makes a batch larger or
        # smaller by an item: the limit of the bus is kept by the true sizes.
        self._bytes = 0
        return cut(taken, self._max_batch_bytes)
