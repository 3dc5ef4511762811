"""Segments of the journal as Arrow batches: what executors make of the bytes that they read. Pure but for Arrow."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from spark_worker.items.columns import DATA, INDEX
from xbus.rpc.codec import unpack_items

SCHEMA = pa.schema([(INDEX, pa.int64()), (DATA, pa.binary())])


@dataclass(frozen=True, slots=True)
class BatchSize:
    """The most items and bytes of a batch, which has at least one segment's part. Larger costs memory, smaller costs
    calls."""

    items: int = 10_000
    data_bytes: int = 4 * 1024 * 1024


BATCH_SIZE = BatchSize()
"""A batch that goes to Spark ends before either. From a thousand items on more gain nothing."""


class SegmentBytes(Protocol):
    """A run of consecutive items in the form of the journal."""

    @property
    def items(self) -> int: ...
    @property
    def data(self) -> bytes: ...


Held = TypeVar("Held", bound=SegmentBytes)


class Items(SegmentBytes, Protocol):
    """A segment of an event or an output."""

    @property
    def first_index(self) -> int: ...
    @property
    def sources(self) -> bytes | None: ...


def batches(segments: Iterable[Items], size: BatchSize = BATCH_SIZE) -> Iterator[pa.RecordBatch]:
    """Make batches of ``_index`` and ``data`` from segments; several small ones make one."""
    for gathered in gather(segments, size):
        indexes = [indexes_of(segment) for segment in gathered]
        batch = pa.RecordBatch.from_arrays([joined(indexes), data_of(gathered)], schema=SCHEMA)
        yield from sliced(batch, size)


def gather(segments: Iterable[Held], most: BatchSize) -> Iterator[list[Held]]:
    """Group segments in order into batches, at least one segment each."""
    gathered: list[Held] = []
    items = size = 0
    for segment in segments:
        if gathered and (items + segment.items > most.items or size + len(segment.data) > most.data_bytes):
            yield gathered
            gathered, items, size = [], 0, 0
        gathered.append(segment)
        items += segment.items
        size += len(segment.data)
    if gathered:
        yield gathered


def sliced(batch: pa.RecordBatch, size: BatchSize) -> Iterator[pa.RecordBatch]:
    """Cut a batch into parts: a single segment may have more items than a batch should."""
    for start in range(0, batch.num_rows, size.items):
        yield batch.slice(start, size.items)


def data_of(segments: Iterable[SegmentBytes]) -> pa.Array:
    """Collect the bytes of each item of some segments.

    Raises:
        ProtocolError: a segment does not hold its items.
    """
    items: list[bytes] = []
    for segment in segments:
        items += unpack_items(segment.data, segment.items)
    return pa.array(items, pa.binary())


def indexes_of(segment: Items) -> pa.Array:
    """Compute for each item the index of the item that it was made of; null for several."""
    if segment.sources is None:
        return consecutive(segment.first_index, segment.items)
    sources = pa.Array.from_buffers(pa.int64(), segment.items, [None, pa.py_buffer(segment.sources)])
    return pc.if_else(pc.greater_equal(sources, 0), sources, pa.scalar(None, pa.int64()))


def consecutive(first: int, length: int) -> pa.Array:
    """Make the numbers from ``first`` on, each one more than the last."""
    return pc.add(_power_of_two((length - 1).bit_length()).slice(0, length), first)


@cache
def _power_of_two(exponent: int) -> pa.Array:
    # Arrow counts no faster than Python does, so a count is kept once made, for the few lengths that occur.
    return pa.array(range(2**exponent), pa.int64())


def joined(arrays: Sequence[pa.Array]) -> pa.Array:
    """Join arrays one behind the other."""
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
