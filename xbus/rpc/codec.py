"""msgpack: values of the wire to bytes and back, and the packed items of a segment.

Text and bytes are distinct (``use_bin_type``, ``raw=False``). The extension types 123 to 127 of old peers are pickles,
whose unpickling runs code of the sender: extensions are refused unopened, all but msgpack's own timestamp, which is
plain data. What a value may cost is bounded by the size of its frame, which the sockets limit: msgpack makes no array
longer than the bytes it has.
"""

import struct
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeAlias, cast

import msgpack  # type: ignore[import-untyped]

from xbus.errors import ProtocolError

EXTENSION_REFUSED = "extension_refused"
BAD_ITEMS = "bad_items"

Key: TypeAlias = bool | int | float | str | bytes | None
Value: TypeAlias = bool | int | float | str | bytes | list["Value"] | dict[Key, "Value"] | None
"""A value of the wire as ``unpack`` makes it. msgpack's own timestamp, which nothing of the bus reads, is left out.

Values that go out are typed ``object``, as callers bring what they like: ``pack`` checks them.
"""

_BIN_LENGTHS = {0xC4: 2, 0xC5: 3, 0xC6: 5}
"""The size of a bin's header, by its first byte."""

_WALKED_BYTES = 4096
"""From this average size on, a look at an item's header costs less than a copy of the item."""

_ARRAY_32 = struct.Struct(">BI")
_ARRAY_32_MARK = 0xDD


def pack(value: object, default: Callable[[object], object] | None = None) -> bytes:
    """Encode None, bool, int, float, str, bytes, and lists, tuples and dicts of these.

    Args:
        default: asked for each value that is something else; it gives one to encode in its place.

    Raises:
        ProtocolError: ``value`` contains something else, or an integer of more than 64 bits.
    """
    try:
        return cast(bytes, msgpack.packb(value, default=default, use_bin_type=True))
    except (TypeError, ValueError, OverflowError) as error:
        raise ProtocolError(f"a value can't be sent: {error}", code="bad_value") from error


def unpack(data: bytes) -> Value:
    """Decode one value; arrays become lists.

    Raises:
        ProtocolError: ``data`` is not one msgpack value; the code is ``EXTENSION_REFUSED`` if it contains an extension.
    """
    try:
        value: Value = msgpack.unpackb(data, raw=False, strict_map_key=False, ext_hook=_refuse_extension)
        return value
    except (ValueError, TypeError, RecursionError) as error:
        raise ProtocolError(f"{len(data)} bytes are not a msgpack value: {error!r:.100}") from error


def _refuse_extension(extension: int, _: bytes) -> NoReturn:
    raise ProtocolError(
        f"the value contains msgpack extension type {extension}",
        "send dates and times as text in ISO 8601",
        code=EXTENSION_REFUSED,
    )


def pack_items(items: Sequence[bytes]) -> bytes:
    """Join items in the form of a segment: each a msgpack bin, one behind the other, no array header.

    Raises:
        ProtocolError: an item is not bytes.
    """
    if not set(map(type, items)) <= {bytes}:
        raise ProtocolError("an item is not bytes", code=BAD_ITEMS)
    return pack(items)[_array_header_bytes(len(items)) :]


def bin_header(length: int) -> bytes:
    """Make the header before the bytes of an item in a segment: the shortest bin header of msgpack."""
    if length < 2**8:
        return b"\xc4" + length.to_bytes(1, "big")
    return b"\xc5" + length.to_bytes(2, "big") if length < 2**16 else b"\xc6" + length.to_bytes(4, "big")


def _array_header_bytes(length: int) -> int:
    """Compute the size of msgpack's header of an array: its shortest form, by the specification."""
    if length < 16:
        return 1
    return 3 if length < 65536 else 5


def unpack_items(data: bytes, items: int) -> list[bytes]:
    """Take the items out of a segment; a Python list of ``items`` bytes objects.

    Raises:
        ProtocolError: ``data`` is not exactly that many msgpack bins.
    """
    if not 0 <= items <= len(data):
        raise _bad_items(data, items)
    try:
        # An array header before the bins makes msgpack walk them all in one call.
        found: list[bytes] = msgpack.unpackb(
            _ARRAY_32.pack(_ARRAY_32_MARK, items) + data, max_str_len=0, max_map_len=0, max_ext_len=0
        )
    except (ValueError, TypeError) as error:
        raise _bad_items(data, items) from error
    if not set(map(type, found)) <= {bytes}:
        raise _bad_items(data, items)
    return found


def largest_item(data: bytes, items: int) -> int:
    """The size of the largest of the items of a segment, at least one, without its header.

    Raises:
        ProtocolError: ``data`` is not exactly that many msgpack bins.
    """
    if not 0 < items <= len(data):
        raise _bad_items(data, items)
    if len(data) < items * _WALKED_BYTES:
        return max(map(len, unpack_items(data, items)))
    # Large items are not taken out, as that would copy each of them twice.
    place = largest = 0
    for _ in range(items):
        header = _BIN_LENGTHS.get(data[place] if place < len(data) else 0)
        if header is None:
            raise _bad_items(data, items)
        size = int.from_bytes(data[place + 1 : place + header], "big")
        largest = max(largest, size)
        place += header + size
    if place != len(data):
        raise _bad_items(data, items)
    return largest


def _bad_items(data: bytes, items: int) -> ProtocolError:
    return ProtocolError(
        f"{len(data)} bytes are not {items} items",
        "send each item as one msgpack bin, one behind the other, and their number beside them",
        code=BAD_ITEMS,
    )
