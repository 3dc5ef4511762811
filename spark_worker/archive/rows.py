"""Rows of an archive's files: an item each, with what is needed to make the very segments again."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import pyarrow as pa

from spark_worker.items.headers import HEADERS, header_pairs
from xbus.broker.journal.archive.plans import PlannedEvent
from xbus.broker.journal.log.segments import SegmentRow
from xbus.rpc.codec import pack_items, unpack_items

NEWER_COLUMNS = ("headers", "partition_key")
"""Columns that older files lack: their events have none."""

ITEM_COLUMNS = ("envelope_id", "event_id", "position", "index", "emitter", "sealed_at", "data", *NEWER_COLUMNS)
"""Columns that readers want, with the names and types of the data source."""

SCHEMA = pa.schema(
    [
        ("envelope_id", pa.string()),
        ("event_id", pa.string()),
        ("position", pa.int64()),
        ("index", pa.int64()),
        ("emitter", pa.string()),
        ("sealed_at", pa.timestamp("us", tz="UTC")),
        ("data", pa.binary()),
        # Only at the first item of each segment: the number of its items, their indices if these don't simply follow
        # each other, and its bytes if the items in their shortest form don't give them again.
        ("segment_items", pa.int32()),
        ("segment_indices", pa.string()),
        ("segment_data", pa.binary()),
        ("headers", HEADERS),
        ("partition_key", pa.string()),
    ]
)


def segment_rows(event: PlannedEvent, segment: SegmentRow) -> pa.RecordBatch:
    """Make the rows of one segment."""
    items = unpack_items(segment.data, segment.items)
    count = len(items)
    empty = [None] * (count - 1)
    exact = None if pack_items(items) == segment.data else segment.data
    indices = None if segment.indices is None else json.dumps(segment.indices)
    columns: list[Any] = [
        [str(event.envelope_id)] * count,
        [str(event.event_id)] * count,
        [event.position] * count,
        range(segment.first_index, segment.first_index + count),
        [event.emitter] * count,
        [event.sealed_at] * count,
        items,
        [count, *empty],
        [indices, *empty],
        [exact, *empty],
        [header_pairs(event.envelope_headers, event.tags.headers)] * count,
        [event.tags.partition_key] * count,
    ]
    arrays = [pa.array(column, type=field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def rebuilt(rows: pa.Table) -> Iterator[SegmentRow]:
    """Make the segments of some rows again; a table has whole segments."""
    columns = {name: rows.column(name).to_pylist() for name in rows.column_names}
    items: Sequence[bytes] = columns["data"]
    counts = columns["segment_items"]
    first = 0
    while first < len(items):
        count = counts[first]
        exact, indices = columns["segment_data"][first], columns["segment_indices"][first]
        data = pack_items(items[first : first + count]) if exact is None else exact
        yield SegmentRow(
            UUID(columns["event_id"][first]),
            columns["index"][first],
            count,
            data,
            hashlib.sha256(data).digest(),
            None if indices is None else json.loads(indices),
        )
        first += count


SEGMENT_COLUMNS = ("event_id", "index", "data", "segment_items", "segment_indices", "segment_data")
"""Columns that ``rebuilt`` needs."""
