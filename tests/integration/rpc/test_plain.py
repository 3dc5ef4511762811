"""Plain connections: who does not say who he is has to go, and a shortage of the system harms nobody for long."""

import asyncio
import resource
import socket
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from tests.integration.rpc.conftest import SECONDS, Connect, Serve
from tests.integration.rpc.verbs import Verbs
from tests.support.strangers import Stranger
from tests.support.waiting import eventually
from tests.support.zmtp import encode_message
from tests.unit.rpc.zmtp.test_codec import DEALER, SHAKEN
from xbus.errors import ConfigurationError
from xbus.rpc.dispatch import verb
from xbus.rpc.life_signs import LifeSigns
from xbus.rpc.zmtp.codec import GREETING

CROWD, OF_EACH = 20, 400
"""Strangers, and the messages of each, that come in one turn of the loop."""

IMPATIENT = LifeSigns(handshake_seconds=0.2)


def dialled(address: str) -> socket.socket:
    place = urlsplit(address)
    return socket.create_connection((place.hostname, place.port), SECONDS)


def is_over(peer: socket.socket) -> bool:
    """Whether the server has ended a connection; what it has sent before is dropped."""
    peer.setblocking(False)
    with suppress(BlockingIOError):
        try:
            while peer.recv(1000):
                pass
        except ConnectionResetError:
            pass
        return True
    return False


@pytest.mark.parametrize("said", [b"", GREETING[:10], GREETING, GREETING + DEALER[:-1]])
async def test_a_peer_that_does_not_say_who_it_is_has_to_go(
    serve: Serve, said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    server, address = serve(Verbs(), life_signs=IMPATIENT)
    with dialled(address) as silent, dialled(address) as honest:
        honest.sendall(SHAKEN)
        silent.sendall(said)
        await eventually(lambda: is_over(silent), "the silent one is put out")
        assert not is_over(honest)
    assert server.unreadable == 1
    assert "a connection was cut off" in caplog.text


async def test_a_call_may_come_right_behind_the_handshake_in_pieces(serve: Serve) -> None:
    verbs = Verbs()
    _, address = serve(verbs)
    with await asyncio.to_thread(Stranger, address) as known:
        known.call("echo", 1)
        assert (await asyncio.to_thread(known.answer))[1] == 1
    with dialled(address) as peer:
        for piece in (GREETING[:10], GREETING[10:], DEALER + encode_message([b"no call"])[:3]):
            peer.sendall(piece)
        await eventually(lambda: not is_over(peer), "it is heard")


async def test_who_comes_while_no_descriptor_is_free_is_taken_later(
    serve: Serve, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    _, address = serve(Verbs())
    client = connect(address)
    assert await client.call("echo", 1, timeout=SECONDS) == 1
    place = urlsplit(address)
    late = socket.socket()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with late:
        # The lowest number that is free is above all that are taken.
        resource.setrlimit(resource.RLIMIT_NOFILE, (_lowest_free(), before[1]))
        try:
            late.connect((place.hostname, place.port))
            await eventually(lambda: "a connection can't be taken" in caplog.text, "the server notes it")
            assert await client.call("echo", 2, timeout=SECONDS) == 2
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        late.sendall(SHAKEN)
        late.setblocking(False)
        await eventually(lambda: _has_come(late), "the server greets")


async def test_a_crowd_of_strangers_takes_turns_and_keeps_no_caller_waiting(serve: Serve) -> None:
    heard: list[int] = []

    class Noting:
        @verb("xbus.note")
        def note(self, number: int) -> None:
            """Note how much of the crowd was heard before."""
            heard.append(server.unreadable)

    server, address = serve(Noting())
    crowd = [await asyncio.to_thread(Stranger, address) for _ in range(CROWD)]
    with await asyncio.to_thread(Stranger, address) as known:
        known.call("xbus.note", 0)
        await asyncio.to_thread(known.answer)
        server.pause()
        for stranger in crowd:
            stranger.send_raw(encode_message([b"this is no request"]) * OF_EACH)
        known.call("xbus.note", 1)
        server.resume()
        await eventually(lambda: len(heard) == 2, "the known one is served")
        assert heard[1] < CROWD * OF_EACH / 4
        await eventually(lambda: server.unreadable == CROWD * OF_EACH, "all of the crowd are heard in the end")
    for stranger in crowd:
        stranger.close()


def _lowest_free() -> int:
    with socket.socket() as probe:
        return probe.fileno()


def _has_come(peer: socket.socket) -> bool:
    try:
        return bool(peer.recv(len(GREETING)))
    except BlockingIOError:
        return False


@pytest.mark.parametrize("host", ["*", "0.0.0.0", "127.0.0.1", "localhost", "lo"])
async def test_a_server_listens_at_any_address_of_zeromq(serve: Serve, connect: Connect, host: str) -> None:
    _, address = serve(Verbs(), address=f"tcp://{host}:*")
    port = address.rpartition(":")[2]
    assert await connect(f"tcp://127.0.0.1:{port}").call("echo", 1, timeout=SECONDS) == 1


@pytest.mark.parametrize("address", ["tcp://", "tcp://127.0.0.1", "tcp://127.0.0.1:x", "tcp://127.0.0.1:70000"])
async def test_an_address_that_is_none_is_refused(serve: Serve, address: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        serve(Verbs(), address=address)
    assert refused.value.code == "bad_address"
