"""Cuts a list of msgpack into its items, whose bytes stay as they are. Pure."""

from collections.abc import Iterator

import msgpack  # type: ignore[import-untyped]

from xbus.errors import Refused


def count_members(data: bytes) -> int:
    """Read how many members a list says that it has; 1 for anything else."""
    if not _is_list(data):
        return 1
    width = {0xDC: 2, 0xDD: 4}.get(data[0])
    return data[0] & 0x0F if width is None else int.from_bytes(data[1 : 1 + width], "big")


def packed_items(data: bytes) -> list[bytes]:
    """Cut a list into its members; anything else is one item.

    Raises:
        Refused: the data is not one value of msgpack (``bad_body``).
    """
    unpacker = msgpack.Unpacker(max_buffer_size=len(data) or 1)
    unpacker.feed(data)
    try:
        members = unpacker.read_array_header() if _is_list(data) else 1
        if members > len(data):
            raise ValueError("the list ends too early")
        items = [*_cut(unpacker, data, members)]
    except (ValueError, msgpack.UnpackException) as error:
        raise _bad(f"{error!r:.80}") from None
    if unpacker.tell() != len(data):
        raise _bad("more stands behind the first value")
    return items


def _cut(unpacker: msgpack.Unpacker, data: bytes, members: int) -> Iterator[bytes]:
    start = unpacker.tell()
    for _ in range(members):
        unpacker.skip()
        yield data[start : unpacker.tell()]
        start = unpacker.tell()


def _is_list(data: bytes) -> bool:
    """Look at the first byte, by the specification of msgpack."""
    return bool(data) and (0x90 <= data[0] <= 0x9F or data[0] in (0xDC, 0xDD))


def _bad(reason: str) -> Refused:
    return Refused(f"the body is no msgpack ({reason})", "send one value: an item, or a list of items", code="bad_body")
