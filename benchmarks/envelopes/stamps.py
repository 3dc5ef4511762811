"""Items that say when they were sent, so that the consumer's process can tell how long each took."""

from time import monotonic_ns

from benchmarks.items import ITEM_BYTES

_BEGIN, _MIDDLE, _END = b'{"sent": "', b'", "note": "', b'"}'
_DIGITS = slice(len(_BEGIN), len(_BEGIN) + 20)


def stamped(size: int = ITEM_BYTES) -> bytes:
    """Make an item of so many bytes that bears the time of the machine's monotonic clock."""
    text = _BEGIN + b"%020d" % monotonic_ns() + _MIDDLE
    return text + b"x" * (size - len(text) - len(_END)) + _END


def sent_ns(item: bytes) -> int | None:
    """Read when an item was sent, in nanoseconds; None for an item without a stamp."""
    return int(item[_DIGITS]) if item.startswith(_BEGIN) else None
