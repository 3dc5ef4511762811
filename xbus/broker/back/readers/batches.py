"""A batch of a reader: how large it may be, and how a program gets it."""

from dataclasses import replace

from xbus.broker.back.log import LogSlices
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


async def read_owed(slices: LogSlices, entry: ReaderEntry, current: ReaderRange, bounds: SliceBounds) -> Slice:
    """Read the next items of a range, or those of its batch, without events that the reader does not get."""
    found = await slices.read(entry.read_types, current.stretches, bounds)
    if not entry.spans:
        return found
    owed = [each for each in found.events if entry.gets(each.facts.type_name, each.facts.position)]
    return replace(found, events=tuple(owed))


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
