"""Items and batches as authors see them."""

from typing import Any

import pytest

from xbus.errors import Refused
from xbus.headers import pack_headers
from xbus.recipient import Batch, Envelope, Event, Item, Refusal
from xbus.rpc.codec import Key, Value, pack, pack_items


def test_an_item_knows_its_place() -> None:
    item = Item(b"x", 7)
    assert (item.data, item.index, item.indices, item.is_original) == (b"x", 7, [7], True)


def test_its_value_is_unpacked_once() -> None:
    item = Item(pack({"a": [1]}), 0)
    assert item.value == {"a": [1]}
    assert item.value is item.value


def test_a_value_of_none_is_a_value() -> None:
    assert Item(pack(None), 0).value is None


def test_what_is_not_msgpack_is_refused_for_good() -> None:
    with pytest.raises(Refusal) as refusal:
        _ = Item(b"\xc1", 3).value
    assert refusal.value.indices == [3]


def test_items_made_by_a_worker() -> None:
    made = Item.of({"sum": 3}, indices=[4, 5])
    assert (made.value, made.index, made.indices, made.is_original) == ({"sum": 3}, 4, [4, 5], False)
    assert (Item.of(b"raw").data, Item.of(b"raw").index, Item.of(b"raw").indices) == (b"raw", -1, [])
    with pytest.raises(Refused):
        Item.of(object())


@pytest.mark.parametrize("source", [Item(b"x", 3), Item(b"x", 3, [3, 4]), Item(b"x", -1, [])])
def test_another_value_keeps_the_indices(source: Item) -> None:
    other = source.with_value("y")
    assert (other.value, other.index, other.indices) == ("y", source.index, source.indices)


def test_a_batch_gives_its_items() -> None:
    batch = Batch.unpacked(5, 2, pack_items([b"a", b"b"]), None)
    assert len(batch) == 2
    assert batch.data == [b"a", b"b"]
    assert [(item.data, item.index, item.is_original) for item in batch] == [(b"a", 5, True), (b"b", 6, True)]


def test_a_batch_with_indices_gives_these() -> None:
    batch = Batch.unpacked(5, 3, pack_items([b"a", b"b", b"c"]), [[1, 9], [], [2]])
    assert [(item.index, item.indices) for item in batch] == [(1, [1, 9]), (-1, []), (2, [2])]


@pytest.mark.parametrize(
    ("items", "data", "indices"),
    [
        (2, b"\xc4\x01a", None),
        (1, b"\xc4\x01a\xc4\x01b", None),
        (1, b"rubbish", None),
        (1, b"\xc4\x01a", []),
        (1, b"\xc4\x01a", [1]),
        (1, b"\xc4\x01a", [[True]]),
        (1, b"\xc4\x01a", [["1"]]),
    ],
)
def test_a_batch_that_does_not_fit_together_is_refused(items: int, data: bytes, indices: Any) -> None:
    with pytest.raises(Refused) as refused:
        Batch.unpacked(0, items, data, indices)
    assert refused.value.code == "bad_items"


def test_a_refusal_on_the_wire() -> None:
    assert Refusal("no such client", [1, 2]).errors == [([1, 2], "no such client")]


def test_headers_are_unpacked_when_the_author_asks_for_them() -> None:
    event = Event("E", "notes", Envelope("A"))
    event.read_headers({"headers": b"\xc1", "partition_key": "p", "envelope_headers": pack_headers({"shop": "Paris"})})
    assert (event.partition_key, event.envelope.headers) == ("p", {"shop": "Paris"})
    with pytest.raises(Refusal, match="the headers are no msgpack"):
        _ = event.headers


def test_an_author_s_test_sets_the_headers_of_an_envelope() -> None:
    envelope = Envelope("A")
    envelope.headers = {"shop": "Paris"}
    assert envelope.headers == Event("E", "notes", envelope).headers == {"shop": "Paris"}


@pytest.mark.parametrize("bad", [{"headers": "text"}, {"partition_key": 1}, {"envelope_headers": {}}])
def test_headers_of_another_form_are_refused(bad: dict[Key, Value]) -> None:
    with pytest.raises(Refused) as refused:
        Event("E", "notes", Envelope("A")).read_headers(bad)
    assert refused.value.code == "wrong_arguments"
