"""Turns values into items, and items into batches, for emitters and workers."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import cast

from xbus.errors import ProtocolError, Refused
from xbus.rpc.codec import BAD_ITEMS, exact_packer, pack
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


def item_packer(hook: PackHook) -> Callable[[object], bytes]:
    """Make a function that does as ``item_bytes``, in a third of the time for most items."""
    exact = exact_packer()

    def packed(value: object) -> bytes:
        kind = type(value)
        if kind is bytes:
            return cast(bytes, value)
        if kind is dict or kind is list:
            try:
                return exact(value)
            except (TypeError, ValueError, OverflowError):
                return item_bytes(value, hook)
        return item_bytes(value, hook)

    return packed


def check_several(items: Iterable[object]) -> None:
    """Refuse one item in the place of several: its keys, letters or bytes would become the items.

    Raises:
        Refused: it is a map, a text or bytes (``bad_items``).
    """
    # Asked first, as the question for a map costs more than all the rest of a small put's checks.
    if type(items) is not list and isinstance(items, (Mapping, str, bytes, bytearray, memoryview)):
        raise Refused(
            f"the items are of the type {type(items).__name__}, which is one item, not several",
            "send a list of items, such as [item]",
            code=BAD_ITEMS,
        )


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
