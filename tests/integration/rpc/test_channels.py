"""A server calls its client over the connection that the client made, by channels."""

import asyncio
import struct
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest

from tests.integration.rpc.conftest import MAX_MESSAGE_BYTES, SECONDS, Connect, Dial, Serve
from tests.support.waiting import eventually
from xbus.errors import ConnectionLost, Failed, ProtocolError, Refused, TimedOut
from xbus.rpc.client import Client
from xbus.rpc.dispatch import Dispatch, verb
from xbus.rpc.guard import ServerLimits
from xbus.rpc.owed_calls import PeerClient
from xbus.rpc.server import Server

CHANNEL = b"the first channel"


class Port:
    """What a client calls: it has itself called back."""

    def __init__(self) -> None:
        self.server: Server | None = None
        self.peers: list[PeerClient] = []
        self.lost: list[bytes] = []

    @verb("serve")
    def serve(self, channel: bytes) -> bool:
        assert self.server is not None
        peer = self.server.client_of(self.server.caller, channel, "the peer", lambda: self.lost.append(channel))
        self.peers.append(peer)
        return True

    @verb("echo")
    def echo(self, value: Any) -> Any:
        return value


class Callee:
    """What the server calls."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.go = asyncio.Event()

    @verb("ping")
    def ping(self, text: str) -> str:
        return text

    @verb("note")
    def note(self, value: Any) -> int:
        self.calls.append(value)
        return len(self.calls)

    @verb("wait")
    async def wait(self) -> str:
        await self.go.wait()
        return "gone on"


@pytest.fixture
def port() -> Port:
    return Port()


@pytest.fixture
async def address(port: Port, serve: Serve) -> str:
    port.server, address = serve(port, limits=ServerLimits(64 * MAX_MESSAGE_BYTES))
    return address


async def served(client: Client, callee: object, channel: bytes = CHANNEL) -> None:
    client.channels.open(channel, Dispatch(callee))
    assert await client.call("serve", channel, timeout=SECONDS)


async def test_calls_go_both_ways_at_the_same_time(port: Port, address: str, connect: Connect) -> None:
    client, callee = connect(address), Callee()
    await served(client, callee)
    [peer] = port.peers
    there = [client.call("echo", number, timeout=SECONDS) for number in range(200)]
    back = [peer.call("note", number, timeout=SECONDS) for number in range(200)]
    assert await asyncio.gather(*there) == list(range(200))
    assert await asyncio.gather(*back) == list(range(1, 201))
    assert callee.calls == list(range(200))
    assert peer.owed == 0
    assert peer.heard_at is not None


async def test_errors_and_late_answers(port: Port, address: str, connect: Connect) -> None:
    client, callee = connect(address), Callee()
    await served(client, callee)
    [peer] = port.peers
    with pytest.raises(Refused) as refused:
        await peer.call("nothing", timeout=SECONDS)
    assert refused.value.code == "unknown_method"
    with pytest.raises(TimedOut):
        await peer.call("wait", timeout=0.01)
    assert peer.owed == 1
    callee.go.set()
    await peer.settled()


async def test_a_channel_that_was_closed_is_superseded(port: Port, address: str, connect: Connect) -> None:
    client, callee = connect(address), Callee()
    await served(client, callee)
    waiting = port.peers[0].call("wait")
    await port.peers[0].call("note", 1, timeout=SECONDS)
    client.channels.close(CHANNEL)
    await served(client, callee, b"the second channel")
    callee.go.set()
    with pytest.raises(Failed) as superseded:
        await port.peers[0].call("note", 2, timeout=SECONDS)
    assert superseded.value.code == "connection_superseded"
    assert await port.peers[1].call("note", 3, timeout=SECONDS) == 2
    assert not waiting.done(), "what came by a closed channel is not answered"
    waiting.cancel()
    assert callee.calls == [1, 3]


async def test_a_client_that_goes_is_missed_at_once(port: Port, address: str, connect: Connect) -> None:
    client, other = connect(address), connect(address)
    callee = Callee()
    await served(client, callee)
    await served(other, Callee())
    waiting = port.peers[0].call("wait")
    await port.peers[0].call("note", 1, timeout=SECONDS)
    client.close()
    with pytest.raises(ConnectionLost):
        await waiting
    assert port.lost == [CHANNEL]
    with pytest.raises(ConnectionLost):
        await port.peers[0].call("note", 2)
    assert await port.peers[1].call("note", 1, timeout=SECONDS) == 1


async def test_a_client_that_lost_its_server_takes_no_calls_of_before(
    port: Port, address: str, connect: Connect, serve_again: Serve
) -> None:
    lost = asyncio.Event()
    client, callee = connect(address, on_lost=lost.set), Callee()
    await served(client, callee)
    assert client.channels.is_open(CHANNEL)
    assert port.server is not None
    port.server.close()
    await asyncio.wait_for(lost.wait(), SECONDS)
    assert not client.channels.is_open(CHANNEL)
    port.server, _ = serve_again(port, address=address)
    await served(client, callee, b"the second channel")
    assert await port.peers[1].call("note", 1, timeout=SECONDS) == 1
    with pytest.raises(ConnectionLost):
        await port.peers[0].call("note", 2)


async def test_a_full_queue_loses_no_call_and_keeps_their_order(port: Port, serve: Serve, dial: Dial) -> None:
    """The peer reads nothing, and libzmq takes three messages for it beyond what the machine keeps."""
    port.server, address = serve(port, limits=ServerLimits(64 * MAX_MESSAGE_BYTES, replies_unread=3))
    peer = dial(address, RCVHWM=1)
    peer.send_multipart([struct.pack("=HHLd", 1, 2, 3, 0), b"serve", msgpack.packb([CHANNEL]), b"\x80"])
    await eventually(lambda: bool(port.peers), "it is called")
    [client] = port.peers
    count = 200
    calls = [client.call("note", number, b"x" * MAX_MESSAGE_BYTES, timeout=SECONDS) for number in range(count)]
    assert client.owed == count
    read: list[int] = []

    def read_on() -> bool:
        while peer.poll(0):
            frames = peer.recv_multipart()
            if len(frames) == 5:
                read.append(msgpack.unpackb(frames[3])[0])
        return len(read) == count

    assert not read_on(), "some were kept back"
    await eventually(read_on, "all come")
    assert read == list(range(count))
    client.close()
    assert {type(call.exception()) for call in calls} == {ConnectionLost}


async def test_an_answer_that_nobody_waits_for_is_counted(port: Port, address: str, dial: Dial) -> None:
    peer = dial(address)
    answer = struct.pack("=HHLd?", 1, 2, 0, 0, False)
    peer.send_multipart([CHANNEL, answer, b"\xc0"])
    await eventually(lambda: port.server is not None and port.server.unreadable == 1, "it is counted")
    with pytest.raises(ProtocolError):
        port.server._peers.answered([b"somebody", CHANNEL, answer, b"\xc0"])  # type: ignore[union-attr]


@pytest.mark.parametrize("channel", [b"short", b"x" * 65, CHANNEL])
async def test_a_channel_is_fresh_and_neither_short_nor_long(
    port: Port, address: str, connect: Connect, channel: bytes
) -> None:
    client = connect(address)
    await served(client, Callee())
    port.peers[0].close()
    with pytest.raises(Refused) as refused:
        await client.call("serve", channel, timeout=SECONDS)
    assert refused.value.code == "bad_channel"


async def test_a_call_that_is_too_large_is_refused_unopened(serve: Serve, connect: Connect) -> None:
    _, address = serve(Port(), limits=ServerLimits(MAX_MESSAGE_BYTES, max_call_bytes=1000))
    client = connect(address)
    with pytest.raises(Refused) as refused:
        await client.call("echo", b"x" * 1000, timeout=SECONDS)
    assert refused.value.code == "call_too_large"
    assert await client.call("echo", b"x" * 900, timeout=SECONDS) == b"x" * 900
