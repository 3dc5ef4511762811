"""Segments to Arrow and back: what executors do with the bytes between the journal and Spark. Pure but for Arrow."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from spark_worker.columns import DATA, INDEX
from spark_worker.errors import BadOutput
from xbus.rpc.codec import pack_items, unpack_items
from xbus.rpc.items import ITEM_HEADER_BYTES, cut

SCHEMA = pa.schema([(INDEX, pa.int64()), (DATA, pa.binary())])

BATCH_ITEMS = 10_000
BATCH_BYTES = 4 * 1024 * 1024
"""A batch that goes to Spark ends at either."""

SEGMENT_BYTES = 512 * 1024
"""A segment that is written ends before it; a larger item goes alone."""

NO_INDEX = -1


class Items(Protocol):
    """A run of consecutive items, as the journal holds it."""

    @property
    def items(self) -> int: ...
    @property
    def data(self) -> bytes: ...
    @property
    def first_index(self) -> int: ...
    @property
    def sources(self) -> bytes | None: ...


@dataclass(frozen=True, slots=True)
class Limits:
    """What an item of an output may be.

    Args:
        max_item_bytes: the largest item that the bus takes.
        items: how many items the event has: an item is made of one of these, or of none in particular.
    """

    max_item_bytes: int
    items: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A segment that is to be written; ``sources`` as in ``model.bulk_segment``."""

    items: int
    data: bytes
    first_index: int
    sources: bytes | None


def batches(segments: Iterable[Items]) -> Iterator[pa.RecordBatch]:
    """Segments as batches of ``_index`` and ``data``; several small ones make one."""
    datas: list[bytes] = []
    indexes: list[pa.Array] = []
    size = 0
    for segment in segments:
        datas += unpack_items(segment.data, segment.items)
        indexes.append(indexes_of(segment))
        size += len(segment.data)
        if len(datas) >= BATCH_ITEMS or size >= BATCH_BYTES:
            yield _batch(indexes, datas)
            datas, indexes, size = [], [], 0
    if datas:
        yield _batch(indexes, datas)


def indexes_of(segment: Items) -> pa.Array:
    """For each item of a segment the index of the event's item that it was made of; null where it was of several."""
    if segment.sources is None:
        return pa.array(range(segment.first_index, segment.first_index + segment.items), pa.int64())
    sources = pa.Array.from_buffers(pa.int64(), segment.items, [None, pa.py_buffer(segment.sources)])
    return pc.if_else(pc.greater_equal(sources, 0), sources, pa.scalar(None, pa.int64()))


def _batch(indexes: list[pa.Array], datas: list[bytes]) -> pa.RecordBatch:
    index = indexes[0] if len(indexes) == 1 else pa.concat_arrays(indexes)
    return pa.RecordBatch.from_arrays([index, pa.array(datas, pa.binary())], schema=SCHEMA)


def pieces(made: Iterable[pa.RecordBatch], limits: Limits) -> Iterator[Piece]:
    """What a partition of the output is as segments.

    Args:
        made: batches of ``_index`` and ``data``.
        limits: what the items may be.

    Raises:
        BadOutput: a row can't be an item.
    """
    for batch in made:
        data, index = batch.column(DATA), batch.column(INDEX)
        if len(data) == 0:
            continue
        check_items(data, index, limits)
        sources = pc.fill_null(index, NO_INDEX)
        start = 0
        for datas in cut(data.to_pylist(), SEGMENT_BYTES):
            yield _piece(datas, sources.slice(start, len(datas)))
            start += len(datas)


def check_items(data: pa.Array, index: pa.Array, limits: Limits) -> None:
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
    """Let rows pass that are made of items that there are: by others a failure would be sought at the wrong item."""
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


def _piece(datas: list[bytes], sources: pa.Array) -> Piece:
    packed = pack_items(datas)
    first = sources[0].as_py()
    if first >= 0 and _follow_each_other(sources):
        return Piece(len(datas), packed, first, None)
    begin = sources.offset * 8
    return Piece(len(datas), packed, 0, sources.buffers()[1].slice(begin, len(datas) * 8).to_pybytes())


def _follow_each_other(sources: pa.Array) -> bool:
    if len(sources) == 1:
        return True
    if sources[-1].as_py() - sources[0].as_py() != len(sources) - 1:
        return False
    return bool(pc.all(pc.equal(pc.subtract(sources.slice(1), sources.slice(0, len(sources) - 1)), 1)).as_py())
