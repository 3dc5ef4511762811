"""Makes Arrow batches of segments."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Protocol, TypeAlias
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from xbus.rpc.codec import unpack_items

BATCH_ITEMS = 10_000
"""A batch is full with so many items. From a thousand on more gain nothing, and Spark makes none larger by default."""

BATCH_BYTES = 4 * 1024 * 1024


class ReadSegment(Protocol):
    """A segment, and what all items of its event have in common."""

    @property
    def envelope_id(self) -> UUID: ...
    @property
    def event_id(self) -> UUID: ...
    @property
    def position(self) -> int: ...
    @property
    def emitter(self) -> str: ...
    @property
    def sealed_at(self) -> datetime: ...
    @property
    def first_index(self) -> int: ...
    @property
    def items(self) -> int: ...
    @property
    def data(self) -> bytes: ...


@dataclass(slots=True)
class _Run:
    """Segments that follow each other in one event: all columns but the data are made of them at once."""

    first: ReadSegment
    items: int

    def is_followed_by(self, segment: ReadSegment) -> bool:
        return segment.event_id == self.first.event_id and segment.first_index == self.first.first_index + self.items


def arrow_batches(segments: Iterable[ReadSegment], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The items of segments, in their order.

    Args:
        schema: some of the columns of ``columns.COLUMNS``.

    Raises:
        ProtocolError: a segment does not hold its items.
    """
    for gathered in _gather(segments):
        batch = _batch(gathered, schema)
        for start in range(0, batch.num_rows, BATCH_ITEMS):
            yield batch.slice(start, BATCH_ITEMS)


def _gather(segments: Iterable[ReadSegment]) -> Iterator[list[ReadSegment]]:
    gathered: list[ReadSegment] = []
    items = size = 0
    for segment in segments:
        if gathered and (items + segment.items > BATCH_ITEMS or size + len(segment.data) > BATCH_BYTES):
            yield gathered
            gathered, items, size = [], 0, 0
        gathered.append(segment)
        items += segment.items
        size += len(segment.data)
    if gathered:
        yield gathered


def _batch(segments: Sequence[ReadSegment], schema: pa.Schema) -> pa.RecordBatch:
    runs: list[_Run] = []
    for segment in segments:
        if runs and runs[-1].is_followed_by(segment):
            runs[-1].items += segment.items
        else:
            runs.append(_Run(segment, segment.items))
    arrays = [_data(segments) if name == "data" else _MAKERS[name](runs) for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _data(segments: Sequence[ReadSegment]) -> pa.Array:
    items: list[bytes] = []
    for segment in segments:
        items += unpack_items(segment.data, segment.items)
    return pa.array(items, pa.binary())


def _index(runs: Sequence[_Run]) -> pa.Array:
    return _joined([pc.add(_numbers(run.items), run.first.first_index) for run in runs])


def _numbers(end: int) -> pa.Array:
    """0, 1, 2 and so on, without ``end``."""
    return _power_of_two((end - 1).bit_length()).slice(0, end)


@cache
def _power_of_two(exponent: int) -> pa.Array:
    # Arrow counts no faster than Python does: what was counted once is kept, for the few lengths that there are.
    return pa.array(range(2**exponent), pa.int64())


def _same(kind: pa.DataType, value: Callable[[ReadSegment], Any]) -> "_Maker":
    """What makes a column that has one value for all items of an event."""

    def make(runs: Sequence[_Run]) -> pa.Array:
        return _joined([pa.repeat(pa.scalar(value(run.first), kind), run.items) for run in runs])

    return make


def _joined(arrays: Sequence[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


_Maker: TypeAlias = Callable[[Sequence[_Run]], pa.Array]

_MAKERS: Mapping[str, _Maker] = {
    "envelope_id": _same(pa.string(), lambda segment: str(segment.envelope_id)),
    "event_id": _same(pa.string(), lambda segment: str(segment.event_id)),
    "position": _same(pa.int64(), lambda segment: segment.position),
    "index": _index,
    "emitter": _same(pa.string(), lambda segment: segment.emitter),
    "sealed_at": _same(pa.timestamp("us", tz="UTC"), lambda segment: segment.sealed_at),
}
