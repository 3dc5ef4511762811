"""What the envelopes of one emitter share."""

from types import SimpleNamespace
from typing import cast

import pytest

from xbus.clock import SystemClock
from xbus.emitter.context import EmitterContext
from xbus.emitter.options import Options
from xbus.emitter.session import FrontLimits, Session
from xbus.ids import Ids
from xbus.loop_turn import LoopTurn
from xbus.rpc.messages import FrontLogin

TOLD: FrontLogin = {"token": "t", "session_seconds": 3600, "max_item_bytes": 1000, "max_batch_bytes": 5000}


def line(told: FrontLogin, **options: float) -> EmitterContext:
    clock = SystemClock()
    session = cast(Session, SimpleNamespace(limits=FrontLimits.of(told), turn=LoopTurn()))
    return EmitterContext(session, Options(**options), clock, Ids(clock))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("front_seconds", "reply_seconds", "expected"), [(30.0, 300.0, 300.0), (30.0, 5.0, 40.0), (600, 300.0, 610.0)]
)
async def test_the_front_gives_a_reply_up_before_the_emitter_does(
    front_seconds: float, reply_seconds: float, expected: float
) -> None:
    told: FrontLogin = {**TOLD, "immediate_reply_timeout": front_seconds}
    assert line(told, reply_seconds=reply_seconds, answer_seconds=10.0).reply_seconds == expected


async def test_a_front_that_does_not_say_how_long_it_waits_is_waited_for_as_the_options_say() -> None:
    assert line(TOLD, reply_seconds=50.0, answer_seconds=10.0).reply_seconds == 50.0
