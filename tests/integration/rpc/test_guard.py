"""The memory that one peer can take of a server is bounded in bytes, whatever it sends or does not read."""

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

import msgpack  # type: ignore[import-untyped]
import pytest
import zmq

from tests.integration.rpc.conftest import MAX_MESSAGE_BYTES, SECONDS, Connect, Dial, Serve
from tests.integration.rpc.verbs import Verbs
from tests.support.strangers import Stranger
from tests.support.waiting import answered, eventually
from tests.support.zmtp import encode_message
from xbus.rpc.context import Context
from xbus.rpc.dispatch import Dispatch
from xbus.rpc.guard import MESSAGE_ROOM_BYTES, ServerLimits
from xbus.rpc.server import Server

STRANGERS_BYTES = 1024 * 1024

MOST_UNDER_WAY_BYTES = 64 * 1024 * 1024
"""More than two machines keep of a connection that nobody reads."""

EMPTY_FRAME = b"\x01\x00"
"""A frame without content, behind which more of the message comes."""

LARGE_FRAME = b"\x03" + struct.pack(">Q", 3 * STRANGERS_BYTES)
"""The header of a frame that is longer than all that a stranger may begin."""

LAST_FRAME = b"\x00\x00"

CALL = [struct.pack("=HHLd", 1, 2, 3, 4.0), b"echo", msgpack.packb([b"x" * (MAX_MESSAGE_BYTES - 100)]), b"\x80"]


def cut_off(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Why connections were cut off."""
    return lambda: [
        vars(record)["code"] for record in caplog.records if vars(record).get("action") == "connection_cut_off"
    ]


async def test_a_message_without_an_end_ends_its_connection(
    serve: Serve, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    _, address = serve(Verbs())
    with await asyncio.to_thread(Stranger, address) as endless:
        endless.send_raw(EMPTY_FRAME * ((MAX_MESSAGE_BYTES + MESSAGE_ROOM_BYTES) // 2 + 1))
        await eventually(cut_off(caplog), "the server sees it")
        assert endless.is_over()
    assert cut_off(caplog)() == ["broken_protocol"]
    assert await connect(address).call("echo", 2, timeout=SECONDS) == 2


async def test_strangers_begin_no_large_messages(
    context: Context, closing: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    dispatch = Dispatch(Verbs(), knows=lambda token: token == "known")
    limits = ServerLimits(100 * STRANGERS_BYTES, max_strangers_bytes=STRANGERS_BYTES)
    server = Server(context, dispatch, name="test server", limits=limits)
    closing.callback(server.close)
    address = server.bind("tcp://127.0.0.1:0")
    server.start()
    known, unknown = [await asyncio.to_thread(Stranger, address) for _ in range(2)]
    with known, unknown:
        known.call("echo", "known")
        await asyncio.to_thread(known.answer)
        for peer in (known, unknown):
            peer.send_raw(LARGE_FRAME + bytes(2 * STRANGERS_BYTES))
        await eventually(cut_off(caplog), "the guard sees it")
        assert unknown.is_over()
    assert cut_off(caplog)() == ["endless_message"]


@pytest.mark.parametrize("frames", [20, 8_000_000])
async def test_a_message_of_many_frames_ends_its_connection_at_once(
    frames: int, serve: Serve, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    server, address = serve(Verbs(), limits=ServerLimits(100 * MAX_MESSAGE_BYTES))
    client = connect(address)
    assert await client.call("echo", 1, timeout=SECONDS) == 1
    with await asyncio.to_thread(Stranger, address) as many:
        with suppress(ConnectionError):
            await asyncio.to_thread(many.send_raw, EMPTY_FRAME * frames + LAST_FRAME)
        await eventually(cut_off(caplog), "it is cut off")
        assert many.is_over()
    assert cut_off(caplog)() == ["broken_protocol"]
    assert server.unreadable == 1
    assert await client.call("echo", 2, timeout=SECONDS) == 2


async def test_who_breaks_the_rules_still_reads_the_answers_to_the_calls_before(serve: Serve) -> None:
    _, address = serve(Verbs())
    with await asyncio.to_thread(Stranger, address) as breaking:
        calls = b"".join(breaking.framed("nothing", b"\x90", request_id=number) for number in range(3))
        breaking.send_raw(calls + EMPTY_FRAME * 100 + LAST_FRAME)
        answers = [await asyncio.to_thread(breaking.answer) for _ in range(3)]
        assert [(number, error.code) for number, error in answers] == [(n, "unknown_method") for n in range(3)]
        assert await asyncio.to_thread(breaking.is_over)


async def test_who_sends_while_nothing_is_read_has_to_wait(
    serve: Serve, dial: Dial, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    server, address = serve(Verbs())
    greedy = dial(address, SNDHWM=1)
    greedy.send_multipart(CALL)
    await eventually(lambda: greedy.poll(0, zmq.POLLIN), "a reply")
    greedy.recv_multipart()
    server.pause()
    taken = 0
    while await asyncio.to_thread(greedy.poll, 500, zmq.POLLOUT):
        greedy.send_multipart(CALL)
        taken += MAX_MESSAGE_BYTES
        assert taken < MOST_UNDER_WAY_BYTES
    server.resume()
    await eventually(lambda: greedy.poll(0, zmq.POLLIN), "a reply")
    assert cut_off(caplog)() == []
    assert await connect(address).call("echo", 2, timeout=SECONDS) == 2


async def test_who_leaves_answers_unread_is_bounded_in_bytes(
    serve: Serve, dial: Dial, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    limits = ServerLimits(MAX_MESSAGE_BYTES, max_unsent_bytes=10 * MAX_MESSAGE_BYTES)
    _, address = serve(Verbs(), limits=limits)
    greedy = dial(address, RCVHWM=1, RCVBUF=1000, SNDHWM=0, RECONNECT_IVL=-1)
    for _ in range(200):
        greedy.send_multipart(CALL)
    await eventually(cut_off(caplog), "the guard sees it")
    assert cut_off(caplog)() == ["unread_answers"]
    assert await connect(address).call("echo", 2, timeout=SECONDS) == 2


async def test_who_reads_and_sends_much_is_left_alone(
    serve: Serve, dial: Dial, caplog: pytest.LogCaptureFixture
) -> None:
    limits = ServerLimits(MAX_MESSAGE_BYTES, max_unsent_bytes=10 * MAX_MESSAGE_BYTES)
    _, address = serve(Verbs(), limits=limits)
    peer = dial(address)
    for _ in range(5):
        # Connections with the descriptor of an earlier one.
        dial(address).close(linger=0)
    for _ in range(200):
        peer.send_multipart(CALL)
        await eventually(lambda: peer.poll(0), "a reply")
        peer.recv_multipart()
    await asyncio.sleep(0.25)
    assert cut_off(caplog)() == []
    peer.send_multipart(CALL)
    await eventually(lambda: peer.poll(0, zmq.POLLIN), "a reply")


async def test_strangers_that_leave_at_once_do_not_cost_a_newcomer_his_connection(serve: Serve) -> None:
    """The system gives him the descriptor that one of them had."""
    server, address = serve(Verbs())
    place = urlsplit(address)

    def come_and_go() -> None:
        for _ in range(20):
            for junk in (b"", b"\xff", b"GET / HTTP/1.1", b"\x01\x00"):
                with socket.create_connection((place.hostname, place.port), SECONDS) as stranger:
                    stranger.sendall(junk)
            with Stranger(address) as honest:
                honest.call("echo", 1)
                assert honest.answer()[1] == 1

    await asyncio.to_thread(come_and_go)
    assert server.unreadable == 40


async def test_who_reads_nothing_does_not_delay_a_stop(serve: Serve) -> None:
    server, address = serve(Verbs())

    async def is_left_unread() -> bool:
        return not await server.drain(0)

    with await asyncio.to_thread(Stranger, address) as silent:
        await asyncio.to_thread(silent.send_raw, encode_message(CALL) * 200)
        await answered(is_left_unread, "answers are left unread")
        server.pause()
        assert await server.drain(SECONDS)
