"""Gathering items into batches."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xbus.emitter.batch import OutgoingBatch, check_size
from xbus.errors import Refused
from xbus.rpc.items import ITEM_HEADER_BYTES, cut, item_bytes


def test_a_batch_is_full_by_items() -> None:
    batch = OutgoingBatch(max_items=2, max_bytes=100, max_item_bytes=50, max_batch_bytes=200)
    assert [batch.add(b"a"), batch.add(b"b")] == [False, True]
    assert list(batch.take()) == [[b"a", b"b"]]
    assert len(batch) == 0


def test_a_batch_is_full_by_bytes() -> None:
    batch = OutgoingBatch(max_items=100, max_bytes=10, max_item_bytes=50, max_batch_bytes=200)
    assert [batch.add(b"12345"), batch.add(b"12345")] == [False, True]


def test_taking_starts_anew() -> None:
    batch = OutgoingBatch(max_items=2, max_bytes=10, max_item_bytes=50, max_batch_bytes=200)
    batch.add(b"123456789")
    list(batch.take())
    assert not batch.add(b"123456789")
    assert list(batch.take()) == [[b"123456789"]]
    assert list(batch.take()) == []


def test_an_item_too_large_leaves_the_batch_as_it_was() -> None:
    batch = OutgoingBatch(max_items=2, max_bytes=10, max_item_bytes=3, max_batch_bytes=20)
    with pytest.raises(Refused, match="larger than the 3"):
        batch.add(b"1234")
    assert len(batch) == 0
    check_size(3, 3)


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
    batch = OutgoingBatch(max_items=7, max_bytes=1000, max_item_bytes=50, max_batch_bytes=200)
    everything = [b"%d" % number for number in range(20_000)]
    adding = threading.Thread(target=lambda: [batch.add(item) for item in everything])
    adding.start()
    taken: list[bytes] = []
    while adding.is_alive() or len(batch):
        taken += [item for piece in batch.take() for item in piece]
    assert taken == everything
