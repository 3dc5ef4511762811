"""Reading a socket inside the loop."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import zmq

from tests.integration.rpc.conftest import Serve
from tests.integration.rpc.verbs import Verbs
from tests.support.waiting import eventually
from xbus.errors import ConnectionLost
from xbus.rpc.answering import Call
from xbus.rpc.codec import Frame
from xbus.rpc.context import Context
from xbus.rpc.drain import MESSAGES_PER_TURN, Drain
from xbus.rpc.ports import PeerIsFull, PeerIsGone, RouterPort


async def test_a_handler_that_fails_does_not_end_the_reading(context: Context) -> None:
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, failure: failures.append(failure))
    seen: list[bytes] = []

    def take(frames: list[bytes]) -> None:
        seen.append(frames[0])
        if frames[0] == b"0":
            raise ValueError("one message is bad")

    with context.socket(zmq.PULL) as pull, context.socket(zmq.PUSH) as push:
        pull.bind("inproc://drain")
        push.connect("inproc://drain")
        drain = Drain(pull, take)
        drain.resume()
        for number in range(5):
            push.send(b"%d" % number)
        await eventually(lambda: len(seen) == 5, "all are read")
        drain.pause()
    assert len(failures) == 1


async def test_other_tasks_get_their_turn_in_a_flood(context: Context) -> None:
    seen: list[int] = []
    with context.socket(zmq.PULL) as pull, context.socket(zmq.PUSH) as push:
        pull.set(zmq.RCVHWM, 0)
        pull.bind("inproc://flood")
        push.connect("inproc://flood")
        for _ in range(10 * MESSAGES_PER_TURN):
            push.send(b"")
        drain = Drain(pull, lambda _: seen.append(1))
        drain.resume()
        turns = []
        while len(seen) < 10 * MESSAGES_PER_TURN:
            await asyncio.sleep(0)
            turns.append(len(seen))
        drain.pause()
    # The descriptor and the planned turn may both come up in one round of the loop.
    assert max(after - before for before, after in zip([0, *turns], turns, strict=False)) <= 2 * MESSAGES_PER_TURN


@pytest.mark.parametrize("failure", [PeerIsFull, PeerIsGone])
async def test_a_send_that_fails_is_followed_by_a_look_for_messages(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: type[Exception]
) -> None:
    looks: list[RouterPort] = []

    def fail(port: RouterPort, frames: Sequence[Frame]) -> None:
        raise failure

    def look(port: RouterPort) -> None:
        looks.append(port)

    monkeypatch.setattr(RouterPort, "send", fail)
    monkeypatch.setattr(RouterPort, "check", look)
    server, _ = serve(Verbs(), address=f"ipc://{tmp_path}/server")
    looks.clear()
    assert not server._send(Call(b"peer", [], 0), [b"peer", b""])
    assert len(looks) == 1
    try:
        assert not server._transmit([b"peer", b""])
    except ConnectionLost:
        assert failure is PeerIsGone
    assert len(looks) == 2
