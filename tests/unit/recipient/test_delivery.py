"""One envelope on its way through a recipient."""

from typing import Any

import pytest

from xbus.errors import Failed, Refused
from xbus.recipient import Refusal
from xbus.recipient.deliveries import MAX_CAUSE_CHARACTERS, EnvelopeDelivery


def nothing() -> tuple[None]:
    return (None,)


def raising(error: Exception) -> Any:
    def step() -> tuple[None]:
        raise error

    return step


def test_a_step_is_answered_with_what_it_returned() -> None:
    assert EnvelopeDelivery("E").take_step(lambda: ("reply", [])) == (True, "reply", [])


def test_after_a_refusal_every_step_gets_its_answer() -> None:
    delivery = EnvelopeDelivery("E")
    assert delivery.take_step(raising(Refusal("no", [1]))) == (False, [([1], "no")])
    assert delivery.take_step(raising(AssertionError("never called"))) == (False, [([1], "no")])


def test_after_an_exception_every_step_fails_alike() -> None:
    delivery = EnvelopeDelivery("E")
    for step in (raising(KeyError("client")), nothing):
        with pytest.raises(Failed, match="KeyError: 'client'") as failed:
            delivery.take_step(step)
        assert failed.value.code == "recipient_failed"


def test_what_is_told_of_an_exception_is_bounded() -> None:
    with pytest.raises(Failed) as failed:
        EnvelopeDelivery("E").take_step(raising(ValueError("x" * 10_000)))
    assert len(failed.value.cause) == MAX_CAUSE_CHARACTERS


def test_after_a_stop_no_step_is_taken() -> None:
    delivery = EnvelopeDelivery("E")
    delivery.stop()
    with pytest.raises(Failed, match="stopped"):
        delivery.take_step(nothing)


def test_events_begin_once_and_are_known_by_their_id() -> None:
    delivery = EnvelopeDelivery("E")
    event = delivery.add_event("e", "test_event")
    assert delivery.event("e") is event
    assert event.envelope is delivery
    with pytest.raises(Refused, match="before"):
        delivery.add_event("e", "test_event")
    with pytest.raises(Refused, match="not open"):
        delivery.event("other")
