"""A batch of a reader: how large it may be, and how a program gets it."""

from xbus.broker.back.readers.calls import BatchCall
from xbus.broker.back.reading import event_map
from xbus.broker.journal.log.slices import Slice, SliceBounds
from xbus.broker.journal.readers import ReaderEntry, ReaderRange
from xbus.rpc.messages import ClaimedBatchMap


def batch_bounds(entry: ReaderEntry, call: BatchCall) -> SliceBounds:
    """Give the bounds of a batch: those of the reader, or smaller ones of the program."""
    return SliceBounds(
        min(call.max_items or entry.batch_items, entry.batch_items),
        min(call.max_bytes or entry.batch_bytes, entry.batch_bytes),
    )


def batch_map(entry: ReaderEntry, out: ReaderRange, found: Slice, *, is_repeated: bool) -> ClaimedBatchMap:
    """Make the answer that hands a batch out.

    Args:
        out: the range whose batch it is.
        found: its items.
        is_repeated: whether it was handed out before.
    """
    return {
        "range": out.id,
        "counter": out.counter,
        "from": [*out.batch_begin],
        "to": [*out.batch_end],
        "id": out.batch_id(entry.key),
        "repeated": is_repeated,
        "events": [event_map(event) for event in found.events],
    }
