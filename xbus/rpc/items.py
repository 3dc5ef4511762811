"""Turns values into items, and items into batches, for emitters and workers."""

from collections.abc import Iterator

from xbus.errors import ProtocolError
from xbus.rpc.codec import pack
from xbus.rpc.values import PackHook, as_text, unpackable

ITEM_HEADER_BYTES = 5
"""The most that msgpack puts before the bytes of an item."""


def item_bytes(value: object, hook: PackHook = as_text) -> bytes:
    """Give the bytes of an item: those given, or the msgpack of any other value.

    Args:
        value: the item.
        hook: asked for the values that msgpack does not know; see ``hook_for``.

    Raises:
        Refused: the value can't be packed (``bad_items``); the cause says where in it.
    """
    if type(value) is bytes:
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    try:
        return pack(value, hook)
    except ProtocolError as error:
        raise unpackable(value, hook) from error


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
