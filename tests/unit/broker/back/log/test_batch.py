"""Items between two recipients: joined, taken apart, and read strictly."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xbus.broker.back.log import batch as batches
from xbus.broker.back.log.batch import RunBatch, join_small
from xbus.broker.journal.log.segments import Segment
from xbus.errors import ProtocolError
from xbus.rpc.codec import pack_items

ITEMS = st.lists(st.binary(max_size=20), min_size=1, max_size=8)


def segment(first_index: int, *items: bytes, indices: list[list[int]] | None = None) -> Segment:
    return Segment(first_index, len(items), pack_items(items), indices)


def items_of(*joined: RunBatch) -> list[tuple[list[int], bytes]]:
    return [single for each in joined for single in each.singly()]


# -- joining ---------------------------------------------------------------------------------------------------------


def test_small_neighbours_are_joined() -> None:
    (joined,) = join_small([segment(0, b"a"), segment(1, b"b", b"c"), segment(3, b"d")])
    assert (joined.first_index, joined.items, joined.indices) == (0, 4, None)
    assert items_of(joined) == [([0], b"a"), ([1], b"b"), ([2], b"c"), ([3], b"d")]


def test_large_ones_stay_apart() -> None:
    large = b"x" * (batches.JOIN_BYTES - 10)
    joined = list(join_small([segment(0, large), segment(1, large), segment(2, b"a"), segment(3, b"b")]))
    assert [each.items for each in joined] == [1, 1, 2] or [each.items for each in joined] == [1, 2, 1]


def test_one_segment_is_forwarded_as_it_is() -> None:
    stored = segment(5, b"a")
    (joined,) = join_small([stored])
    assert joined.data is stored.data


def test_segments_with_indices_stay_apart() -> None:
    own = segment(1, b"b", indices=[[7]])
    joined = list(join_small([segment(0, b"a"), own, segment(2, b"c"), segment(3, b"d")]))
    assert [each.items for each in joined] == [1, 1, 2]
    assert items_of(*joined) == [([0], b"a"), ([7], b"b"), ([2], b"c"), ([3], b"d")]


def test_nothing_is_joined_to_nothing() -> None:
    assert list(join_small([])) == []


@given(st.lists(ITEMS, max_size=10))
def test_joining_loses_nothing(groups: list[list[bytes]]) -> None:
    segments, index = [], 0
    for items in groups:
        segments.append(segment(index, *items))
        index += len(items)
    everything = [item for items in groups for item in items]
    assert items_of(*join_small(segments)) == [([place], item) for place, item in enumerate(everything)]


# -- one by one ------------------------------------------------------------------------------------------------------


def test_items_that_came_one_by_one_count_up_where_their_indices_do() -> None:
    made = RunBatch.of_single([([4], b"a"), ([5], b"b")])
    assert (made.first_index, made.items, made.indices) == (4, 2, None)


@given(st.lists(st.tuples(st.lists(st.integers(0, 9), min_size=1, max_size=3), st.binary(max_size=5)), max_size=6))
def test_single_items_keep_their_indices(singles: list[tuple[list[int], bytes]]) -> None:
    assert items_of(RunBatch.of_single(singles)) == singles


def test_a_batch_goes_over_the_wire_and_comes_back() -> None:
    for sent in (RunBatch(3, 2, pack_items([b"a", b"b"])), RunBatch(0, 1, pack_items([b"a"]), [[0, 2]])):
        assert RunBatch.of_wire(list(sent.on_wire()), known=5) == sent


def test_indices_take_memory_too() -> None:
    plain = RunBatch(0, 100, bytes(200))
    assert RunBatch(0, 100, bytes(200), [[0]] * 100).size > plain.size >= 200


# -- answers of workers ----------------------------------------------------------------------------------------------

ONE = pack_items([b"a"])


@pytest.mark.parametrize(
    "answer",
    [
        [2, 1, ONE, None],
        [0, 3, pack_items([b"a"] * 3), None],
        [0, 1, ONE, [[0, 1, 2]]],
        [0, 2, ONE * 2, [[2], [0]]],
        [0, 0, b"", None],
        [3, 0, b"", []],
    ],
)
def test_answers_with_the_indices_of_what_was_given(answer: list[Any]) -> None:
    assert RunBatch.of_wire(answer, known=3).items == answer[1]


@pytest.mark.parametrize(
    "answer",
    [
        None,
        7,
        b"abc",
        [],
        [0, 1, ONE],
        [0, 1, ONE, None, None],
        ["0", 1, ONE, None],
        [0, None, ONE, None],
        [0, 1, "a", None],
        [0, -1, ONE, None],
        [0, 2, ONE, None],
        [0, 1, ONE + ONE, None],
        [0, 1, b"\x93", None],
        [3, 1, ONE, None],
        [-1, 1, ONE, None],
        [0, 4, ONE * 4, None],
        [0, 1, ONE, []],
        [0, 1, ONE, [[0], [1]]],
        [0, 1, ONE, [0]],
        [0, 1, ONE, [[3]]],
        [0, 1, ONE, [[-1]]],
        [0, 1, ONE, [["0"]]],
        [0, 1, ONE, [[True]]],
        [0, 1, ONE, "indices"],
    ],
)
def test_answers_that_make_no_sense(answer: Any) -> None:
    with pytest.raises(ProtocolError):
        RunBatch.of_wire(answer, known=3)
