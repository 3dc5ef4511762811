"""Gathering items into batches."""

import threading
from collections.abc import Callable
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.counting import calls_of
from xbus.emitter.batch import OutgoingBatch, check_size
from xbus.errors import CallError, Refused
from xbus.rpc.items import ITEM_HEADER_BYTES, cut, item_bytes

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text(), inner),
    max_leaves=6,
)


class Calls:
    """The calls that carry a batch."""

    error: CallError | None = None


Way: TypeAlias = Callable[[OutgoingBatch], Callable[[object], bool]]
"""Makes the function that puts an item into a batch, and tells whether the batch is full."""


def one_by_one(batch: OutgoingBatch) -> Callable[[object], bool]:
    add = batch.adder(lambda *, timeout: True)
    return lambda item: add(item) is True


def many(batch: OutgoingBatch) -> Callable[[object], bool]:
    return lambda item: bool(list(batch.fill([item])))


WAYS = pytest.mark.parametrize("way", [one_by_one, many])


def batch_of(max_items: int = 100, max_bytes: int = 100, max_item_bytes: int = 50) -> OutgoingBatch:
    return OutgoingBatch(max_items, max_bytes, max_item_bytes, 200, Calls())


@WAYS
def test_a_batch_is_full_by_items(way: Way) -> None:
    batch = batch_of(max_items=2)
    add = way(batch)
    assert [add(b"a"), add(b"b")] == [False, True]
    assert list(batch.take()) == [[b"a", b"b"]]
    assert len(batch) == 0


@WAYS
def test_a_batch_is_full_by_bytes(way: Way) -> None:
    add = way(batch_of(max_bytes=10))
    assert [add(b"12345"), add(b"12345")] == [False, True]


@WAYS
def test_taking_starts_anew(way: Way) -> None:
    batch = batch_of(max_items=2, max_bytes=10)
    add = way(batch)
    add(b"123456789")
    list(batch.take())
    assert not add(b"123456789")
    assert list(batch.take()) == [[b"123456789"]]
    assert list(batch.take()) == []


@WAYS
def test_an_item_too_large_leaves_the_batch_as_it_was(way: Way) -> None:
    batch = batch_of(max_item_bytes=3)
    with pytest.raises(Refused, match="larger than the 3"):
        way(batch)(b"1234")
    assert len(batch) == 0
    check_size(3, 3)


@WAYS
def test_a_batch_that_is_closed_takes_no_items(way: Way) -> None:
    batch = batch_of()
    add = way(batch)
    batch.error = Refused("over", code="event_closed")
    with pytest.raises(Refused, match="over"):
        add(b"late")
    assert len(batch) == 0


@WAYS
def test_a_batch_whose_calls_are_broken_off_is_full(way: Way) -> None:
    calls = Calls()
    add = way(OutgoingBatch(100, 100, 50, 200, calls))
    assert not add(b"a")
    calls.error = Refused("too late")
    assert add(b"b")


@WAYS
@given(values=st.lists(st.one_of(VALUES, st.dates(), st.decimals(), st.binary().map(bytearray)), max_size=8))
def test_values_are_packed_as_items_are(way: Way, values: list[object]) -> None:
    batch = OutgoingBatch(100, 10_000, 10_000, 1_000_000, Calls())
    add = way(batch)
    for value in values:
        add(value)
    assert [item for taken in batch.take() for item in taken] == [item_bytes(value) for value in values]


@WAYS
def test_a_value_that_can_not_be_packed_is_refused_and_the_next_one_is_taken(way: Way) -> None:
    batch = batch_of()
    add = way(batch)
    for _ in range(2):
        with pytest.raises(Refused) as refused:
            add({"a": [object()]})
        assert refused.value.code == "bad_items"
    add({"a": 1})
    assert list(batch.take()) == [[item_bytes({"a": 1})]]


def test_many_items_stop_whenever_the_batch_is_full() -> None:
    batch = batch_of(max_items=2)
    taken = [[*batch.take()] for _ in batch.fill(b"%d" % number for number in range(5))]
    assert taken == [[[b"0", b"1"]], [[b"2", b"3"]]]
    assert list(batch.take()) == [[b"4"]]


@pytest.mark.parametrize("item", [b"raw", {"client": 1}])
def test_an_item_costs_one_call_and_one_among_many_none(item: object) -> None:
    batch = OutgoingBatch(2_000, 1_000_000, 50, 1_000_000, Calls())
    add = batch.adder(lambda *, timeout: True)
    of_a_map = type(item) is dict
    of_sends = [calls_of(lambda: [add(item) for _ in range(count)]) for count in (1, 100)]  # noqa: B023
    of_fills = [calls_of(lambda: list(batch.fill([item] * count))) for count in (1, 100)]  # noqa: B023
    assert (of_sends[1] - of_sends[0], of_fills[1] - of_fills[0]) == (99 + 99 * of_a_map, 99 * of_a_map)


@given(items=st.lists(st.binary(max_size=30), max_size=40), max_bytes=st.integers(1, 60))
def test_cutting_keeps_order_and_limit(items: list[bytes], max_bytes: int) -> None:
    pieces = list(cut(items, max_bytes))
    assert [item for piece in pieces for item in piece] == items
    for piece in pieces:
        assert len(piece) == 1 or sum(len(item) + ITEM_HEADER_BYTES for item in piece) <= max_bytes


@pytest.mark.parametrize("item", [b"abc", bytearray(b"abc"), memoryview(b"abc")])
def test_bytes_are_items_as_they_are(item: object) -> None:
    assert item_bytes(item) == b"abc"
    assert type(item_bytes(item)) is bytes


def test_other_values_are_packed() -> None:
    assert item_bytes({"a": [1, None]}) == b"\x81\xa1a\x92\x01\xc0"


@pytest.mark.parametrize("value", [object(), {1, 2}, 2**64])
def test_values_that_msgpack_can_not_write_are_refused(value: object) -> None:
    with pytest.raises(Refused) as refused:
        item_bytes(value)
    assert refused.value.code == "bad_items"


def test_nothing_is_lost_while_one_thread_adds_and_another_takes() -> None:
    batch = batch_of(max_items=7, max_bytes=1000)
    add = batch.adder(lambda *, timeout: True)
    everything = [b"%d" % number for number in range(20_000)]
    adding = threading.Thread(target=lambda: [add(item) for item in everything])
    adding.start()
    taken: list[bytes] = []
    while adding.is_alive() or len(batch):
        taken += [item for piece in batch.take() for item in piece]
    assert taken == everything
