"""Calls that are owed an answer: an error of one that takes it is told, and costs the others nothing."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.waiting import eventually
from xbus.errors import CallError, ConnectionLost, ProtocolError
from xbus.rpc.codec import Value
from xbus.rpc.frames import Reply
from xbus.rpc.owed_calls import OwedCalls


def answered(calls: OwedCalls) -> None:
    for number in range(2):
        assert calls.answered(Reply(number, "answer", None))


def lost(calls: OwedCalls) -> None:
    calls.fail_all(ConnectionLost("the connection was lost"))


def timed_out(calls: OwedCalls) -> None:
    """The time of both is over."""


@pytest.mark.parametrize("end", [answered, lost, timed_out])
@pytest.mark.parametrize("waits", [False, True], ids=["sent", "unsent"])
async def test_a_taker_that_raises_leaves_the_others_alone(end: Callable[[OwedCalls], None], waits: bool) -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    taken: list[Value | CallError] = []

    def bad(answer: Value, error: CallError | None) -> None:
        raise ProtocolError("a value can't be packed")

    calls = OwedCalls("a test", lambda _: not waits)
    calls.ask("work", (), bad, timeout=0.001)
    calls.ask("work", (), lambda answer, error: taken.append(error or answer), timeout=0.001)
    end(calls)

    await eventually(lambda: bool(taken), "the second one is told")
    assert [type(context["exception"]) for context in told] == [ProtocolError]
