"""Gathers the items of one event into batches. Pure: no socket, no loop, no clock."""

import threading
from collections.abc import Iterator

from xbus.errors import ProtocolError, Refused
from xbus.rpc.codec import pack

ITEM_HEADER_BYTES = 5
"""The most that msgpack puts before the bytes of an item."""


def item_bytes(item: object) -> bytes:
    """The bytes of an item: those given, or the msgpack of any other value.

    Raises:
        Refused: msgpack has no way to write the value (``bad_items``).
    """
    if isinstance(item, bytes | bytearray | memoryview):
        return bytes(item)
    try:
        return pack(item)
    except ProtocolError as error:
        raise Refused(
            f"an item of type {type(item).__name__} can't be packed by msgpack",
            "send bytes, or numbers, texts, lists and maps of them",
            code="bad_items",
        ) from error


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


def cut(items: list[bytes], max_bytes: int) -> Iterator[list[bytes]]:
    """The items in order, in lists of at most ``max_bytes`` each; an item above that goes alone."""
    piece: list[bytes] = []
    size = 0
    for item in items:
        item_size = len(item) + ITEM_HEADER_BYTES
        if piece and size + item_size > max_bytes:
            yield piece
            piece, size = [], 0
        piece.append(item)
        size += item_size
    if piece:
        yield piece


class Batch:
    """The items of one event that wait for company.

    Any thread adds, but only one takes: who takes also sends, and batches must be sent in the order taken.

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
        self._lock = threading.Lock()

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
        with self._lock:
            items = self._items
            items.append(item)
            self._bytes += size
            return len(items) >= self._max_items or self._bytes >= self._max_bytes

    def take(self) -> Iterator[list[bytes]]:
        """Empty it: the items in lists small enough for the bus, mostly one."""
        with self._lock:
            items, self._items = self._items, []
            self._bytes = 0
        return cut(items, self._max_batch_bytes)
