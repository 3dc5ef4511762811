"""Segments to Arrow and back."""

import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_worker.items.batches import SCHEMA, BatchSize, batches
from spark_worker.items.errors import BadOutput
from spark_worker.items.pieces import NewSegment, OutputLimits, pieces
from xbus.rpc.codec import pack_items, unpack_items

LIMITS = OutputLimits(1024 * 1024, 60)


def batch(indexes: list[int | None], datas: list[bytes | None]) -> pa.RecordBatch:
    arrays = [pa.array(indexes, pa.int64()), pa.array(datas, pa.binary())]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def indexes_of(piece: NewSegment) -> list[int]:
    if piece.sources is None:
        return list(range(piece.first_index, piece.first_index + piece.items))
    return list(struct.unpack(f"<{piece.items}q", piece.sources))


def test_segments_that_follow_each_other_make_one_batch() -> None:
    segments = [NewSegment(2, pack_items([b"a", b"b"]), 10, None), NewSegment(1, pack_items([b"c"]), 12, None)]

    (made,) = batches(segments)

    assert made.column("_index").to_pylist() == [10, 11, 12]
    assert made.column("data").to_pylist() == [b"a", b"b", b"c"]


def test_an_item_made_of_several_has_no_index() -> None:
    segment = NewSegment(3, pack_items([b"a", b"b", b"c"]), 0, struct.pack("<3q", 7, -1, 7))

    (made,) = batches([segment])

    assert made.column("_index").to_pylist() == [7, None, 7]


def test_batches_end_when_they_are_large_enough() -> None:
    segments = [NewSegment(1, pack_items([b"x"]), number, None) for number in range(5)]

    assert [len(made) for made in batches(segments, BatchSize(items=2))] == [2, 2, 1]


def test_no_segments_make_no_batch() -> None:
    assert list(batches([])) == []


def test_indexes_that_follow_each_other_are_told_by_the_first() -> None:
    (piece,) = pieces([batch([5, 6, 7], [b"a", b"b", b"c"])], LIMITS)

    assert (piece.first_index, piece.sources, piece.items) == (5, None, 3)


@pytest.mark.parametrize("indexes", [[5, 7, 6], [5, 5, 7], [None, None, None], [5, None, 7], [7, 6, 5]])
def test_others_are_told_one_by_one(indexes: list[int | None]) -> None:
    (piece,) = pieces([batch(indexes, [b"a", b"b", b"c"])], LIMITS)

    assert indexes_of(piece) == [-1 if index is None else index for index in indexes]


def test_large_batches_are_cut() -> None:
    large = batch([0, 1, 2, 9], [b"1234567", b"1234567", b"1234567", b"1"])

    made = list(pieces([large], LIMITS, segment_bytes=20))

    assert [piece.items for piece in made] == [1, 1, 2]
    assert [index for piece in made for index in indexes_of(piece)] == [0, 1, 2, 9]


@given(
    st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 50)), st.binary(max_size=30)), max_size=40),
    st.integers(1, 7),
)
def test_what_is_written_is_read_back(rows: list[tuple[int | None, bytes]], step: int) -> None:
    made = [rows[start : start + step] for start in range(0, len(rows), step)]
    written = list(pieces([batch([i for i, _ in part], [d for _, d in part]) for part in made], LIMITS))

    read = pa.Table.from_batches(batches(written), schema=SCHEMA)

    assert list(zip(read["_index"].to_pylist(), read["data"].to_pylist(), strict=True)) == rows
    assert [item for piece in written for item in unpack_items(piece.data, piece.items)] == [d for _, d in rows]


def test_null_is_no_item() -> None:
    with pytest.raises(BadOutput, match=r"null \(of item 8\)"):
        list(pieces([batch([7, 8], [b"a", None])], LIMITS))


def test_an_item_larger_than_the_bus_takes_is_refused() -> None:
    with pytest.raises(BadOutput, match=r"\(of item 8\) takes 100 bytes"):
        list(pieces([batch([7, 8], [b"a", b"x" * 100])], OutputLimits(50, 60)))


@pytest.mark.parametrize("wrong", [-1, 60, 1060, 2**62])
def test_an_item_of_one_that_the_event_does_not_have_is_refused(wrong: int) -> None:
    with pytest.raises(BadOutput, match=rf"_index {wrong}, and the event has items 0 to 59: keep _index as it came"):
        list(pieces([batch([0, None, wrong], [b"a", b"b", b"c"])], LIMITS))


def test_of_an_event_without_items_no_item_is_made_of_one() -> None:
    assert list(pieces([batch([None], [b"a"])], OutputLimits(50, 0)))
    with pytest.raises(BadOutput, match="the event has no items"):
        list(pieces([batch([0], [b"a"])], OutputLimits(50, 0)))
