"""The calls about envelopes to one recipient, and for how long it has had any to answer."""

import asyncio
import math
from typing import Any, cast

import pytest

from tests.support.clock import StandingClock
from xbus.broker.back.recipients.recipient import EnvelopeCalls
from xbus.errors import CallError, Failed, ProtocolError
from xbus.rpc.owed_calls import Callee

ENVELOPE = bytes(16)


class Unencodable:
    """Refuses each call, as its arguments can't be encoded."""

    def ask(self, *args: Any) -> None:
        raise ProtocolError("it can't be encoded")

    def call(self, *args: Any, **options: Any) -> "asyncio.Future[Any]":
        raise ProtocolError("it can't be encoded")


@pytest.mark.parametrize("waits", [True, False])
async def test_a_call_that_was_never_made_keeps_nobody_busy(waits: bool) -> None:
    clock = StandingClock()
    calls = EnvelopeCalls(cast(Callee, Unencodable()), "store", None, clock.monotonic, lambda: math.inf)
    about = ([ENVELOPE], "take_event", "xbus.take_envelopes", 1.0)
    with pytest.raises(ProtocolError):
        if waits:
            calls.call_about(*about, object())
        else:
            calls.ask_about(*about, (object(),), lambda answer, error: None)
    clock.go_on(10)
    assert calls.busy_seconds == 0


class Noting:
    """Notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def ask(self, name: str, *args: Any) -> None:
        self.asked.append(name)


async def test_one_that_may_lead_no_more_hands_nothing_out() -> None:
    clock = StandingClock()
    client, failures = Noting(), list[CallError | None]()
    calls = EnvelopeCalls(cast(Callee, client), "store", None, clock.monotonic, lambda: clock.monotonic() + ahead)
    ask = ([ENVELOPE], "take_event", "xbus.take_envelopes", 1.0, (), lambda answer, error: failures.append(error))
    ahead = 1.0
    calls.ask_about(*ask)
    ahead = -1.0
    calls.ask_about(*ask)
    await asyncio.sleep(0)
    assert client.asked == ["xbus.take_envelopes"]
    (failure,) = failures
    assert isinstance(failure, Failed)
    assert failure.code == "not_leading"
    assert calls.busy_seconds == 0
