"""Encrypted connections beside plain ones: who gets in by which key, and who is put out again."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import zmq

from tests.integration.rpc.conftest import MAX_MESSAGE_BYTES, SECONDS, Connect
from tests.integration.rpc.test_guard import cut_off
from tests.integration.rpc.verbs import Verbs
from tests.support.strangers import Stranger
from tests.support.waiting import answered, eventually
from xbus.clock import SystemClock
from xbus.errors import ConfigurationError, ConnectionLost, Failed
from xbus.rpc.context import Context, new_context
from xbus.rpc.curve import Authenticator, KeyPair, call_encrypted, new_pair, serve_encrypted, write_pair
from xbus.rpc.dispatch import Dispatch, verb
from xbus.rpc.drain import bytes_on_wire
from xbus.rpc.guard import ServerLimits, tcp
from xbus.rpc.server import EncryptedDoor, Server

ANY_PORT = "tcp://127.0.0.1:0"
DOMAIN = "tests"

SIZES = (0, 1, 221, 222, 223, 254, 255, 256, 70_000)
"""Bytes of frames around the lengths at which their headers grow, with encryption and without."""


class Port:
    """A server with a plain and an encrypted address, and the keys that may come to the latter."""

    def __init__(self, server: Server, pair: KeyPair, folder: Path, allowed: set[str]) -> None:
        self.server = server
        self.allowed = allowed
        self.pair = pair
        self._folder = folder
        self.plain = server.bind(ANY_PORT)
        self.encrypted = server.bind_encrypted(EncryptedDoor(ANY_PORT, pair, DOMAIN, allowed.__contains__))

    def address(self, own: KeyPair, server_key: str = "") -> str:
        """The address for the peer with a pair."""
        file = self._folder / f"{len(list(self._folder.iterdir()))}.key"
        write_pair(file, own)
        place = self.encrypted.removeprefix("tcp://")
        return f"xbus://{place}?key={server_key or self.pair.public}&client_key={file}"


class KeyVerbs:
    """Tells the key of who calls."""

    def __init__(self) -> None:
        self.server: Server | None = None

    @verb("key")
    def key(self) -> str:
        assert self.server is not None
        return self.server.caller_key


@pytest.fixture
def allowed() -> KeyPair:
    return new_pair()


@pytest.fixture
async def port(context: Context, closing: ExitStack, tmp_path: Path, allowed: KeyPair) -> Port:
    authenticator = Authenticator(context, SystemClock())
    closing.callback(authenticator.close)
    verbs = KeyVerbs()
    server = Server(context, Dispatch(Verbs(), verbs), name="test server", limits=ServerLimits(MAX_MESSAGE_BYTES))
    verbs.server = server
    closing.callback(server.close)
    made = Port(server, new_pair(), tmp_path, {allowed.public})
    authenticator.admit(DOMAIN, made.allowed.__contains__)
    authenticator.start()
    server.start()
    return made


@pytest.fixture
def elsewhere() -> Iterator[Context]:
    """The context of another process, whose authenticator is not ours."""
    made = new_context()
    yield made
    made.destroy(linger=0)


async def test_an_allowed_key_gets_in_beside_a_plain_connection(port: Port, connect: Connect, allowed: KeyPair) -> None:
    assert await connect(port.address(allowed)).call("echo", "sealed", timeout=SECONDS) == "sealed"
    assert await connect(port.plain).call("echo", "plain", timeout=SECONDS) == "plain"


async def test_the_server_knows_the_key_of_a_caller(port: Port, connect: Connect, allowed: KeyPair) -> None:
    assert await connect(port.address(allowed)).call("key", timeout=SECONDS) == allowed.public
    assert await connect(port.plain).call("key", timeout=SECONDS) == ""


async def test_another_key_gets_no_connection(
    port: Port, connect: Connect, allowed: KeyPair, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Failed, match="our key is not allowed there") as refused:
        await connect(port.address(new_pair())).call("echo", 1, timeout=SECONDS)
    assert refused.value.code == "key_refused"
    assert "a key was refused" in caplog.text


async def test_a_key_that_is_allowed_later_gets_in_by_itself(port: Port, connect: Connect) -> None:
    late = new_pair()
    client = connect(port.address(late))
    with pytest.raises(Failed):
        await client.call("echo", 1, timeout=SECONDS)
    port.allowed.add(late.public)

    async def is_in() -> bool:
        try:
            return await client.call("echo", 1, timeout=SECONDS) == 1
        except Failed as error:
            assert error.code == "key_refused"
            return False

    await answered(is_in, "the client connects again")


async def test_a_client_that_one_server_refuses_is_heard_by_the_next_one(
    port: Port, connect: Connect, allowed: KeyPair
) -> None:
    refusing = port.address(allowed, server_key=new_pair().public)
    client = connect(f"{refusing},{port.address(allowed)}")

    async def is_in() -> bool:
        try:
            return await client.call("echo", 1, timeout=SECONDS) == 1
        except Failed as error:
            assert error.code == "handshake_failed"
            return False

    await answered(is_in, "the client turns to the next server")


async def test_nobody_comes_without_a_key(port: Port, connect: Connect) -> None:
    with pytest.raises(Failed) as refused:
        await connect(port.encrypted).call("echo", 1, timeout=SECONDS)
    assert refused.value.code == "handshake_failed"


async def test_somebody_who_plays_the_server_gets_no_call(port: Port, connect: Connect, allowed: KeyPair) -> None:
    with pytest.raises(Failed, match="another key than the address says") as refused:
        await connect(port.address(allowed, server_key=new_pair().public)).call("echo", 1, timeout=SECONDS)
    assert refused.value.code == "handshake_failed"


async def test_a_revoked_key_loses_its_connection(
    port: Port, connect: Connect, allowed: KeyPair, caplog: pytest.LogCaptureFixture
) -> None:
    client, other = connect(port.address(allowed)), connect(port.plain)
    waiting = client.call("wait", timeout=SECONDS)
    assert await client.call("echo", 1, timeout=SECONDS) == 1
    assert await other.call("echo", 1, timeout=SECONDS) == 1
    port.allowed.clear()
    port.server.cut_off_keys()
    with pytest.raises(ConnectionLost):
        await waiting
    with pytest.raises(Failed) as refused:
        await client.call("echo", 1, timeout=SECONDS)
    assert refused.value.code == "key_refused"
    assert await other.call("echo", 1, timeout=SECONDS) == 1
    assert cut_off(caplog)() == ["key_revoked"]


async def test_a_connection_that_says_its_first_word_after_the_revocation_is_not_heard(
    port: Port,
    elsewhere: Context,
    closing: ExitStack,
    allowed: KeyPair,
    connect: Connect,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caller = connect(port.address(allowed))
    assert await caller.call("echo", 1, timeout=SECONDS) == 1
    quiet = closing.enter_context(elsewhere.socket(zmq.DEALER))
    call_encrypted(quiet, port.pair.public, allowed)
    monitor = quiet.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
    closing.enter_context(monitor)
    quiet.connect(port.encrypted)
    await eventually(lambda: monitor.poll(0), "it has connected")
    port.allowed.clear()
    quiet.send_multipart([b"no", b"call"])
    await eventually(lambda: cut_off(caplog)(), "it is cut off")
    assert set(cut_off(caplog)()) == {"key_revoked"}
    assert port.server.unreadable == 0


async def test_a_plain_peer_that_claims_a_key_stays_a_plain_one(
    port: Port, allowed: KeyPair, caplog: pytest.LogCaptureFixture
) -> None:
    port.allowed.clear()
    claims = {b"User-Id": allowed.public.encode()}
    with await asyncio.to_thread(Stranger, port.plain, claims=claims) as peer:
        peer.call("echo", 1)
        assert (await asyncio.to_thread(peer.answer))[1] == 1
        peer.call("key")
        assert (await asyncio.to_thread(peer.answer))[1] == "", "the server believes what it says"
    assert cut_off(caplog)() == []


async def test_an_encrypted_socket_without_an_authenticator_lets_nobody_in(
    elsewhere: Context, connect: Connect, tmp_path: Path, closing: ExitStack
) -> None:
    pair, own = new_pair(), new_pair()
    write_pair(tmp_path / "own.key", own)
    lonely = closing.enter_context(elsewhere.socket(zmq.ROUTER))
    serve_encrypted(lonely, pair, DOMAIN)
    number = lonely.bind_to_random_port("tcp://127.0.0.1")
    client = connect(f"xbus://127.0.0.1:{number}?key={pair.public}&client_key={tmp_path / 'own.key'}")
    with pytest.raises(Failed):
        await client.call("echo", 1, timeout=1)
    assert not lonely.poll(0)


async def test_an_open_key_file_is_refused(port: Port, connect: Connect, allowed: KeyPair, tmp_path: Path) -> None:
    address = port.address(allowed)
    Path(address.rpartition("=")[2]).chmod(0o640)
    with pytest.raises(ConfigurationError, match="chmod 600") as refused:
        connect(address)
    assert refused.value.code == "key_file_open_to_others"


async def test_the_bytes_of_encrypted_frames_are_counted_as_tcp_carries_them(
    context: Context, elsewhere: Context, closing: ExitStack
) -> None:
    pair, own = new_pair(), new_pair()
    authenticator = Authenticator(context, SystemClock())
    closing.callback(authenticator.close)
    authenticator.admit(DOMAIN, lambda key: True)
    authenticator.start()
    taker = closing.enter_context(context.socket(zmq.ROUTER))
    serve_encrypted(taker, pair, DOMAIN)
    number = taker.bind_to_random_port("tcp://127.0.0.1")
    peer = closing.enter_context(elsewhere.socket(zmq.DEALER))
    call_encrypted(peer, pair.public, own)
    peer.connect(f"tcp://127.0.0.1:{number}")

    async def received() -> tuple[list[bytes], int]:
        await eventually(lambda: taker.poll(0), "the message")
        frames = taker.recv_multipart(copy=False)
        carried = tcp.carried(int(frames[0].get(zmq.SRCFD)))
        assert carried is not None
        return [frame.bytes for frame in frames], carried.received

    peer.send(b"first")
    _, before = await received()
    for size in SIZES:
        peer.send_multipart([b"", b"x" * size])
        frames, now = await received()
        assert bytes_on_wire(frames, is_encrypted=True) == now - before, size
        before = now


async def test_who_sends_much_over_an_encrypted_connection_is_left_alone(
    port: Port, connect: Connect, allowed: KeyPair, caplog: pytest.LogCaptureFixture
) -> None:
    client = connect(port.address(allowed))
    for _ in range(20):
        calls = [client.call("echo", b"x" * size, timeout=SECONDS) for size in SIZES * 20]
        for call in calls:
            await call
    assert cut_off(caplog)() == []
