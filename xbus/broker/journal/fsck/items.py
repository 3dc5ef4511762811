"""Walks the items of a segment by their lengths; nobody opens an item. Pure.

An item is a msgpack bin: a mark, the number of its bytes in one, two or four bytes, and these bytes. See
https://github.com/msgpack/msgpack/blob/master/spec.md#bin-format-family.
"""

LENGTH_BYTES = {0xC4: 1, 0xC5: 2, 0xC6: 4}
"""The number of bytes of length that follow a mark."""


def has_items(data: bytes, items: int) -> bool:
    """Check whether data is exactly so many items, one after the other.

    Example:
        >>> has_items(b"\\xc4\\x01a\\xc4\\x00", 2)
        True
    """
    place = 0
    for _ in range(items):
        width = LENGTH_BYTES.get(data[place]) if place < len(data) else None
        if width is None:
            return False
        start = place + 1 + width
        place = start + int.from_bytes(data[place + 1 : start], "big")
    return place == len(data) and items >= 0
