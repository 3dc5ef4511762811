"""Items that say when they were sent, so that the consumer's process can tell how long each took."""

from time import monotonic_ns

from benchmarks.items import ITEM_BYTES

_BEGIN = b'{"sent": '
_DIGITS = 20
_END = len(_BEGIN) + _DIGITS


def stamped(size: int = ITEM_BYTES) -> bytes:
    """Make an item of so many bytes that bears the time of the machine's monotonic clock."""
    return _BEGIN + b"%020d" % monotonic_ns() + b', "note": "' + b"x" * (size - _END - 13) + b'"}'


def sent_ns(item: bytes) -> int | None:
    """Read when an item was sent, in nanoseconds; None for an item without a stamp."""
    return int(item[len(_BEGIN) : _END]) if item.startswith(_BEGIN) else None
