"""Makes Arrow batches of segments."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import pyarrow as pa

from spark_worker.items.batches import BATCH_SIZE, BatchSize, consecutive, data_of, gather, joined, sliced
from spark_worker.items.headers import HEADERS, header_pairs
from xbus.broker.journal.bulk.segment_reader import LoggedSegment

KEPT_COLUMNS = 16
"""So many columns of one value each are kept for the batches that follow."""


@dataclass(slots=True)
class _Run:
    """Segments that follow each other in one event: all columns but the data are made of them at once."""

    first: LoggedSegment
    items: int

    def is_followed_by(self, segment: LoggedSegment) -> bool:
        return segment.event_id == self.first.event_id and segment.first_index == self.first.first_index + self.items


def arrow_batches(
    segments: Iterable[LoggedSegment], schema: pa.Schema, size: BatchSize = BATCH_SIZE
) -> Iterator[pa.RecordBatch]:
    """Make batches of the items of segments, in their order.

    Args:
        schema: some of the columns of ``columns.COLUMNS``.

    Raises:
        ProtocolError: a segment does not hold its items.
    """
    for gathered in gather(segments, size):
        yield from sliced(_batch(gathered, schema), size)


def _batch(segments: Sequence[LoggedSegment], schema: pa.Schema) -> pa.RecordBatch:
    runs: list[_Run] = []
    for segment in segments:
        if runs and runs[-1].is_followed_by(segment):
            runs[-1].items += segment.items
        else:
            runs.append(_Run(segment, segment.items))
    arrays = [data_of(segments) if name == "data" else _MAKERS[name](runs) for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _index(runs: Sequence[_Run]) -> pa.Array:
    return joined([consecutive(run.first.first_index, run.items) for run in runs])


def _same(kind: pa.DataType, value: Callable[[LoggedSegment], Any]) -> "_Maker":
    """Choose the maker of a column with one value for all items of an event."""

    def make(runs: Sequence[_Run]) -> pa.Array:
        return joined([_repeated(kind, value(run.first), run.items) for run in runs])

    return make


def _repeated(kind: pa.DataType, value: Any, length: int) -> pa.Array:
    return _power_of_two_times(kind, value, (length - 1).bit_length()).slice(0, length)


@lru_cache(maxsize=KEPT_COLUMNS)
def _power_of_two_times(kind: pa.DataType, value: Any, exponent: int) -> pa.Array:
    # An event of many batches has the same value in all of them, and to write it so often takes as long as its data.
    return pa.repeat(pa.scalar(value, kind), 2**exponent)


_Maker: TypeAlias = Callable[[Sequence[_Run]], pa.Array]

_MAKERS: Mapping[str, _Maker] = {
    "envelope_id": _same(pa.string(), lambda segment: str(segment.envelope_id)),
    "event_id": _same(pa.string(), lambda segment: str(segment.event_id)),
    "position": _same(pa.int64(), lambda segment: segment.position),
    "index": _index,
    "emitter": _same(pa.string(), lambda segment: segment.emitter),
    "sealed_at": _same(pa.timestamp("us", tz="UTC"), lambda segment: segment.sealed_at),
    "headers": _same(HEADERS, lambda segment: header_pairs(segment.envelope_headers, segment.tags.headers)),
    "partition_key": _same(pa.string(), lambda segment: segment.tags.partition_key),
}
