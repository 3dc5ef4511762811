"""Arrow batches as segments of the journal: what executors make of the items that they write. Pure but for Arrow."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

from spark_worker.items.columns import DATA, INDEX
from spark_worker.items.errors import BadOutput
from xbus.rpc.codec import bin_header
from xbus.rpc.items import ITEM_HEADER_BYTES

SEGMENT_BYTES = 512 * 1024
"""A segment that is written ends before it; a larger item goes alone."""

NO_INDEX = -1

USUAL_ITEM_BYTES = 64 * 1024
"""The headers of items up to this size are made once."""


@dataclass(frozen=True, slots=True)
class OutputLimits:
    """The limits of an output's items.

    Args:
        max_item_bytes: the largest item that the bus takes.
        items: how many items the event has: an item is made of one of these, or of none in particular.
    """

    max_item_bytes: int
    items: int


@dataclass(frozen=True, slots=True)
class NewSegment:
    """A segment that is to be written; ``sources`` as in ``model.bulk_segment``."""

    items: int
    data: bytes
    first_index: int
    sources: bytes | None


def pieces(
    made: Iterable[pa.RecordBatch], limits: OutputLimits, segment_bytes: int = SEGMENT_BYTES
) -> Iterator[NewSegment]:
    """Make segments from a partition of the output.

    Args:
        made: batches of ``_index`` and ``data``.
        limits: the limits of the items.
        segment_bytes: the most bytes of a segment, which has at least one item.

    Raises:
        BadOutput: a row can't be an item.
    """
    for batch in made:
        data, index = batch.column(DATA), batch.column(INDEX)
        if len(data) == 0:
            continue
        check_items(data, index, limits)
        sources = pc.fill_null(index, NO_INDEX)
        for start, end in _cut(data, segment_bytes):
            yield _piece(data.slice(start, end - start), sources.slice(start, end - start))


def _cut(data: pa.Array, segment_bytes: int) -> Iterator[tuple[int, int]]:
    """Find begin and end of the pieces of a batch: at most ``segment_bytes``, but at least one item."""
    offsets = memoryview(data.buffers()[1]).cast("i")[data.offset : data.offset + len(data) + 1]
    start = 0
    while start < len(data):
        most = offsets[start] + ITEM_HEADER_BYTES * start + segment_bytes
        places = range(start + 1, len(data) + 1)
        fitting = bisect_right(places, most, key=lambda place: offsets[place] + ITEM_HEADER_BYTES * place)
        end = start + max(1, fitting)
        yield start, end
        start = end


def check_items(data: pa.Array, index: pa.Array, limits: OutputLimits) -> None:
    """Let rows pass that can be items.

    Raises:
        BadOutput: one is null, or too large, or made of an item that the event does not have.
    """
    if data.null_count:
        place = index[pc.index(pc.is_null(data), True).as_py()].as_py()
        raise BadOutput(f"an item made by the transform is null{_of(place)}")
    largest = pc.max(pc.binary_length(data)).as_py()
    if largest + ITEM_HEADER_BYTES > limits.max_item_bytes:
        place = index[pc.index(pc.binary_length(data), largest).as_py()].as_py()
        raise BadOutput(
            f"an item made by the transform{_of(place)} takes {largest} bytes, more than the "
            f"{limits.max_item_bytes} of [front] max_item_bytes"
        )
    _check_index(index, limits.items)


def _check_index(index: pa.Array, items: int) -> None:
    """Check that rows come from existing items: others would blame the wrong item for a failure."""
    ends = pc.min_max(index)  # nulls, of rows made of no item in particular, are passed over
    if index.null_count == len(index) or 0 <= ends["min"].as_py() <= ends["max"].as_py() < items:
        return
    wrong = next(end for end in (ends["min"].as_py(), ends["max"].as_py()) if not 0 <= end < items)
    known = f"items 0 to {items - 1}" if items else "no items"
    raise BadOutput(
        f"an item made by the transform has the {INDEX} {wrong}, and the event has {known}: keep {INDEX} as it came, "
        "or set it to null where a row is made of no item in particular"
    )


def _of(place: int | None) -> str:
    return "" if place is None else f" (of item {place})"


def _piece(data: pa.Array, sources: pa.Array) -> NewSegment:
    first = sources[0].as_py()
    if first >= 0 and _follow_each_other(sources):
        return NewSegment(len(data), packed_items(data), first, None)
    begin = sources.offset * 8
    return NewSegment(len(data), packed_items(data), 0, sources.buffers()[1].slice(begin, len(data) * 8).to_pybytes())


def packed_items(data: pa.Array) -> bytes:
    """Pack items as ``codec.pack_items`` joins them, without an object for each."""
    lengths = pc.binary_length(data)
    known = _headers()
    if pc.max(lengths).as_py() < len(known):
        headers = known.take(lengths)
    else:
        headers = pa.array(map(bin_header, lengths.to_pylist()), pa.binary())
    bins: bytes = pc.binary_join_element_wise(headers, data, b"").buffers()[2].to_pybytes()
    return bins


@cache
def _headers() -> pa.Array:
    """Make the header of an item for each usual length."""
    return pa.array(map(bin_header, range(USUAL_ITEM_BYTES)), pa.binary())


def _follow_each_other(sources: pa.Array) -> bool:
    if len(sources) == 1:
        return True
    if sources[-1].as_py() - sources[0].as_py() != len(sources) - 1:
        return False
    return bool(pc.all(pc.equal(pc.subtract(sources.slice(1), sources.slice(0, len(sources) - 1)), 1)).as_py())
