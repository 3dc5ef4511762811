"""Turns values into items, and items into batches, for emitters and workers."""

from collections.abc import Iterator

from xbus.errors import ProtocolError, Refused
from xbus.rpc.codec import pack

ITEM_HEADER_BYTES = 5
"""The most that msgpack puts before the bytes of an item."""


def item_bytes(value: object) -> bytes:
    """Give the bytes of an item: those given, or the msgpack of any other value.

    Raises:
        Refused: msgpack has no way to write the value (``bad_items``).
    """
    if type(value) is bytes:
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    try:
        return pack(value)
    except ProtocolError as error:
        raise Refused(
            f"an item of type {type(value).__name__} can't be packed by msgpack",
            "make it bytes, or of numbers, texts, lists and maps",
            code="bad_items",
        ) from error


def cut(items: list[bytes], max_bytes: int) -> Iterator[list[bytes]]:
    """Iterate over the items in order, in lists of at most ``max_bytes`` each; a larger item goes alone."""
    if sum(map(len, items)) + ITEM_HEADER_BYTES * len(items) <= max_bytes:
        if items:
            yield items
        return
    piece: list[bytes] = []
    size = 0
    for item in items:
        item_size = len(item) + ITEM_HEADER_BYTES
        if piece and size + item_size > max_bytes:
            yield piece
            piece, size = [], 0
        piece.append(item)
        size += item_size
    yield piece
