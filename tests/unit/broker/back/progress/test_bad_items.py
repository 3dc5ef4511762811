"""Which items are parked alone: what a recipient said, and what its event type wants."""

import uuid
from dataclasses import replace

import pytest

from tests.support.delivering import graph_of
from xbus.broker.back.progress.bad_item_search import concerned_services, in_words, refused_items
from xbus.broker.back.recipients.failures import FailureClass, ItemError, RecipientFailed, nonsense, refusal
from xbus.broker.journal.log.catalog import EventType
from xbus.broker.journal.log.reading import LogEvent
from xbus.broker.journal.writes import IsolatedItem

EVENT = LogEvent(uuid.UUID(int=1).bytes, "notes", 1, items=10)
TYPE = EventType(1, "notes", False, 1, bad_items="isolate", max_isolated=3)
NONE_YET = frozenset[int]()


def refused(*errors: tuple[list[int] | None, str]) -> RecipientFailed:
    return refusal(7, "send_item", EVENT.event_id, [list(error) for error in errors])


def indices(failure: RecipientFailed, isolated: frozenset[int] = NONE_YET) -> list[int]:
    return [item.index for item in refused_items(failure, EVENT, TYPE, isolated)]


def test_the_items_that_are_named_are_isolated_each_with_its_cause() -> None:
    failure = refused(([5, 2], "no price"), ([0, 2], "no name"))
    assert refused_items(failure, EVENT, TYPE, NONE_YET) == [
        IsolatedItem(EVENT.event_id, 0, "refused", "no name"),
        IsolatedItem(EVENT.event_id, 2, "refused", "no price"),
        IsolatedItem(EVENT.event_id, 5, "refused", "no price"),
    ]


def test_types_that_do_not_want_it_and_removed_ones_have_none_isolated() -> None:
    failure = refused(([2], "no price"))
    assert not refused_items(failure, EVENT, replace(TYPE, bad_items="envelope"), NONE_YET)
    assert not refused_items(failure, EVENT, None, NONE_YET)


@pytest.mark.parametrize(
    "failure",
    [
        refused(([2], "no price"), ([], "and I don't like it")),
        refused(([2], "no price"), (None, "malformed")),
        refused(),
        nonsense(7, "send_item", EVENT.event_id, "what?"),
        refused(([10], "there is none such")),
        refused(([-1], "nor such")),
        refused(([0, 1, 2, 3], "too many")),
        RecipientFailed(7, "send_item", EVENT.event_id, FailureClass.TRANSIENT, "busy", [ItemError([1], "later")]),
        RecipientFailed(7, "end_envelope", None, FailureClass.PERMANENT, "refused", [ItemError([1], "no")]),
    ],
)
def test_else_the_whole_envelope_is_parked(failure: RecipientFailed) -> None:
    assert indices(failure) == []


def test_the_limit_counts_all_of_the_event_for_the_role() -> None:
    assert indices(refused(([4], "no price")), frozenset({1, 2})) == [4]
    assert indices(refused(([4], "no price")), frozenset({1, 2, 3})) == []


def test_an_item_that_was_not_given_can_not_be_refused() -> None:
    assert indices(refused(([2, 4], "no price")), frozenset({2})) == []


def test_whom_it_concerns_follows_from_where_it_happened() -> None:
    graph = graph_of({"names": ["store", "count"], "prices": ["audit"], "store": [], "count": [], "audit": []})
    failure = refused(([2], "no price"))
    failure.happened_at(["names"], 10)
    assert concerned_services(failure, graph) == {"store", "count"}
    failure.happened_at(["audit"], 10)
    assert concerned_services(failure, graph) == {"audit"}


def test_it_is_said_in_words() -> None:
    items = refused_items(refused(([1, 2, 3], "no price")), EVENT, TYPE, NONE_YET)
    assert in_words(items) == "goes on without item 1, 2, 3: no price"
    assert in_words(items * 2) == "goes on without item 1, 2, 3, 1, 2, ...: no price"
    assert in_words([]) == "stopped, as another recipient refused items that are parked alone"
