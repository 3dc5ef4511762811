"""Which calls have to be made again, and when an answer takes effect."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xbus.emitter.stream import PendingCalls, RepeatableCall
from xbus.errors import Refused


def make(ledger: PendingCalls, settled: list[Any], *names: str) -> list[RepeatableCall]:
    """Calls in a ledger; those named start_... promise nothing."""
    calls = []
    for name in names:
        call = RepeatableCall(name, (), seconds=1, size=10, durable=not name.startswith("start"))
        ledger.add(call, settled.append)
        calls.append(call)
    return calls


def names(calls: list[RepeatableCall]) -> list[str]:
    return [call.verb for call in calls]


def test_answers_take_effect_in_the_order_of_the_calls() -> None:
    ledger, settled = PendingCalls(), list[Any]()
    one, two, three = make(ledger, settled, "1", "2", "3")
    ledger.answered(three, "third")
    ledger.answered(one, "first")
    assert settled == ["first"]
    ledger.answered(two, "second")
    assert settled == ["first", "second", "third"]
    assert len(ledger) == 0


def test_what_was_answered_is_not_repeated() -> None:
    ledger = PendingCalls()
    one, *_ = make(ledger, [], "1", "2", "3")
    ledger.answered(one, None)
    assert names(ledger.repeat()) == ["2", "3"]


def test_an_answered_opening_is_repeated_until_something_behind_it_is_durable() -> None:
    ledger = PendingCalls()
    envelope, event, items = make(ledger, [], "start_envelope", "start_event", "items")
    ledger.answered(envelope, None)
    ledger.answered(event, None)
    assert names(ledger.repeat()) == ["start_envelope", "start_event", "items"]
    ledger.answered(items, None)
    assert ledger.repeat() == []


def test_a_later_event_is_opened_again_but_not_the_durable_first() -> None:
    ledger = PendingCalls()
    calls = make(ledger, [], "start_envelope", "start_1", "items_1", "start_2", "items_2")
    for call in calls[:4]:
        ledger.answered(call, None)
    assert names(ledger.repeat()) == ["start_2", "items_2"]


def test_a_refusal_stands_once_all_before_it_went_well() -> None:
    ledger = PendingCalls()
    one, two = make(ledger, [], "1", "2")
    refusal = Refused("a gap", code="index_gap")
    ledger.refused(two, refusal)
    with pytest.raises(Refused) as refused:
        ledger.answered(one, None)
    assert refused.value is refusal


def test_a_refusal_behind_a_failure_is_forgotten_when_both_are_repeated() -> None:
    ledger, settled = PendingCalls(), list[Any]()
    one, two = make(ledger, settled, "1", "2")
    ledger.refused(two, Refused("a gap"))
    assert names(ledger.repeat()) == ["1", "2"]
    ledger.answered(one, "first")
    ledger.answered(two, "second")
    assert settled == ["first", "second"]


def test_answers_to_repeats_of_the_answered_change_nothing() -> None:
    ledger, settled = PendingCalls(), list[Any]()
    start, items = make(ledger, settled, "start_envelope", "items")
    ledger.answered(start, "first")
    ledger.answered(start, "again")
    ledger.refused(start, Refused("closed meanwhile"))
    ledger.answered(items, "items")
    ledger.refused(items, Refused("late"))
    ledger.answered(items, "again")
    assert settled == ["first", "items"]


def test_clearing_tells_what_was_in_flight() -> None:
    ledger = PendingCalls()
    one, *_ = make(ledger, [], "1", "2", "3")
    ledger.answered(one, None)
    assert ledger.clear() == 20
    assert ledger.repeat() == []
    ledger.answered(one, None)


@given(st.permutations(range(6)), st.sets(st.integers(0, 5)))
def test_whatever_the_order_of_answers_each_call_is_settled_once_in_order(order: list[int], openings: set[int]) -> None:
    ledger, settled = PendingCalls(), list[Any]()
    calls = make(ledger, settled, *[f"start {n}" if n in openings else str(n) for n in range(6)])
    for position in order:
        ledger.answered(calls[position], position)
        unanswered = [call for n, call in enumerate(calls) if n not in order[: order.index(position) + 1]]
        assert set(unanswered) <= set(ledger.repeat())
    assert settled == list(range(6))
    assert all(not call.durable for call in ledger.repeat())
