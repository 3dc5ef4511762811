"""What no client of ours sends: unreadable frames, pickles, floods."""

import asyncio
import logging
import pickle
import struct
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
import zmq

from tests.integration.rpc.conftest import MAX_MESSAGE_BYTES, SECONDS, Connect, Dial, Serve
from tests.integration.rpc.verbs import Verbs
from tests.support.waiting import answered, eventually
from xbus.rpc.context import new_context
from xbus.rpc.dispatch import undoes, verb
from xbus.rpc.guard import ServerLimits

HEADER = struct.pack("=HHLd", 1, 2, 3, 4.0)
GOOD = [HEADER, b"echo", msgpack.packb([1]), b"\x80"]
RUBBISH = [
    [b""],
    [b"", *GOOD[:3]],
    GOOD[:3],
    [b"short", *GOOD[1:]],
    [HEADER, b"\xff\xfe", *GOOD[2:]],
    [HEADER, b"echo", b"\xc1", b"\x80"],
    [HEADER, b"echo", b"", b""],
    [HEADER, b"echo", b"\x80", b"\x80"],
]


async def replied(socket: "zmq.Socket[bytes]") -> list[bytes]:
    await eventually(lambda: socket.poll(0), "a reply")
    return socket.recv_multipart()


async def test_rubbish_is_counted_logged_once_and_not_replied_to(
    serve: Serve, dial: Dial, caplog: pytest.LogCaptureFixture
) -> None:
    server, address = serve(Verbs())
    peer = dial(address)
    with caplog.at_level(logging.WARNING):
        for frames in RUBBISH:
            peer.send_multipart(frames)
        peer.send_multipart(GOOD)
        header, answer = await replied(peer)
    assert (struct.unpack("=HHLd?", header)[2], msgpack.unpackb(answer)) == (3, 1)
    assert server.unreadable == len(RUBBISH)
    assert [record.__dict__["action"] for record in caplog.records] == ["unreadable_request"]


class Bomb:
    """Unpickled, it fails the test."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return pytest.fail, ("unpickled",)


@pytest.mark.parametrize("extension", [123, 124, 125, 126, 127])
async def test_a_pickle_is_refused_unopened(serve: Serve, dial: Dial, extension: int) -> None:
    server, address = serve(Verbs())
    peer = dial(address)
    bomb = msgpack.ExtType(extension, pickle.dumps(Bomb()))
    for frames in ([msgpack.packb([bomb]), b"\x80"], [b"\x90", msgpack.packb({"value": [bomb]})]):
        peer.send_multipart([HEADER, b"echo", *frames])
        header, answer = await replied(peer)
        assert struct.unpack("=HHLd?", header)[2::2] == (3, True)
        assert msgpack.unpackb(answer)[0] == "aiozmq.rpc.base.ParametersError"
    assert server.unreadable == 0


async def test_an_oversize_frame_cuts_off_its_sender_alone(serve: Serve, dial: Dial, connect: Connect) -> None:
    _, address = serve(Verbs())
    client = connect(address)
    await client.call("echo", 1, timeout=SECONDS)
    dial(address).send_multipart([HEADER, b"echo", b"x" * (MAX_MESSAGE_BYTES + 1), b"\x80"])
    assert await client.call("echo", 2, timeout=SECONDS) == 2


async def test_a_peer_that_leaves_before_its_answer_harms_nobody(serve: Serve, dial: Dial, connect: Connect) -> None:
    verbs = Verbs()
    server, address = serve(verbs)
    peer = dial(address)
    peer.send_multipart([HEADER, b"wait", b"\x90", b"\x80"])
    await eventually(lambda: server.unanswered, "the call waits")
    peer.close(0)
    verbs.gate.set_result(1)
    assert await server.drain(SECONDS)
    assert await connect(address).call("echo", 2, timeout=SECONDS) == 2


async def test_an_answer_that_reaches_nobody_is_undone(serve: Serve, dial: Dial) -> None:
    gave: list[int] = []
    undone: list[int] = []

    class Giving:
        @verb("give")
        async def give(self) -> int:
            gave.append(len(gave))
            await gate.wait()
            return gave[-1]

        @undoes("give")
        def undo_giving(self, given: int) -> None:
            undone.append(given)

    server, address = serve(Giving())

    async def leave_without_the_answer() -> bool:
        gate.clear()
        peer = dial(address)
        peer.send_multipart([HEADER, b"give", b"\x90", b"\x80"])
        await eventually(lambda: server.unanswered, "the call waits")
        peer.close(0)
        gate.set()
        await server.drain(SECONDS)
        return bool(undone)

    gate = asyncio.Event()
    # libzmq may still take the answer before it hears of the end of the connection.
    await answered(leave_without_the_answer, "an answer is undone")
    assert undone == [gave[-1]]


async def test_a_peer_that_reads_no_replies_loses_them(
    serve: Serve, dial: Dial, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    verbs = Verbs()
    _, address = serve(verbs, limits=ServerLimits(MAX_MESSAGE_BYTES, replies_unread=5))
    greedy = dial(address, RCVHWM=1, RCVBUF=1000, SNDHWM=0)
    large = msgpack.packb([b"x" * (MAX_MESSAGE_BYTES - 100)])
    with caplog.at_level(logging.INFO):
        for _ in range(300):
            greedy.send_multipart([HEADER, b"echo", large, b"\x80"])
        # libzmq aborts the process (session_base.cpp) if a connection ends while its socket closes amid a message.
        greedy.send_multipart([HEADER, b"xbus.note", msgpack.packb([1]), b"\x80"])
        await eventually(lambda: verbs.called, "all is read")
        await eventually(lambda: caplog.records, "a reply is dropped")
    assert [record.__dict__["action"] for record in caplog.records] == ["undelivered_reply"]
    assert await connect(address).call("echo", 2, timeout=SECONDS) == 2


async def test_two_peers_that_claim_the_same_id_get_their_own_answers(serve: Serve, dial: Dial) -> None:
    verbs = Verbs()
    server, address = serve(verbs)
    first = dial(address, IDENTITY=b"me")
    first.send_multipart([HEADER, b"wait", b"\x90", b"\x80"])
    await eventually(lambda: server.unanswered, "the call waits")
    second = dial(address, IDENTITY=b"me")
    second.send_multipart(GOOD)
    verbs.gate.set_result(7)
    assert msgpack.unpackb((await replied(first))[1]) == 7
    assert msgpack.unpackb((await replied(second))[1]) == 1
    assert not second.poll(50)


async def test_rubbish_from_a_server_leaves_the_calls_alone(connect: Connect) -> None:
    context = new_context()
    router = context.socket(zmq.ROUTER)
    try:
        port = router.bind_to_random_port("tcp://127.0.0.1")
        client = connect(f"tcp://127.0.0.1:{port}")
        call = client.call("echo", 1, timeout=SECONDS)
        await eventually(lambda: router.poll(0), "the request")
        peer, header, *_ = router.recv_multipart()
        request_id = struct.unpack("=HHLd", header)[2]
        unknown = struct.pack("=HHLd?", 1, 2, request_id + 1, 4.0, False)
        for frames in ([b""], [b"", b"", b""], [b"short", b"\xc0"], [unknown, b"\xc0"]):
            router.send_multipart([peer, *frames])
        router.send_multipart([peer, struct.pack("=HHLd?", 1, 2, request_id, 4.0, False), b"\x07"])
        assert await call == 7
    finally:
        router.close(0)
        context.term()


AHEAD = 5_000
"""Calls of a connection that take more room than one may have, and less than all have."""


async def test_who_sends_calls_ahead_is_read_again_when_they_are_answered(
    serve: Serve, dial: Dial, connect: Connect
) -> None:
    verbs = Verbs()
    _, address = serve(verbs)
    # It may have any number of calls on their way.
    peer, client = dial(address, SNDHWM=0), connect(address)
    await client.call("echo", 1, timeout=SECONDS)
    for number in range(AHEAD):
        peer.send_multipart([struct.pack("=HHLd", 1, 2, number, 4.0), b"wait", b"\x90", b"\x80"])
    assert await client.call("echo", 2, timeout=SECONDS) == 2
    verbs.gate.set_result(1)
    numbers = [struct.unpack("=HHLd?", (await replied(peer))[0])[2] for _ in range(AHEAD)]
    assert sorted(numbers) == list(range(AHEAD))
