"""Answers that are there, and answers that come later."""

import asyncio

import pytest

from xbus.errors import Failed
from xbus.rpc.deferred import Answer, Deferred, Promise, awaited, map_answer, settled


def later() -> tuple[Promise[int], Deferred[int]]:
    promise: Promise[int] = Promise()
    return promise, Deferred.of(promise)


async def test_a_value_is_gone_on_from_at_once() -> None:
    value: Answer[int] = 7
    assert map_answer(value, str) == "7"
    assert await awaited(value) == 7


async def test_what_comes_later_is_gone_on_from_when_it_is_there() -> None:
    promise, answer = later()
    made = map_answer(answer, str)
    assert isinstance(made, Deferred)
    promise.set_result(7)
    assert made.result() == "7"
    assert await made == "7"


async def test_a_future_brings_an_answer_too() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    answer = Deferred.of(future).map(str)
    waiting = asyncio.ensure_future(settled(future))
    await asyncio.sleep(0)
    future.set_result(7)
    await waiting
    assert (answer.result(), await answer) == ("7", "7")


async def test_an_error_goes_past_to_where_it_is_recovered_from() -> None:
    promise, answer = later()
    made = answer.map(str).recover(lambda error: f"not {error}").map(str.upper).recover(lambda _: "never")
    promise.set_exception(Failed("now"))
    assert made.result() == "NOT NOW"


async def test_a_step_that_raises_is_recovered_from_behind_it() -> None:
    promise, answer = later()
    made = answer.recover(lambda _: 1).map(lambda seven: seven // 0)
    promise.set_result(7)
    with pytest.raises(ZeroDivisionError):
        made.result()


async def test_steps_are_taken_once() -> None:
    promise, answer = later()
    taken: list[int] = []
    made = answer.map(taken.append)
    promise.set_result(7)
    assert (made.exception(), made.exception(), taken) == (None, None, [7])


async def test_those_who_wait_for_a_promise_are_called_at_once_and_in_their_order() -> None:
    promise: Promise[int] = Promise()
    called: list[str] = []
    promise.add_done_callback(lambda done: called.append(f"first {done.result()}"))
    promise.add_done_callback(lambda _: called.append("second"))
    promise.set_result(7)
    assert called == ["first 7", "second"]


async def test_who_asks_for_a_promise_that_is_kept_is_called_soon() -> None:
    promise: Promise[int] = Promise()
    promise.set_result(7)
    called: list[int] = []
    promise.add_done_callback(lambda done: called.append(done.result()))
    assert called == []
    await asyncio.sleep(0)
    assert called == [7]


async def test_who_stops_to_wait_for_a_promise_leaves_it_as_it_is() -> None:
    promise: Promise[int] = Promise()
    waiting, other = asyncio.ensure_future(settled(promise)), asyncio.ensure_future(settled(promise))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.sleep(0)
    promise.set_result(7)
    await other
    assert (waiting.cancelled(), promise.cancelled(), await promise) == (True, False, 7)


async def test_a_promise_raises_its_error() -> None:
    promise: Promise[int] = Promise()
    promise.set_exception(Failed("now"))
    with pytest.raises(Failed, match="now"):
        await promise
    assert (promise.done(), promise.cancelled()) == (True, False)


async def test_an_answer_that_is_given_up_is_there_at_once() -> None:
    promise, answer = later()
    answer.recover(lambda _: 0).give_up(Failed("silent"))
    assert await answer == 0
    promise.set_result(7)
    assert await answer == 0
