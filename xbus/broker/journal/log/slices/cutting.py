"""Cuts the data of segments between items, by their lengths, and replaces items; pure.

An item is a msgpack bin: a mark, the number of its bytes in one, two or four bytes, and these bytes. See
https://github.com/msgpack/msgpack/blob/master/spec.md#bin-format-family.
"""

from collections.abc import Mapping


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
