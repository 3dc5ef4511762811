"""Segments become Arrow batches."""

from datetime import UTC, datetime
from uuid import UUID

import pyarrow as pa
import pytest

from spark_worker.items.batches import BatchSize
from spark_worker.source.arrow import arrow_batches
from xbus.broker.journal.bulk.segment_reader import LoggedSegment
from xbus.errors import ProtocolError
from xbus.rpc.codec import pack_items

AT = datetime(2020, 2, 29, 12, 0, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("envelope_id", pa.string()),
        ("event_id", pa.string()),
        ("position", pa.int64()),
        ("index", pa.int64()),
        ("emitter", pa.string()),
        ("sealed_at", pa.timestamp("us", tz="UTC")),
        ("data", pa.binary()),
    ]
)


def segment(event: int, first_index: int, items: list[bytes]) -> LoggedSegment:
    return LoggedSegment(UUID(int=9), UUID(int=event), event, "north", AT, first_index, len(items), pack_items(items))


SEGMENTS = [
    segment(1, 0, [b"a", b"bb"]),
    segment(1, 2, [b""]),
    segment(2, 0, [b"c" * 300]),
    segment(2, 7, [b"d", b"e"]),
]
ROWS = [(1, 0, b"a"), (1, 1, b"bb"), (1, 2, b""), (2, 0, b"c" * 300), (2, 7, b"d"), (2, 8, b"e")]


@pytest.mark.parametrize("most", [1, 2, 3, 10_000])
def test_each_item_becomes_a_row(most: int) -> None:
    batches = list(arrow_batches(SEGMENTS, SCHEMA, BatchSize(items=most)))
    assert all(batch.schema.equals(SCHEMA) and 0 < batch.num_rows <= most for batch in batches)
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [(row["position"], row["index"], row["data"]) for row in rows] == ROWS
    assert {row["envelope_id"] for row in rows} == {str(UUID(int=9))}
    assert [row["event_id"] for row in rows] == [str(UUID(int=position)) for position, _, _ in ROWS]
    assert {(row["emitter"], row["sealed_at"]) for row in rows} == {("north", AT)}


def test_batches_are_bounded_in_bytes() -> None:
    size = BatchSize(data_bytes=10)
    assert [batch.num_rows for batch in arrow_batches(SEGMENTS, SCHEMA, size)] == [3, 1, 2]


def test_only_the_columns_of_the_schema_are_made() -> None:
    (batch,) = arrow_batches(SEGMENTS, pa.schema([("index", pa.int64()), ("emitter", pa.string())]))
    assert batch.column_names == ["index", "emitter"]
    assert batch.column("index").to_pylist() == [0, 1, 2, 0, 7, 8]


def test_no_segments_are_no_batches() -> None:
    assert list(arrow_batches([], SCHEMA)) == []


def test_a_broken_segment_is_told() -> None:
    broken = LoggedSegment(UUID(int=9), UUID(int=1), 1, "north", AT, 0, 2, pack_items([b"a"]))
    with pytest.raises(ProtocolError):
        list(arrow_batches([broken], SCHEMA))
