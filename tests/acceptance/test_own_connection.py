"""Recipients that open no port: the broker calls them over the connection that they made."""

import asyncio
import itertools
import os
import secrets
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
import zmq
import zmq.asyncio

from tests.conftest import StartDaemon, StartProcess
from tests.support.bus import PASSWORD, add_bus
from tests.support.daemon import Daemon
from tests.support.listening import listening_ports
from tests.support.processes import script
from tests.support.sdk import Keeps, emit, send_numbers, send_values
from tests.support.serving import serving
from tests.support.showing import become
from tests.support.waiting import answered, eventually
from tests.support.ways import OWN_CONNECTION, WAY
from tests.torture.proxy import Proxy
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.log.sessions import read_registrations
from xbus.errors import Refused
from xbus.recipient import Batch, Event, Worker
from xbus.rpc.client import Client
from xbus.rpc.context import new_context
from xbus.rpc.dispatch import Dispatch

ANSWER_SECONDS = 90.0

ENVELOPES_PROGRAM = """
from xbus.recipient import Consumer

class Notes(Consumer):
    def commit(self, envelope):
        with open("commits", "a") as commits:
            commits.write(f"{envelope.id}\\n")
"""


@pytest.fixture(autouse=True)
def own_connection() -> Iterator[None]:
    with WAY.taken(OWN_CONNECTION):
        yield


@pytest.fixture
def daemon(sqlite_url: str, start_daemon: StartDaemon) -> Daemon:
    add_bus(sqlite_url, {"numbers": {"c": []}, "words": {"w": ["d"], "d": []}})
    return start_daemon(sqlite_url)


async def test_a_consumer_gets_an_envelope_over_the_connection_that_it_made(daemon: Daemon) -> None:
    consumer = Keeps()
    async with serving(daemon, "c_1", consumer):
        receipt = await emit(daemon, send_numbers(2_000))
        await become(daemon.url, receipt.envelope_id, c_1="done")
        [stored] = _registrations(daemon)
        assert stored.uri.startswith("served:")
    assert consumer.committed == {receipt.envelope_id: [(number, number) for number in range(2_000)]}
    assert consumer.rolled_back == []
    assert _registrations(daemon) == [], "it has logged out"


async def test_a_program_that_receives_opens_no_port(
    daemon: Daemon, start_process: StartProcess, tmp_path: Path
) -> None:
    (tmp_path / "notes.py").write_text(ENVELOPES_PROGRAM)
    (tmp_path / "password").write_text(PASSWORD)
    options = ["--login", "c_1", "--password-file", tmp_path / "password", "--back", daemon.back]
    program = start_process(script("xbus"), "recipient", "run", "notes:Notes", *options)
    receipt = await emit(daemon, send_numbers(3))
    await become(daemon.url, receipt.envelope_id, c_1="done")
    assert listening_ports(program.pid) == set()
    assert len(listening_ports(daemon.pid)) == 2, "this test sees ports where there are some"
    program.stop()
    program = start_process(script("xbus"), "recipient", "run", "notes:Notes", *options, "--bind", "tcp://127.0.0.1:*")
    receipt = await emit(daemon, send_numbers(3))
    await become(daemon.url, receipt.envelope_id, c_1="done")
    assert len(listening_ports(program.pid)) == 1


class Doubles(Worker):
    """Answers each item twice as long."""

    def on_batch(self, event: Event, batch: Batch) -> Any:
        return [item.with_value(item.value * 2) for item in batch]


async def test_large_batches_go_both_ways(daemon: Daemon) -> None:
    consumer = Keeps()
    texts = [os.urandom(2_000_000).hex() for _ in range(6)]

    def send(emitter: Any) -> Any:
        with emitter.envelope() as envelope, envelope.event("words") as event:
            for text in texts:
                event.send(text)
        return envelope.receipt

    async with serving(daemon, "w_1", Doubles()), serving(daemon, "d_1", consumer):
        receipt = await emit(daemon, send)
        await become(daemon.url, receipt.envelope_id, d_1="done")
    assert [value for _, value in consumer.committed[receipt.envelope_id]] == [text * 2 for text in texts]


async def test_a_connection_that_is_cut_is_mended_and_the_envelope_comes_again(
    daemon: Daemon, caplog: pytest.LogCaptureFixture
) -> None:
    """1. The consumer is in the midst of an envelope. 2. The connection is cut. 3. It rolls back, registers anew by a
    new connection with the token that it has, and gets the envelope again."""
    consumer = Waits()
    async with passing(daemon) as proxy, serving(daemon, "c_1", consumer, back=f"tcp://127.0.0.1:{proxy.port}"):
        receipt = await emit(daemon, _send_two_events)
        await eventually(consumer.reached.is_set, "the consumer is in the midst of it")
        proxy.cut()
        await answered(lambda: _is_lost(daemon), "the broker notices")
        await eventually(lambda: "the connection to the broker was lost" in caplog.text, "the recipient notices")
        proxy.mend()
        consumer.go.set()
        await become(daemon.url, receipt.envelope_id, c_1="done")
    # Once by itself when the connection was lost, once as the broker says so before it brings it again.
    assert consumer.rolled_back == [receipt.envelope_id] * 2
    assert consumer.committed == {receipt.envelope_id: [(0, 1), (0, 2)]}
    assert daemon.log.count("logged in") == 2, "one emitter and one role"


@asynccontextmanager
async def passing(daemon: Daemon) -> AsyncIterator[Proxy]:
    """A proxy before the back of a broker."""
    proxy = Proxy(int(daemon.back.rpartition(":")[2]))
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.close()


def _send_two_events(emitter: Any) -> Any:
    with emitter.envelope() as envelope:
        for number in (1, 2):
            with envelope.event("numbers") as event:
                event.send(number)
    return envelope.receipt


class Waits(Keeps):
    """Waits in the first item that it ever gets."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()
        self.go = threading.Event()

    def on_item(self, event: Event, item: Any) -> None:
        self.reached.set()
        self.go.wait(ANSWER_SECONDS)
        super().on_item(event, item)


async def _is_lost(daemon: Daemon) -> bool:
    return "recipient left: the connection was lost" in daemon.log


@pytest.mark.parametrize("ending", ["kill", "stop"])
async def test_recipients_come_back_to_a_broker_that_was_away(daemon: Daemon, ending: str) -> None:
    consumer = Keeps()
    async with serving(daemon, "c_1", consumer):
        first = await emit(daemon, send_numbers(3))
        await become(daemon.url, first.envelope_id, c_1="done")
        logins = daemon.log.count("logged in")
        if ending == "kill":
            daemon.kill()
        else:
            daemon.stop()
        daemon.start()
        second = await emit(daemon, send_numbers(4))
        await become(daemon.url, second.envelope_id, c_1="done")
        assert daemon.log.count("logged in") == logins + 1, "only the emitter logged in again"
    assert list(consumer.committed) == [first.envelope_id, second.envelope_id]
    assert "not_restored" not in daemon.log


async def test_a_program_that_is_killed_is_missed_at_once(
    sqlite_url: str, start_daemon: StartDaemon, start_process: StartProcess, tmp_path: Path
) -> None:
    """No ping has to be missed for that: nobody watches here."""
    add_bus(sqlite_url, {"numbers": {"c": []}})
    daemon = start_daemon(sqlite_url, {"supervision": {"heartbeat": 0, "enabled": "no"}})
    (tmp_path / "notes.py").write_text(ENVELOPES_PROGRAM)
    (tmp_path / "password").write_text(PASSWORD)
    options = ["--login", "c_1", "--password-file", tmp_path / "password", "--back", daemon.back]
    program = start_process(script("xbus"), "recipient", "run", "notes:Notes", *options)
    await eventually(lambda: bool(_registrations(daemon)), "it registers")
    program.kill()
    await answered(lambda: _is_lost(daemon), "the broker notices")
    await eventually(lambda: _registrations(daemon) == [], "it is registered no more")


# -- by the wire alone -------------------------------------------------------------------------------------------------


class Wire:
    """A program in another language: frames by hand, as ``docs/wire.md`` has them."""

    def __init__(self, back: str) -> None:
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.connect(back)
        self._numbers = itertools.count(1)
        self.calls: list[tuple[bytes, int, str, list[Any]]] = []
        """Channel, number, verb and arguments of the calls that are not answered yet."""

    def close(self) -> None:
        self._socket.close(linger=0)
        self._context.term()

    async def call(self, verb: str, *args: Any) -> Any:
        """Call the back; what it calls meanwhile is kept, introductions are answered."""
        number = next(self._numbers)
        header = struct.pack("=HHLd", 1, 2, number, 0.0)
        await self._socket.send_multipart([header, verb.encode(), msgpack.packb(args), b"\x80"])
        while True:
            frames = await self.receive()
            if len(frames) == 2 and struct.unpack("=HHLd?", frames[0])[2] == number:
                is_error, answer = struct.unpack("=HHLd?", frames[0])[4], msgpack.unpackb(frames[1])
                if is_error:
                    raise RuntimeError(answer[1][2])
                return answer

    async def receive(self) -> list[bytes]:
        """The next message; a call is noted, and answered if it is one of an introduction."""
        async with asyncio.timeout(ANSWER_SECONDS):
            frames: list[bytes] = await self._socket.recv_multipart()
        if len(frames) == 5:
            channel, header, verb, args, _ = frames
            called = channel, struct.unpack("=HHLd", header)[2], verb.decode(), msgpack.unpackb(args)
            if not await self._introduce(*called):
                self.calls.append(called)
        return frames

    async def _introduce(self, channel: bytes, number: int, verb: str, args: list[Any]) -> bool:
        now = "2026-01-01T00:00:00+00:00"
        metadata = {"name": "w", "version": 1.0, "api_version": 0.2, "host": "h", "start_date": now, "local_time": now}
        answers = {"get_metadata": metadata, "has_clearing": [False, None], "has_immediate_reply": [False, None]}
        answer = args[0] if verb == "ping" else answers.get(verb)
        if answer is not None:
            await self.answer(channel, number, answer)
        return answer is not None

    async def answer(self, channel: bytes, number: int, answer: Any) -> None:
        header = struct.pack("=HHLd?", 1, 2, number, 0.0, False)
        await self._socket.send_multipart([channel, header, msgpack.packb(answer)])

    async def called(self, verb: str, channel: bytes | None = None) -> tuple[bytes, int, str, list[Any]]:
        """Wait for a call, and take it."""
        while True:
            for call in self.calls:
                if call[2] == verb and channel in (None, call[0]):
                    self.calls.remove(call)
                    return call
            await self.receive()

    async def serve(self, login: str) -> bytes:
        """Log in and register; give the channel."""
        token = (await self.call("xbus.login", login, PASSWORD))["token"]
        channel = secrets.token_bytes(12)
        assert "max_batch_bytes" in await self.call("xbus.serve", token, channel)
        return channel


@pytest.fixture
def wire(daemon: Daemon) -> Iterator[Wire]:
    program = Wire(daemon.back)
    yield program
    program.close()


@pytest.fixture
def stranger(daemon: Daemon) -> Iterator[Wire]:
    program = Wire(daemon.back)
    yield program
    program.close()


@pytest.fixture
def one_item(daemon: Daemon) -> Any:
    """Sends an envelope of one item."""
    return lambda: emit(daemon, send_values(["x"]))


async def _commit(wire: Wire, channel: bytes) -> str:
    """Take the next envelope, all of it."""
    for verb in ("start_event", "send_item", "end_event"):
        _, number, _, _ = await wire.called(verb, channel)
        await wire.answer(channel, number, [True, None])
    _, number, _, (envelope_id,) = await wire.called("end_envelope", channel)
    await wire.answer(channel, number, [True, None])
    return str(envelope_id)


async def test_a_recipient_needs_nothing_but_the_frames(daemon: Daemon, wire: Wire, one_item: Any) -> None:
    channel = await wire.serve("c_1")
    receipt = await one_item()
    assert await _commit(wire, channel) == receipt.envelope_id
    await become(daemon.url, receipt.envelope_id, c_1="done")


async def test_several_roles_share_a_connection(daemon: Daemon, wire: Wire, one_item: Any) -> None:
    of_c, of_d = await wire.serve("c_1"), await wire.serve("d_1")
    assert of_c != of_d
    async with serving(daemon, "w_1", Doubles()):
        first = await one_item()
        second = await emit(daemon, _send_word)
        assert await _commit(wire, of_d) == second.envelope_id
        assert await _commit(wire, of_c) == first.envelope_id


def _send_word(emitter: Any) -> Any:
    with emitter.envelope() as envelope, envelope.event("words") as event:
        event.send("ab")
    return envelope.receipt


async def test_nobody_else_can_answer(daemon: Daemon, wire: Wire, stranger: Wire, one_item: Any) -> None:
    """Not by the right channel and number over another connection, nor by another channel of the same."""
    channel = await wire.serve("c_1")
    receipt = await one_item()
    _, number, _, _ = await wire.called("start_event")
    for guess in range(number + 1):
        await stranger.answer(channel, guess, [False, []])
        await wire.answer(b"another channel", guess, [False, []])
    # The broker has read those when it answers this.
    assert await stranger.call("xbus.health")
    assert await wire.call("xbus.health")
    assert "a peer sends what is no request" in daemon.log
    await wire.answer(channel, number, [True, None])
    for verb in ("send_item", "end_event", "end_envelope"):
        _, number, _, _ = await wire.called(verb)
        await wire.answer(channel, number, [True, None])
    await become(daemon.url, receipt.envelope_id, c_1="done")


async def test_a_new_registration_takes_the_place_of_the_older_one(daemon: Daemon, wire: Wire, one_item: Any) -> None:
    """A late answer by the channel before is not taken for one of the new."""
    old = await wire.serve("c_1")
    receipt = await one_item()
    _, number, _, _ = await wire.called("start_event", old)
    new = await wire.serve("c_1")
    await wire.answer(old, number, [False, []])
    channel, number, _, _ = await wire.called("stop_envelope")
    if channel == old:  # it was alive, so it was told to forget what it had
        channel, number, _, _ = await wire.called("stop_envelope", new)
    await wire.answer(new, number, True)
    assert await _commit(wire, new) == receipt.envelope_id
    await become(daemon.url, receipt.envelope_id, c_1="done")


@pytest.mark.parametrize("channel", [b"", b"seven b", b"x" * 65])
async def test_a_channel_must_be_fresh_and_of_some_length(wire: Wire, channel: bytes) -> None:
    token = (await wire.call("xbus.login", "c_1", PASSWORD))["token"]
    with pytest.raises(RuntimeError, match="bad_channel"):
        await wire.call("xbus.serve", token, channel)
    used = secrets.token_bytes(8)
    await wire.call("xbus.serve", token, used)
    with pytest.raises(RuntimeError, match="bad_channel"):
        await wire.call("xbus.serve", token, used)


async def test_a_session_is_needed(wire: Wire) -> None:
    with pytest.raises(RuntimeError, match="session_unknown"):
        await wire.call("xbus.serve", "nothing", secrets.token_bytes(8))


async def test_a_heartbeat_counts_over_the_connection_of_the_registration_alone(wire: Wire, stranger: Wire) -> None:
    """One that has lost its connection learns by the next heartbeat that it must register again."""
    token = (await wire.call("xbus.login", "c_1", PASSWORD))["token"]
    await wire.call("xbus.serve", token, secrets.token_bytes(8))
    assert await wire.call("xbus.heartbeat", token, []) == {"registered": True}
    assert await stranger.call("xbus.heartbeat", token, []) == {"registered": False}


async def test_a_call_that_is_too_large_is_refused(wire: Wire) -> None:
    """Only the answers of recipients may be larger."""
    token = (await wire.call("xbus.login", "c_1", PASSWORD))["token"]
    with pytest.raises(RuntimeError, match="call_too_large"):
        await wire.call("xbus.heartbeat", token, "x" * 2_000_000)
    with pytest.raises(RuntimeError, match="session_unknown"):
        await wire.call("xbus.login", "c_1", "x" * 2_000_000)


async def test_a_slow_recipient_holds_up_nobody(daemon: Daemon, wire: Wire, one_item: Any) -> None:
    """It reads nothing while others get megabytes over the same port."""
    await wire.serve("c_1")
    await one_item()
    consumer = Keeps()
    async with serving(daemon, "w_1", Doubles()), serving(daemon, "d_1", consumer):
        for _ in range(3):
            await emit(daemon, _send_megabytes)
        await eventually(lambda: len(consumer.committed) == 3, "the others get theirs")


def _send_megabytes(emitter: Any) -> Any:
    with emitter.envelope() as envelope, envelope.event("words") as event:
        for _ in range(10):
            event.send("x" * 1_000_000)
    return envelope.receipt


async def test_a_recipient_refuses_calls_by_no_channel_of_its_own(daemon: Daemon) -> None:
    """A broker of a later registration gets no answer, nor anybody who plays the broker."""
    context = new_context()
    client = Client(context, name="back")
    client.connect(daemon.back)
    client.channels.open(b"first channel", Dispatch())
    client.channels.close(b"first channel")
    client.channels.take([b"another channel", b"x", b"ping", b"\x90", b"\x80"])
    assert client.channels.unreadable == 1
    assert not client.channels.is_open(b"first channel")
    client.close()
    context.destroy()


async def test_an_older_broker_is_told_apart(daemon: Daemon) -> None:
    """The front stands in for it: it knows no such verb."""
    context = new_context()
    client = Client(context, name="front")
    client.connect(daemon.front)
    with pytest.raises(Refused) as refusal:
        await client.call("xbus.serve", "token", b"channel!", timeout=ANSWER_SECONDS)
    assert refusal.value.code == "unknown_method"
    client.close()
    context.destroy()


def _registrations(daemon: Daemon) -> list[Any]:
    with reading(daemon.url) as connection:
        return read_registrations(connection)
