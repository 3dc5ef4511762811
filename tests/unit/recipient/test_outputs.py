"""What workers answer, and what it becomes on the wire."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.counting import calls_of
from xbus.recipient import Batch, Envelope, Event, Item, Out, Worker
from xbus.recipient.outputs import made_of, made_of_batch, made_of_event, values_of, wire_batches
from xbus.rpc.codec import pack, unpack_items


@pytest.mark.parametrize(
    ("answer", "values"),
    [
        (None, []),
        ([], []),
        ([1, 2], [1, 2]),
        ((1, 2), [1, 2]),
        ((n for n in (1, 2)), [1, 2]),
        ({"a": 1}, [{"a": 1}]),
        ("text", ["text"]),
        (b"bytes", [b"bytes"]),
        (0, [0]),
    ],
)
def test_how_many_values_an_answer_is(answer: Any, values: list[Any]) -> None:
    assert list(values_of(answer)) == values


def test_one_item_is_one_value() -> None:
    item = Item(b"x", 1)
    assert list(values_of(item)) == [item]


def test_values_bear_the_indices_of_their_source() -> None:
    other = Item.of(b"other", indices=[8])
    made = made_of(Item(b"x", 3), [b"a", "b", other])
    assert [(item.data, item.indices) for item in made] == [(b"a", [3]), (pack("b"), [3]), (b"other", [8])]


def test_values_of_a_batch_stand_for_its_items() -> None:
    batch = Batch([b"a", b"b"], 5)
    assert [item.index for item in made_of_batch(batch, (data.upper() for data in batch.data))] == [5, 6]
    assert made_of_batch(batch, None) == []
    assert [item.indices for item in made_of_batch(batch, [Item.of(b"x", [5, 6])])] == [[5, 6]]


def test_values_that_can_not_be_matched_with_items_are_the_authors_mistake() -> None:
    with pytest.raises(TypeError, match="1 values to 2 items"):
        made_of_batch(Batch([b"a", b"b"], 5), [b"x"])


def test_values_of_an_event_have_no_indices() -> None:
    assert [item.indices for item in made_of_event([b"sum", Item.of(b"x", [1])])] == [[], [1]]


def test_items_in_a_row_need_no_indices_on_the_wire() -> None:
    assert wire_batches([Item(b"a", 4), Item(b"b", 5)], 100) == [(4, 2, b"\xc4\x01a\xc4\x01b", None)]
    assert wire_batches([], 100) == []


@pytest.mark.parametrize(
    ("items", "indices"),
    [
        ([Item(b"a", 4), Item(b"b", 6)], [[4], [6]]),
        ([Item(b"a", 4), Item(b"b", 4)], [[4], [4]]),
        ([Item(b"a", 5), Item(b"b", 4)], [[5], [4]]),
        ([Item(b"a", 4), Item(b"b", 5, [5, 6])], [[4], [5, 6]]),
        ([Item.of(b"a"), Item.of(b"b")], [[], []]),
    ],
)
def test_all_others_bring_theirs(items: list[Item], indices: list[list[int]]) -> None:
    ((first_index, *_, found),) = wire_batches(items, 100)
    assert found == indices
    assert first_index >= 0


@given(st.lists(st.tuples(st.binary(max_size=20), st.integers(0, 9)), max_size=20), st.integers(1, 60))
def test_the_wire_tells_data_and_indices_of_every_item(made: list[tuple[bytes, int]], max_bytes: int) -> None:
    items = [Item(data, index) for data, index in made]
    read = []
    for first, count, data, indices, *_ in wire_batches(items, max_bytes):
        for number, item in enumerate(unpack_items(data, count)):
            read.append((item, indices[number] if indices else [first + number]))
    assert read == [(item.data, item.indices) for item in items]


def test_items_for_which_a_type_is_named_have_batches_of_their_own() -> None:
    source = Item(b"x", 3)
    made = made_of(source, [b"a", Out("refunds", b"b"), Out("refunds", Item.of(b"c", [7])), b"d"])

    assert wire_batches(made, 100) == [
        (3, 1, b"\xc4\x01a", None),
        (3, 2, b"\xc4\x01b\xc4\x01c", [[3], [7]], "refunds"),
        (3, 1, b"\xc4\x01d", None),
    ]


def test_a_batch_may_name_types_for_its_items() -> None:
    batch = Batch([b"a", b"b"], 5)

    made = made_of_batch(batch, [Out("refunds", b"x"), b"y"])
    assert [(item.data, item.index) for item in made] == [(b"x", 5), (b"y", 6)]
    assert [batch[4:] for batch in wire_batches(made, 100)] == [("refunds",), ()]
    assert wire_batches(made_of_event(Out("sums", b"z")), 100) == [(0, 1, b"\xc4\x01z", [[]], "sums")]


def test_an_item_that_a_worker_passes_on_costs_two_calls_and_its_way_to_the_wire_none() -> None:
    event, worker = Event("an event", "notes", Envelope("an envelope")), Worker()

    def pass_on(count: int) -> list[Item]:
        items = worker.on_batch(event, Batch([b"x"] * count, 0))
        assert isinstance(items, list)
        return items

    made = {count: pass_on(count) for count in (2, 100)}
    # That of the item itself, and on_item.
    two, hundred = (calls_of(lambda: pass_on(count)) for count in made)  # noqa: B023
    assert hundred - two == 2 * 98
    two, hundred = (calls_of(lambda: wire_batches(items, 10_000)) for items in made.values())  # noqa: B023
    assert hundred == two
