"""Calls between our server and our client."""

import asyncio
import logging
import socket
from itertools import pairwise
from pathlib import Path

import pytest

from tests.integration.rpc.conftest import MAX_MESSAGE_BYTES, SECONDS, Connect, Serve
from tests.integration.rpc.network import network_to
from tests.integration.rpc.verbs import Verbs
from tests.support.waiting import eventually
from xbus.errors import ConfigurationError, ConnectionLost, Failed, Refused, TimedOut
from xbus.rpc import dealers
from xbus.rpc.client import Client
from xbus.rpc.life_signs import LifeSigns
from xbus.rpc.server import Server

CONNECTIONS = Path("/proc/net/tcp")
KEEPALIVE_TIMER = "02"


async def test_a_call_is_answered(serve: Serve, connect: Connect) -> None:
    _, address = serve(Verbs())
    client = connect(address)
    assert await client.call("echo", ["a", b"b", {"c": None}], timeout=SECONDS) == ["a", b"b", {"c": None}]
    assert client.owed == 0


async def test_a_large_value_passes_and_one_above_the_limit_ends_the_connection(serve: Serve, connect: Connect) -> None:
    _, address = serve(Verbs())
    client = connect(address)
    large = b"x" * (MAX_MESSAGE_BYTES - 100)
    assert await client.call("echo", large, timeout=SECONDS) == large
    with pytest.raises(ConnectionLost):
        await client.call("echo", b"x" * (MAX_MESSAGE_BYTES + 1), timeout=SECONDS)
    assert await client.call("echo", 1, timeout=SECONDS) == 1


async def test_pipelined_calls_are_carried_out_in_the_order_made(serve: Serve, connect: Connect) -> None:
    verbs = Verbs()
    _, address = serve(verbs)
    client = connect(address)
    # The first half is made before the connection is there.
    calls = [client.call("xbus.note", number, timeout=SECONDS) for number in range(500)]
    await calls[0]
    calls += [client.call("xbus.note", number, timeout=SECONDS) for number in range(500, 1000)]
    assert await asyncio.gather(*calls) == list(range(1000))
    assert verbs.called == list(range(1000))


async def test_a_server_that_comes_later_is_awaited(serve: Serve, connect: Connect, unused_address: str) -> None:
    client = connect(unused_address)
    call = client.call("echo", 1, timeout=SECONDS)
    await asyncio.sleep(0)
    serve(Verbs(), address=unused_address)
    assert await call == 1


async def test_a_connection_that_takes_no_calls_at_first_gets_them_later(
    serve: Serve, connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of libzmq's may."""
    looks = iter([False, False])
    monkeypatch.setattr(dealers, "can_write", lambda socket: next(looks, True))
    _, address = serve(Verbs(), address=f"ipc://{tmp_path}/server")
    assert await connect(address).call("echo", 1, timeout=SECONDS) == 1
    assert next(looks, None) is None


async def test_a_listener_that_says_nothing_is_given_up_for_the_server(
    connect: Connect, serve: Serve, unused_address: str
) -> None:
    """As a proxy's, or the backlog of a socket that nobody reads any more."""
    port = int(unused_address.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)) as mute:
        mute.settimeout(SECONDS)
        client = connect(unused_address, life_signs=LifeSigns(handshake_seconds=0.2))
        call = client.call("echo", 1, timeout=SECONDS)
        taken, _ = await asyncio.to_thread(mute.accept)
    # Only the listener is gone; the connection stays open, and says nothing.
    with taken:
        serve(Verbs(), address=unused_address)
        assert await call == 1


@pytest.mark.parametrize("verb", ["wait", "promise"])
async def test_an_answer_may_come_later_than_that_of_the_next_call(serve: Serve, connect: Connect, verb: str) -> None:
    verbs = Verbs()
    server, address = serve(verbs)
    client = connect(address)
    held = client.call(verb, timeout=SECONDS)
    assert await client.call("echo", 1, timeout=SECONDS) == 1
    assert (server.unanswered, client.owed) == (1, 1)
    assert not await server.drain(0)
    verbs.gate.set_result(7)
    assert await server.drain(SECONDS)
    assert await held == 7


@pytest.mark.parametrize(
    ("verb", "kind", "code"),
    [
        ("refuse", Refused, "unknown_type"),
        ("fail_later", Failed, "journal_unavailable"),
        ("nothing", Refused, "unknown_method"),
        ("echo", Refused, "wrong_arguments"),
    ],
)
async def test_errors_travel_by_their_code(
    serve: Serve, connect: Connect, verb: str, kind: type[Exception], code: str
) -> None:
    _, address = serve(Verbs())
    with pytest.raises(kind) as caught:
        await connect(address).call(verb, timeout=SECONDS)
    assert getattr(caught.value, "code", None) == code


@pytest.mark.parametrize("verb", ["break", "unsendable"])
async def test_an_error_inside_is_logged_here_and_not_told_there(
    serve: Serve, connect: Connect, verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    _, address = serve(Verbs())
    with caplog.at_level(logging.ERROR), pytest.raises(Failed) as caught:
        await connect(address).call(verb, timeout=SECONDS)
    assert caught.value.code == "internal_error"
    assert "secret" not in str(caught.value)
    (record,) = caplog.records
    assert record.exc_info
    assert record.__dict__["action"] == "handler_failed"


async def test_a_late_answer_settles_a_call_that_timed_out(serve: Serve, connect: Connect) -> None:
    verbs = Verbs()
    _, address = serve(verbs)
    client = connect(address)
    await client.call("echo", 1, timeout=SECONDS)
    with pytest.raises(TimedOut, match="no answer to wait within"):
        await client.call("wait", timeout=0.01)
    assert client.owed == 1
    assert [call.method for call in client.overdue] == ["wait"]
    settled = asyncio.ensure_future(client.settled())
    await client.call("echo", 1, timeout=SECONDS)
    assert not settled.done()
    verbs.gate.set_result(7)
    await asyncio.wait_for(settled, SECONDS)
    assert client.owed == 0
    assert client.overdue == []


async def test_a_call_whose_time_begins_anew_outlives_its_time_out(serve: Serve, connect: Connect) -> None:
    verbs = Verbs()
    _, address = serve(verbs)
    client = connect(address)
    now = asyncio.get_running_loop().time
    seconds = 0.2
    asked: list[float] = []

    def renewed() -> float:
        asked.append(now())
        return asked[min(len(asked), 3) - 1]

    with pytest.raises(TimedOut):
        await client.call("wait", timeout=seconds, renewed=renewed)
    assert len(asked) == 4
    assert all(later - earlier > seconds / 2 for earlier, later in pairwise(asked))

    def renewed_for_ever() -> float:
        asked.append(now())
        if len(asked) == 7:
            verbs.gate.set_result(7)
        return now()

    assert await client.call("wait", timeout=seconds, renewed=renewed_for_ever) == 7


async def test_a_call_that_was_never_sent_is_not_owed_and_not_sent_later(
    serve: Serve, connect: Connect, unused_address: str
) -> None:
    client = connect(unused_address)
    with pytest.raises(TimedOut):
        await client.call("xbus.note", 1, timeout=0.01)
    assert client.owed == 0
    verbs = Verbs()
    serve(verbs, address=unused_address)
    await client.call("xbus.note", 2, timeout=SECONDS)
    assert verbs.called == [2]


async def test_a_call_given_up_by_its_caller_stays_owed(serve: Serve, connect: Connect) -> None:
    verbs = Verbs()
    _, address = serve(verbs)
    client = connect(address)
    client.call("wait", timeout=SECONDS).cancel()
    verbs.gate.set_result(1)
    assert client.owed == 1
    await asyncio.wait_for(client.settled(), SECONDS)


async def test_lost_connections_fail_their_calls_and_are_told_once_each(
    serve: Serve, serve_again: Serve, connect: Connect
) -> None:
    lost: list[str] = []
    verbs = Verbs()
    server, address = serve(verbs)
    client = connect(address, on_lost=lambda: lost.append("lost"))
    await lose_three_calls(server, client)
    assert lost == ["lost"]
    server, _ = serve_again(verbs, address=address)
    await lose_three_calls(server, client)
    assert lost == ["lost"] * 2


async def lose_three_calls(server: Server, client: Client) -> None:
    await client.call("echo", 1, timeout=SECONDS)
    held = [client.call("wait", timeout=SECONDS) for _ in range(3)]
    await eventually(lambda: server.unanswered == 3, "three calls wait")
    server.close()
    results = await asyncio.wait_for(asyncio.gather(*held, return_exceptions=True), SECONDS)
    assert [type(result) for result in results] == [ConnectionLost] * 3
    await client.settled()


async def test_no_call_outlives_its_connection(serve: Serve, serve_again: Serve, connect: Connect) -> None:
    """What was made for a server that went away must not reach the one that takes its place."""
    server, address = serve(Verbs())
    lost = asyncio.Event()
    client = connect(address, on_lost=lost.set)
    await client.call("echo", 1, timeout=SECONDS)
    server.pause()
    stale = [client.call("xbus.note", 1) for _ in range(2000)]
    server.close()
    await asyncio.wait_for(lost.wait(), SECONDS)
    assert {type(result) for result in await asyncio.gather(*stale, return_exceptions=True)} == {ConnectionLost}
    verbs = Verbs()
    serve_again(verbs, address=address)
    await client.call("xbus.note", 2, timeout=SECONDS)
    assert verbs.called == [2]


async def test_closing_the_client_fails_what_is_unanswered(serve: Serve, connect: Connect) -> None:
    _, address = serve(Verbs())
    client = connect(address)
    held = client.call("wait", timeout=SECONDS)
    client.close()
    client.close()
    for call in (held, client.call("echo", 1)):
        with pytest.raises(ConnectionLost):
            await call
    assert client.owed == 0


async def test_a_server_that_falls_silent_is_lost_by_heartbeat(serve: Serve, connect: Connect) -> None:
    _, address = serve(Verbs())
    async with network_to(address) as network:
        lost = asyncio.Event()
        # Not so often that this process itself, which forwards what is sent, may seem silent on a busy machine.
        client = connect(network.address, on_lost=lost.set, life_signs=LifeSigns(heartbeat_seconds=1))
        held = client.call("wait", timeout=SECONDS)
        assert await client.call("echo", 1, timeout=SECONDS) == 1
        network.silent = True
        with pytest.raises(ConnectionLost):
            await held
        assert lost.is_set()
        client.close()


@pytest.mark.skipif(not CONNECTIONS.exists(), reason="only Linux tells which timers its connections have")
async def test_a_connection_is_kept_alive_by_tcp(serve: Serve, connect: Connect) -> None:
    """A machine that vanished can't be shown on one machine, so this looks whether the kernel asks it."""
    _, address = serve(Verbs())
    server = f":{int(address.rpartition(':')[2]):04X}"

    def timers() -> list[str]:
        connections = [line.split() for line in CONNECTIONS.read_text().splitlines()[1:]]
        return [fields[5].partition(":")[0] for fields in connections if fields[2].endswith(server)]

    plain = connect(address)
    assert await plain.call("echo", 1, timeout=SECONDS) == 1
    await eventually(lambda: timers() == ["00"], "nothing is under way")
    plain.close()
    await eventually(lambda: KEEPALIVE_TIMER not in timers(), "it is closed")
    client = connect(address, life_signs=LifeSigns(keepalive_seconds=5))
    assert await client.call("echo", 1, timeout=SECONDS) == 1
    await eventually(lambda: KEEPALIVE_TIMER in timers(), "the kernel keeps it alive")
    client.close()


@pytest.mark.parametrize("address", ["nonsense", "tcp://", "http://127.0.0.1:1"])
async def test_a_bad_address_is_told(serve: Serve, connect: Connect, address: str) -> None:
    for use in (lambda: serve(Verbs(), address=address), lambda: connect(address)):
        with pytest.raises(ConfigurationError) as caught:
            use()
        assert caught.value.code == "bad_address"


async def test_an_address_in_use_is_told(serve: Serve) -> None:
    _, address = serve(Verbs())
    with pytest.raises(ConfigurationError, match="in use") as caught:
        serve(Verbs(), address=address)
    assert caught.value.code == "address_in_use"


async def test_nothing_is_read_while_there_is_no_room(serve: Serve, connect: Connect) -> None:
    room = 5
    verbs = Verbs()
    server, address = serve(verbs, may_read=lambda: len(verbs.called) < room)
    client = connect(address)
    calls = [client.call("xbus.note", number, timeout=SECONDS) for number in range(2000)]
    await calls[room - 1]
    assert not calls[room].done()
    assert len(verbs.called) == room
    room = 2000
    server.resume()
    assert await asyncio.gather(*calls) == list(range(2000))
    assert verbs.called == list(range(2000))


async def test_pause_and_resume(serve: Serve, connect: Connect) -> None:
    verbs = Verbs()
    server, address = serve(verbs)
    client = connect(address)
    await client.call("echo", 1, timeout=SECONDS)
    server.pause()
    with pytest.raises(TimedOut):
        await client.call("xbus.note", 1, timeout=0.1)
    assert verbs.called == []
    server.resume()
    await client.settled()
    assert verbs.called == [1]


async def test_a_handler_may_pause_its_own_server(serve: Serve, connect: Connect) -> None:
    verbs = Verbs()
    server, address = serve(verbs, may_read=lambda: True)
    verbs.gate.add_done_callback(lambda _: server.resume())
    client = connect(address)
    calls = [client.call("xbus.note", number, timeout=SECONDS) for number in range(300)]
    await calls[0]
    server.pause()
    asyncio.get_running_loop().call_later(0.05, verbs.gate.set_result, 1)
    assert await asyncio.gather(*calls) == list(range(300))
