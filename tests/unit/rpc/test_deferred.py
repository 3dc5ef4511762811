"""Answers that are there, and answers that come later."""

import asyncio

from xbus.rpc.deferred import Answer, Deferred, awaited, map_answer


def later() -> tuple["asyncio.Future[int]", Answer[int]]:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    return future, Deferred.of(future)


async def test_a_value_is_gone_on_from_at_once() -> None:
    value: Answer[int] = 7
    assert map_answer(value, str) == "7"
    assert await awaited(value) == 7


async def test_what_comes_later_is_gone_on_from_when_it_is_there() -> None:
    future, answer = later()
    made = map_answer(answer, str)
    assert isinstance(made, Deferred)
    future.set_result(7)
    assert made.result() == "7"
    assert await awaited(answer) == 7
