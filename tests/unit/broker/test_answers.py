"""How refusals are said on the wire, whatever shape an answer has."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from xbus.broker.answers import coded_answer, old_answer, on_wire
from xbus.errors import (
    CallError,
    ConfigurationError,
    EventIdTaken,
    Failed,
    JournalError,
    JournalUnavailable,
    Refused,
    TimedOut,
    XbusError,
)
from xbus.rpc.deferred import Deferred

Answering = Callable[[Any], Any]


def at_once(outcome: Any) -> Any:
    """A plain answer."""
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


async def in_a_coroutine(outcome: Any) -> Any:
    return at_once(outcome)


def in_a_future(outcome: Any) -> Any:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
    return future


def later(outcome: Any) -> Any:
    return Deferred.of(in_a_future(None)).map(lambda _: at_once(outcome))


SHAPES = pytest.mark.parametrize("shape", [at_once, in_a_coroutine, in_a_future, later])


async def answer_of(verb: Answering, outcome: Any) -> Any:
    answer = verb(outcome)
    return await answer if hasattr(answer, "__await__") else answer


@SHAPES
async def test_an_answer_passes(shape: Answering) -> None:
    assert await answer_of(old_answer(False)(shape), 7) == 7
    assert await answer_of(coded_answer(shape), 7) == 7


@SHAPES
async def test_an_old_verb_answers_its_refusal_and_logs_why(shape: Answering, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    assert await answer_of(old_answer((False, None))(shape), Refused("no", code="event_unknown")) == (False, None)
    (record,) = caplog.records
    assert record.__dict__["code"] == "event_unknown"
    assert record.__dict__["verb"] == shape.__name__


@SHAPES
async def test_a_verb_of_our_own_says_the_code(shape: Answering) -> None:
    with pytest.raises(Refused) as caught:
        await answer_of(coded_answer(shape), Refused("no", "do otherwise", code="event_unknown"))
    assert (caught.value.code, caught.value.next_step) == ("event_unknown", "do otherwise")


@SHAPES
async def test_the_words_of_the_database_stay_in_the_log(shape: Answering) -> None:
    with pytest.raises(Failed) as caught:
        await answer_of(coded_answer(shape), JournalUnavailable("password of xbus is wrong", "see to it"))
    assert caught.value.code == "journal_unavailable"
    assert "password" not in str(caught.value)


@SHAPES
async def test_a_fault_of_ours_is_not_hidden(shape: Answering) -> None:
    for verb in (old_answer(False)(shape), coded_answer(shape)):
        with pytest.raises(ZeroDivisionError):
            await answer_of(verb, ZeroDivisionError())


async def test_an_answer_that_is_given_up() -> None:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    answer = old_answer(False)(lambda: future)()
    future.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answer


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (Refused("no", code="bad_items"), Refused, "bad_items"),
        (TimedOut("late"), TimedOut, "timed_out"),
        (JournalUnavailable("away"), Failed, "journal_unavailable"),
        (JournalError("wrong"), Failed, "journal_error"),
        (EventIdTaken("taken"), Refused, "event_id_taken"),
        (ConfigurationError("wrong", code="bad_address"), Refused, "bad_address"),
    ],
)
def test_errors_as_a_caller_may_see_them(error: XbusError, kind: type[CallError], code: str) -> None:
    shown = on_wire(error)
    assert type(shown) is kind
    assert shown.code == code


async def test_a_call_that_is_given_up_is_answered_in_the_words_of_its_verb() -> None:
    waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def verb() -> Any:
        return Deferred.of(waiting).map(str)

    old, coded = old_answer("")(verb)(), coded_answer(verb)()
    for answer in (old, coded):
        answer.give_up(JournalUnavailable("the database is silent"))
    assert old.result() == ""
    with pytest.raises(Failed) as refusal:
        coded.result()
    assert refusal.value.code == "journal_unavailable"
    waiting.set_result(None)
    await asyncio.sleep(0)
    assert old.result() == ""
