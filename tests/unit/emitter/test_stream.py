"""The calls of one envelope: those that were kept back go on by the successes of others."""

import asyncio
from typing import Any

import pytest

from xbus.clock import SystemClock
from xbus.emitter.patience import EmitterPatience
from xbus.emitter.session import FrontLimits, SendWindow
from xbus.emitter.stream import RepeatableCall, Stream
from xbus.errors import Failed, ProtocolError, Refused
from xbus.loop_turn import LoopTurn
from xbus.rpc.codec import Value, pack
from xbus.rpc.owed_calls import AnswerTaker

SLOW_DOWN = Failed("too fast", code="slow_down", details={"seconds": 0.0})


class HeldSession:
    """Packs calls as a connection does, and answers when the test says so."""

    limits = FrontLimits(60.0, 1_000_000, 1_000_000, 0.0)
    logins = 1

    def __init__(self) -> None:
        self.turn = LoopTurn()
        self.takers: list[AnswerTaker] = []

    def call(self, verb: str, *arguments: Any, seconds: float) -> asyncio.Future[Value]:
        raise AssertionError("a stream without a claim asks")

    def ask(self, verb: str, arguments: tuple[Any, ...], taker: AnswerTaker, seconds: float) -> None:
        pack(arguments)
        self.takers.append(taker)

    async def restore(self) -> None:
        """Take calls again."""


@pytest.mark.parametrize("bad", ["caf\udce9", object(), 2**64])
async def test_a_call_without_a_form_on_the_wire_that_was_kept_back_is_refused(bad: object) -> None:
    session = HeldSession()
    window = SendWindow(100)
    stream = Stream(session, window, EmitterPatience(60.0, SystemClock()))
    kept = [stream.submit(RepeatableCall("work", (number,), 60.0, size=30)) for number in range(2)]
    for taker in session.takers[:]:
        taker(None, SLOW_DOWN)
    while len(session.takers) < 3:
        await asyncio.sleep(0)
    kept.append(stream.submit(RepeatableCall("work", (bad,), 60.0, size=50)))
    # As a connection does it: what the taker raises would end the connection.
    session.takers[-1]("done", None)

    assert kept[0].result() == "done"
    for call in kept[1:]:
        with pytest.raises(Refused) as refused:
            call.result()
        assert refused.value.code == "bad_value"
    with pytest.raises(Refused):
        await stream.submit(RepeatableCall("work", (3,), 60.0))
    assert window.is_open


async def test_a_call_without_a_form_on_the_wire_that_is_made_again_is_refused() -> None:
    session = HeldSession()
    stream = Stream(session, SendWindow(100), EmitterPatience(60.0, SystemClock()))
    mine: list[object] = [1]
    call = stream.submit(RepeatableCall("work", (mine,), 60.0))
    mine[0] = object()
    session.takers[0](None, Failed("the journal is away", code="journal_unavailable"))
    with pytest.raises(Refused):
        await asyncio.wait_for(call, 60.0)


async def test_a_call_without_a_form_on_the_wire_is_raised_and_leaves_nothing_that_waits() -> None:
    session = HeldSession()
    window = SendWindow(50)
    stream = Stream(session, window, EmitterPatience(60.0, SystemClock()))
    with pytest.raises(ProtocolError) as refused:
        stream.submit(RepeatableCall("work", (2**64,), 60.0, size=50))
    assert refused.value.code == "bad_value"
    assert window.is_open

    good = stream.submit(RepeatableCall("work", (1,), 60.0, size=50))
    session.takers[-1]("done", None)
    assert good.result() == "done", "no answer is waited for before it"
