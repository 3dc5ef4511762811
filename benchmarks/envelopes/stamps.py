"""Items that say when they were sent, so that the consumer's process can tell how long each took."""

from time import monotonic_ns

from benchmarks.items import ITEM_BYTES

_BEGIN, _MIDDLE, _END = b'{"sent": "', b'", "note": "', b'"}'
_MAP_BYTES = 50
"""The bytes of a map beside its note."""
_DIGITS = slice(len(_BEGIN), len(_BEGIN) + 20)


def stamped(size: int = ITEM_BYTES) -> bytes:
    """Make an item of so many bytes that bears the time of the machine's monotonic clock."""
    text = _BEGIN + b"%020d" % monotonic_ns() + _MIDDLE
    return text + b"x" * (size - len(text) - len(_END)) + _END


def stamped_map(size: int = ITEM_BYTES) -> dict[str, object]:
    """Make an item that is a map of about so many bytes, with the same time."""
    return {"sent": monotonic_ns(), "number": 4711, "total": 12.5, "note": "x" * (size - _MAP_BYTES)}


def sent_ns(item: bytes) -> int | None:
    """Read when an item of bytes was sent, in nanoseconds; None for an item without a stamp."""
    return int(item[_DIGITS]) if item.startswith(_BEGIN) else None
