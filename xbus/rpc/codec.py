"""msgpack: values of the wire to bytes and back, and the packed items of a segment.

Text and bytes are distinct (``use_bin_type``, ``raw=False``). The extension types 123 to 127 of old peers are pickles,
whose unpickling runs code of the sender: extensions are refused unopened, all but msgpack's own timestamp, which is
plain data. Each value that is made costs some 60 bytes, however few the sender needs for it, and msgpack reserves room
for as many as an array declares, at each level: so the values are counted before any is made.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import NoReturn, TypeAlias, cast

import msgpack  # type: ignore[import-untyped]

from xbus.errors import ProtocolError

EXTENSION_REFUSED = "extension_refused"
TOO_MANY_VALUES = "too_many_values"
BAD_ITEMS = "bad_items"
BAD_TEXT = "bad_text"
DOUBLED_NAME = "doubled_name"

Key: TypeAlias = bool | int | float | str | bytes | None
Value: TypeAlias = bool | int | float | str | bytes | list["Value"] | dict[Key, "Value"] | None
"""A value of the wire as ``unpack`` makes it. msgpack's own timestamp, which nothing of the bus reads, is left out.

Values that go out are typed ``object``, as callers bring what they like: ``pack`` checks them.
"""


class Pieces:
    """Bytes in several pieces: whoever sends them puts one behind the other, and nobody copies them before.

    Args:
        pieces: in their order.
    """

    __slots__ = ("_length", "pieces")

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces
        self._length = sum(map(len, pieces))

    def __len__(self) -> int:
        return self._length

    def __bytes__(self) -> bytes:
        return b"".join(self.pieces)


Frame: TypeAlias = bytes | Pieces
"""A frame that is sent."""

MOST_VALUES = 100_000
"""The most values of one message, those in lists and maps included. Items are one value, as they go packed."""

_UNCOUNTED_BYTES = 512
"""Up to this size data is not counted: all that it can declare takes less than 1 MB, and counting takes longer."""

_LONGEST_FIRST = 1024
"""Bytes in which the first text is looked for."""

_SHORT_BIN = 0xC4
SHORT_BIN = bytes((_SHORT_BIN,))
"""Begins an item of less than 256 bytes; its length follows."""

_BIN_HEADERS = {_SHORT_BIN: 2, 0xC5: 3, 0xC6: 5}
"""The size of the header of an item, by its first byte."""

_SHORT_HEADERS = [bytes((_SHORT_BIN, length)) for length in range(2**8)]
"""The headers of such items, by their length."""

_WALKED_BYTES = 4096
"""From this average size on, a look at an item's header costs less than a copy of the item."""

_PIECE_BYTES = 64 * 1024
"""From this size on an argument is a piece of its own rather than packed with the others. A smaller one costs less to
copy than to keep apart."""

_SHORT_ARRAY = 0x90
_MOST_SHORT_ARRAY = 15

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
        packed: bytes = msgpack.packb(value, default=default, use_bin_type=True)
        return packed
    except (TypeError, ValueError, OverflowError) as error:
        raise _bad_value(error) from error


def _bad_value(error: Exception) -> ProtocolError:
    return ProtocolError(f"a value can't be sent: {error}", code="bad_value")


KEPT_BYTES = 64 * 1024
"""A buffer of a packer that has grown beyond this is dropped."""


class KeptPacker:
    """Packs as ``pack`` does, in a third of the time, as it keeps its buffer; for one thread.

    Attributes:
        pack: packs a value. It raises ``TypeError``, ``ValueError`` or ``OverflowError`` for one that can't be packed.
    """

    def __init__(self) -> None:
        self.pack = self._make()

    @staticmethod
    def _make() -> Callable[[object], bytes]:
        return cast("Callable[[object], bytes]", msgpack.Packer(use_bin_type=True).pack)

    def packed(self, data: Frame) -> None:
        """Drop the buffer if it has grown for these bytes. Pieces were joined without it."""
        if type(data) is bytes and len(data) > KEPT_BYTES:
            self.pack = self._make()


def exact_packer() -> Callable[[object], bytes]:
    """Make a function that packs as ``pack`` does, in a third of the time: it keeps its buffer.

    It takes None, bool, int, float, str, bytes, and lists and dicts of these, and none of their subclasses. So it calls
    no Python code amid a value, and several threads may use it. It raises ``TypeError``, ``ValueError`` or
    ``OverflowError`` for another value.
    """
    return cast("Callable[[object], bytes]", msgpack.Packer(use_bin_type=True, strict_types=True).pack)


def unpack(data: bytes, most_values: int | None = None) -> Value:
    """Decode one value; arrays become lists.

    Args:
        most_values: the most values that it may consist of, and no map has a name twice; None for anything.

    Raises:
        ProtocolError: ``data`` is not one msgpack value, or has too many values in it (``too_many_values``); the code
            is ``EXTENSION_REFUSED`` if it contains an extension, ``BAD_TEXT`` if a text is not UTF-8, and
            ``DOUBLED_NAME`` if a map has a name twice.
    """
    if most_values is not None and len(data) > _UNCOUNTED_BYTES and not (len(data) <= most_values and _is_whole(data)):
        check_values(data, most_values)
    make_map = None if most_values is None else _map_of
    try:
        value: Value = msgpack.unpackb(
            data, raw=False, strict_map_key=False, ext_hook=_refuse_extension, object_pairs_hook=make_map
        )
        return value
    except UnicodeDecodeError as error:
        raise ProtocolError("a text is not UTF-8", "send other bytes as msgpack bin", code=BAD_TEXT) from error
    except (ValueError, TypeError, RecursionError) as error:
        raise ProtocolError(f"{len(data)} bytes are not a msgpack value: {error!r:.100}") from error


def _is_whole(data: bytes) -> bool:
    """Check whether all is there that a value declares. Each value takes a byte at least: so there are no more values
    than bytes, and msgpack, which makes none of them here, counts faster."""
    unpacker = msgpack.Unpacker(max_buffer_size=len(data))
    unpacker.feed(data)
    try:
        unpacker.skip()
    except (ValueError, msgpack.UnpackException):
        return False
    return True


def _map_of(pairs: list[tuple[Key, Value]]) -> dict[Key, Value]:
    """Make a map of its pairs: of two with one name, the first would be lost."""
    if len(made := dict(pairs)) < len(pairs):
        raise ProtocolError("a map has a name twice", "give each name once", code=DOUBLED_NAME)
    return made


def _refuse_extension(extension: int, _: bytes) -> NoReturn:
    raise ProtocolError(
        f"the value contains msgpack extension type {extension}",
        "send dates and times as text in ISO 8601",
        code=EXTENSION_REFUSED,
    )


def check_values(data: bytes, most: int) -> None:
    """Count the values of msgpack by its bytes, without making any; data that ends too early passes.

    Raises:
        ProtocolError: there are more than ``most``, or lists and maps declare more (``too_many_values``).
    """
    place, counted, awaited = 0, 0, 1
    while awaited and place < len(data):
        first = data[place]
        counted += 1
        if size := _SIZES[first]:
            place += size
            awaited += _MEMBERS[first] - 1
        else:
            width, more, members = _MEASURED[first]
            length = int.from_bytes(data[place + 1 : place + 1 + width], "big")
            place += 1 + width + (more if members else more + length)
            awaited += members * length - 1
        if counted + awaited > most:
            raise ProtocolError(
                f"a message of {len(data)} bytes has more than {most:,} values",
                "send items packed, each as bytes",
                code=TOO_MANY_VALUES,
            )


def first_text(data: bytes, key: str | None = None) -> str:
    """Read the first member of a list, or the first value of a map, without decoding the others.

    Args:
        key: the first key of the map; None for a list.

    Returns:
        The text; empty where something else is there.
    """
    unpacker = msgpack.Unpacker(max_str_len=_LONGEST_FIRST, max_bin_len=0, max_array_len=0, max_map_len=0)
    unpacker.feed(data[:_LONGEST_FIRST])
    try:
        if key is None:
            unpacker.read_array_header()
        elif not unpacker.read_map_header() or unpacker.unpack() != key:
            return ""
        found = unpacker.unpack()
    except (ValueError, msgpack.UnpackException):
        return ""
    return found if isinstance(found, str) else ""


# The tables follow msgpack's specification, https://github.com/msgpack/msgpack/blob/master/spec.md.

_MEASURED = (
    {0xC4: (1, 0, 0), 0xC5: (2, 0, 0), 0xC6: (4, 0, 0)}  # bin
    | {0xC7: (1, 1, 0), 0xC8: (2, 1, 0), 0xC9: (4, 1, 0)}  # ext, with its type
    | {0xD9: (1, 0, 0), 0xDA: (2, 0, 0), 0xDB: (4, 0, 0)}  # str
    | {0xDC: (2, 0, 1), 0xDD: (4, 0, 1), 0xDE: (2, 0, 2), 0xDF: (4, 0, 2)}  # array, map
)
"""The values with a length of their own, by the first byte: how many bytes the length has, and how many stand behind
it; then how many values each one of the length means, or 0 where it counts bytes."""

_FIXED = (
    {0xA0 + length: 1 + length for length in range(32)}  # fixstr
    | {0xCA: 5, 0xCB: 9}  # float
    | {0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9, 0xD0: 2, 0xD1: 3, 0xD2: 5, 0xD3: 9}  # uint, int
    | {0xD4: 3, 0xD5: 4, 0xD6: 6, 0xD7: 10, 0xD8: 18}  # fixext
)

_SIZES = bytes(0 if first in _MEASURED else _FIXED.get(first, 1) for first in range(256))
"""The bytes of any other value, by its first one; of a short map or array those before its members."""

_MEMBERS = bytes(
    2 * (first - 0x80) if 0x80 <= first < 0x90 else first - 0x90 if 0x90 <= first < 0xA0 else 0 for first in range(256)
)
"""The number of values in a short map or array, by its first byte."""


def pack_items(items: Sequence[bytes]) -> bytes:
    """Join items in the form of a segment: each a msgpack bin, one behind the other, no array header.

    Raises:
        ProtocolError: an item is not bytes.
    """
    if len(items) == 1 and type(items[0]) is bytes:  # the usual envelope has one, and a packer costs ten times as much
        item = items[0]
        return (_SHORT_HEADERS[len(item)] if len(item) < 2**8 else bin_header(len(item))) + item
    _check_bytes(items)
    if sum(map(len, items)) >= len(items) * _WALKED_BYTES:
        return b"".join(chain.from_iterable((bin_header(len(item)), item) for item in items))
    return pack(items)[_array_header_bytes(len(items)) :]


def pack_item(item: bytes) -> bytes:
    """Write one item in the form of a segment."""
    return bin_header(len(item)) + item


def item_pieces(items: Sequence[bytes]) -> Frame:
    """Join items as ``pack_items`` does, but copy no large ones.

    Raises:
        ProtocolError: an item is not bytes (``bad_items``).
    """
    if sum(map(len, items)) < len(items) * _PIECE_BYTES:
        return pack_items(items)
    _check_bytes(items)
    return Pieces([piece for item in items for piece in (bin_header(len(item)), item)])


def _check_bytes(items: Sequence[bytes]) -> None:
    if not set(map(type, items)) <= {bytes}:
        raise ProtocolError("an item is not bytes", code=BAD_ITEMS)


def pack_arguments(args: tuple[object, ...], encode: Callable[[object], bytes] = pack) -> Frame:
    """Encode the arguments of a call. Large bytes among them stay pieces.

    Args:
        encode: as ``pack``; it may raise the errors of ``KeptPacker.pack``.

    Raises:
        ProtocolError: an argument can't be encoded.
    """
    for argument in args if len(args) <= _MOST_SHORT_ARRAY else ():
        if type(argument) is Pieces or (type(argument) is bytes and len(argument) >= _PIECE_BYTES):
            break
    else:
        try:
            return encode(args)
        except (TypeError, ValueError, OverflowError) as error:
            raise _bad_value(error) from error
    pieces: list[bytes] = []
    small = bytes([_SHORT_ARRAY | len(args)])
    for each in args:
        if type(each) is Pieces or (type(each) is bytes and len(each) >= _PIECE_BYTES):
            pieces += (small + bin_header(len(each)), *(each.pieces if isinstance(each, Pieces) else (each,)))
            small = b""
        else:
            small += pack(each)
    return Pieces([*pieces, small] if small else pieces)


def bin_header(length: int) -> bytes:
    """Make the header before the bytes of an item in a segment: the shortest bin header of msgpack."""
    if length < 2**8:
        return _SHORT_HEADERS[length]
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
    if _are_large(data, items):
        return [data[begin:end] for begin, end in _large_items(data, items)]
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
    if _are_large(data, items):
        return max(end - begin for begin, end in _large_items(data, items))
    return max(map(len, unpack_items(data, items)))


def _are_large(data: bytes, items: int) -> bool:
    return 0 < items * _WALKED_BYTES <= len(data)


def _large_items(data: bytes, items: int) -> Iterator[tuple[int, int]]:
    """Find where large items begin and end: msgpack would copy the whole segment, and then each of them."""
    place = 0
    for _ in range(items):
        header = _BIN_HEADERS.get(data[place] if place < len(data) else 0)
        if header is None:
            raise _bad_items(data, items)
        begin = place + header
        place = begin + int.from_bytes(data[place + 1 : begin], "big")
        yield begin, place
    if place != len(data):
        raise _bad_items(data, items)


def _bad_items(data: bytes, items: int) -> ProtocolError:
    return ProtocolError(
        f"{len(data)} bytes are not {items} items",
        "send each item as one msgpack bin, one behind the other, and their number beside them",
        code=BAD_ITEMS,
    )
