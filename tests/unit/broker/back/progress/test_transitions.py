"""What becomes of an envelope for a role that could not get it in its turn."""

import uuid
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from xbus.broker.back.progress.transitions import (
    after_crash,
    after_failure,
    before_its_turn,
    begun,
    held,
    in_doubt,
    may_have_begun,
    next_attempt,
    probe,
    settled,
    waiting_for,
)
from xbus.broker.back.recipients.failures import FailureClass, RecipientFailed, failure_of_call
from xbus.broker.journal.log.reading import LogEnvelope
from xbus.broker.journal.writes import DeliveryRow
from xbus.errors import CallError, ConnectionLost, Failed, Refused, TimedOut
from xbus.states import DELIVERY_MOVES, DeliveryState, check_move

ENVELOPE, EVENT = uuid.UUID(int=1), uuid.UUID(int=2)
DUE = datetime(2020, 2, 29, tzinfo=UTC)


def failed(failure_class: FailureClass) -> RecipientFailed:
    errors = {
        FailureClass.TRANSIENT: Failed("broken"),
        FailureClass.PERMANENT: Refused("no"),
        FailureClass.ABSENT: Failed("about to stop", code="recipient_stopping"),
    }
    return failure_of_call(7, "send_item", EVENT, errors[failure_class])


def attempt(number: int) -> DeliveryRow:
    return DeliveryRow(7, ENVELOPE, 12, DeliveryState.RETRY, number, "", "")


def test_what_no_repeat_helps_is_parked_at_once() -> None:
    failure = failed(FailureClass.PERMANENT)
    parked = after_failure(attempt(1), failure, attempts=5, due_at=DUE)
    assert parked == DeliveryRow(7, ENVELOPE, 12, DeliveryState.PARKED, 1, failure.code, failure.cause)


@pytest.mark.parametrize("error", [ConnectionLost("gone"), TimedOut("silent"), Failed("broken")])
def test_what_may_go_well_later_comes_again_until_its_attempts_are_used_up(error: CallError) -> None:
    failure = failure_of_call(7, "send_item", EVENT, error)
    fates = [after_failure(attempt(number), failure, attempts=3, due_at=DUE) for number in (1, 2, 3)]
    assert [(fate.state, fate.due_at) for fate in fates] == [
        (DeliveryState.RETRY, DUE),
        (DeliveryState.RETRY, DUE),
        (DeliveryState.PARKED, None),
    ]
    assert fates[2] == DeliveryRow(7, ENVELOPE, 12, DeliveryState.PARKED, 3, failure.code, failure.cause)


def test_an_attempt_is_counted_before_it_is_made() -> None:
    first = before_its_turn(7, LogEnvelope(ENVELOPE.bytes, 12, (), ()), None, attempts=0)
    for delivery in (first, waiting_for(first, "names")):
        counted = next_attempt(delivery)
        assert (counted.state, counted.attempts, counted.service) == (DeliveryState.RETRY, 1, None)


def test_what_is_handed_over_is_no_longer_due() -> None:
    again = replace(attempt(1), due_at=DUE)
    assert next_attempt(again).due_at is None
    assert waiting_for(again, "names").due_at is None


def test_what_may_have_been_handed_over_counts_as_an_attempt() -> None:
    crashed = after_crash(attempt(0), is_blocked=False)
    assert (crashed.state, crashed.attempts, crashed.code) == (DeliveryState.RETRY, 1, "broker_stopped")
    assert crashed.due_at is None
    assert after_crash(attempt(0), is_blocked=True) == replace(crashed, state=DeliveryState.HELD)


def test_what_was_held_is_handed_over_as_it_is_and_may_be_in_doubt() -> None:
    waiting = held(attempt(0))
    assert begun(waiting) == replace(waiting, attempts=1)
    assert not may_have_begun(begun(waiting))
    doubtful = in_doubt(waiting)
    assert (doubtful.state, doubtful.attempts) == (DeliveryState.HELD, 1)
    assert in_doubt(doubtful) == doubtful
    assert may_have_begun(begun(doubtful))
    for failure_class in FailureClass:
        new = after_failure(begun(waiting), failed(failure_class), attempts=5, due_at=DUE)
        check_move(DELIVERY_MOVES, waiting.state, new.state)


def test_what_waits_says_for_whom() -> None:
    waiting = waiting_for(attempt(2), "names")
    assert (waiting.state, waiting.service, waiting.attempts) == (DeliveryState.WAITING, "names", 2)
    assert waiting.cause == 'no worker of service "names" is there, or each is in trouble'


def test_all_fates_are_legal_moves() -> None:
    waiting = waiting_for(attempt(0), "names")
    again = next_attempt(waiting)
    check_move(DELIVERY_MOVES, held(attempt(0)).state, again.state)
    check_move(DELIVERY_MOVES, held(attempt(0)).state, waiting.state)
    check_move(DELIVERY_MOVES, waiting.state, again.state)
    check_move(DELIVERY_MOVES, waiting.state, waiting_for(waiting, "prices").state)
    for failure_class in FailureClass:
        check_move(
            DELIVERY_MOVES, again.state, after_failure(again, failed(failure_class), attempts=5, due_at=DUE).state
        )
    check_move(DELIVERY_MOVES, again.state, settled(again).state)
    check_move(DELIVERY_MOVES, again.state, waiting_for(again, "names").state)


@pytest.mark.parametrize("code", ["resumed", "isolated"])
def test_what_may_have_begun_is_known_also_when_it_has_waited_for_a_worker(code: str) -> None:
    row = waiting_for(replace(attempt(0), code=code), "names")
    assert may_have_begun(next_attempt(row))


def test_a_probe_that_went_wrong_may_have_begun() -> None:
    probed = after_failure(probe(attempt(0)), failed(FailureClass.TRANSIENT), attempts=None, due_at=None)
    assert may_have_begun(next_attempt(probed))


def test_what_was_never_handed_over_has_not_begun() -> None:
    assert not may_have_begun(next_attempt(waiting_for(attempt(0), "names")))
