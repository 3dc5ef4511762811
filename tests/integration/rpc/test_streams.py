"""Connections on sockets of the loop: what is left unread and what goes wrong costs the others nothing."""

import asyncio
import errno
import math
import os
import resource
import socket
from collections.abc import Iterator, Sequence
from functools import partial

import pytest

from tests.support.ports import free_port
from tests.support.waiting import eventually
from tests.support.zmtp import encode_message
from tests.unit.rpc.zmtp.test_codec import SHAKEN
from xbus.errors import ProtocolError
from xbus.loop_turn import LoopTurn
from xbus.rpc.codec import Pieces
from xbus.rpc.dealers import ConnectionRefusal, PlainDealer, SendFrames
from xbus.rpc.life_signs import LifeSigns
from xbus.rpc.zmtp import DEALER, ROUTER, Incoming, MessageLimits, ZmtpStream
from xbus.rpc.zmtp.codec import COMMAND, GREETING, encode_frame
from xbus.rpc.zmtp.stream import HAS_EPOLL, SocketWatch, watch_of_clients

LIMITS = MessageLimits(16, 100_000, math.inf)
SMALL = 4096
PATIENT = LifeSigns(handshake_seconds=1000.0)
ASKED = encode_frame(COMMAND, b"\x04PING\0\0" + b"x" * 1000)


class Short(socket.socket):
    """The system has no memory for what it sends, once it is told so."""

    is_short = False

    def send(self, *args: object) -> int:
        self._check()
        return super().send(*args)  # type: ignore[arg-type]

    def sendmsg(self, *args: object) -> int:
        self._check()
        return super().sendmsg(*args)  # type: ignore[arg-type]

    def _check(self) -> None:
        if self.is_short:
            raise OSError(errno.ENOBUFS, "No buffer space available")


class Keeper:
    """Owns a stream, and notes its end."""

    def __init__(self) -> None:
        self.has_ended = False
        self.was_full = False

    def is_ready(self, stream: ZmtpStream) -> None:
        pass

    def take(self, message: list[bytes]) -> bool:
        return True

    def keeps(self, stream: ZmtpStream, more: int) -> None:
        pass

    def is_full(self, stream: ZmtpStream) -> None:
        self.was_full = True

    def has_room(self, stream: ZmtpStream) -> None:
        pass

    def ended(self, stream: ZmtpStream, error: ProtocolError | None) -> None:
        self.has_ended = True


@pytest.fixture
def ends() -> Iterator[tuple[Short, socket.socket]]:
    """Two ends of a connection in which little is under way."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        peer = socket.socket()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
        peer.connect(listening.getsockname())
        taken, _ = listening.accept()
    with peer, Short(fileno=taken.detach()) as ours:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)
        yield ours, peer


async def test_who_asks_for_signs_of_life_and_reads_none_is_kept_none(ends: tuple[Short, socket.socket]) -> None:
    ours, peer = ends
    keeper = Keeper()
    stream = ZmtpStream(ours, Incoming(ROUTER, LIMITS), keeper)
    stream.start()
    await asyncio.to_thread(peer.sendall, SHAKEN + ASKED * 2000)
    await eventually(lambda: keeper.was_full, "the peer leaves answers unread")
    stream.has_heard = False
    await asyncio.to_thread(peer.sendall, ASKED)
    await eventually(lambda: stream.has_heard, "it is read on")
    assert stream.unsent_bytes < 100 * len(ASKED)
    stream.cut_off()


@pytest.mark.parametrize("messages", [1, 2])
async def test_a_connection_ends_whose_message_was_sent_in_part(
    ends: tuple[Short, socket.socket], messages: int
) -> None:
    ours, peer = ends
    keeper = Keeper()
    stream = ZmtpStream(ours, Incoming(ROUTER, LIMITS), keeper)
    stream.start()
    peer.sendall(SHAKEN)
    await eventually(lambda: stream.has_heard, "the peer has said who it is")
    ours.is_short = True
    for _ in range(messages):
        stream.send([b"an answer"])
    await eventually(lambda: keeper.has_ended, "nothing follows what is lost")


@pytest.mark.parametrize("size", [100, 60_000])
async def test_a_frame_in_pieces_is_sent_as_a_whole_one(ends: tuple[Short, socket.socket], size: int) -> None:
    ours, peer = ends
    stream = ZmtpStream(ours, Incoming(ROUTER, LIMITS), Keeper())
    stream.start()
    peer.sendall(SHAKEN)
    await eventually(lambda: stream.has_heard, "the peer has said who it is")
    frame = Pieces([b"a" * size, b"b" * 100, b"c"])
    stream.send([b"first", frame, b"last"])
    sent = encode_message([b"first", bytes(frame), b"last"])
    heard = b""
    while not heard.endswith(sent[-6:]):
        heard += await asyncio.to_thread(peer.recv, SMALL)
    assert heard.endswith(sent)
    stream.cut_off()


async def test_a_thread_sends_early_and_whole_where_the_other_side_reads_late(
    ends: tuple[Short, socket.socket],
) -> None:
    ours, peer = ends
    stream = ZmtpStream(ours, Incoming(ROUTER, LIMITS), Keeper())
    claimed: list[list[bytes]] = []

    def claims(message: list[bytes], blocking: bool) -> bool:
        claimed.append(message)
        return not blocking

    def send_early(messages: Sequence[list[bytes]]) -> None:
        for message in messages:
            stream.send_early(message, partial(claims, message))

    await asyncio.to_thread(send_early, [[b"%d" % number, bytes((number,)) * 7_000] for number in range(250)])
    assert 0 < len(claimed) < 250, "behind a message that could go in part only, the thread sends nothing"
    late = [[b"late", bytes((number,)) * 300] for number in range(40)]
    for message in late:
        stream.send(message)
    stream.send_early([b"no turn"], partial(claims, [b"no turn"]))
    reading = Incoming(DEALER, LIMITS)
    come: list[list[bytes]] = []
    assert reading.next_message(GREETING + ROUTER.ready) is None
    while len(come) < len(claimed) + len(late):
        part = b"" if reading.has_more else await asyncio.to_thread(peer.recv, SMALL)
        heard = reading.next_message(part)
        come += [] if heard is None else [heard]
    assert come == claimed + late
    stream.cut_off()
    stream.send_early([b"too late"], partial(claims, [b"too late"]))
    assert len(come) == len(claimed) + len(late)


async def test_what_a_thread_has_told_is_done_before_what_may_follow_from_it(
    ends: tuple[Short, socket.socket],
) -> None:
    ours, peer = ends
    turn, done = LoopTurn(), list[object]()

    class Taker(Keeper):
        def take(self, message: list[bytes]) -> bool:
            done.append(message)
            return True

    stream = ZmtpStream(ours, Incoming(ROUTER, LIMITS), Taker(), turn=turn)
    stream.start()
    peer.sendall(SHAKEN)
    await eventually(lambda: stream.has_heard, "the peer has said who it is")
    turn.told.append(lambda: done.append("told"))  # the ring is still on its way
    peer.sendall(encode_message([b"what follows"]))
    await eventually(lambda: len(done) > 1, "it is read")
    assert done == ["told", [b"what follows"]]
    stream.cut_off()


async def test_a_thread_sends_nothing_early_that_was_answered_before(ends: tuple[Short, socket.socket]) -> None:
    ours, peer = ends
    stream = ZmtpStream(ours, Incoming(ROUTER, LIMITS), Keeper())
    stream.send_early([b"first"], lambda _: False)
    stream.send_early([b"second"], lambda _: True)
    assert await asyncio.to_thread(peer.recv, SMALL) == encode_message([b"second"])
    ours.is_short = True
    stream.send_early([b"third"], lambda _: True)
    assert await asyncio.to_thread(peer.recv, SMALL) == b"", "the connection ends, so that the call is made again"
    stream.cut_off()


async def test_the_other_side_begins_before_all_is_said(ends: tuple[Short, socket.socket]) -> None:
    ours, peer = ends
    stream = ZmtpStream(ours, Incoming(ROUTER, LIMITS), Keeper())
    stream.start()
    peer.sendall(SHAKEN)
    await eventually(lambda: stream.has_heard, "the peer has said who it is")
    await eventually(lambda: not stream.unsent, "it is answered")
    await asyncio.to_thread(peer.recv, SMALL)

    stream.send([b"the first"])
    assert stream.unsent == 1, "short messages of a turn go together"
    for _ in range(20):
        stream.send([b"x" * 200])

    # No turn of the loop has passed.
    peer.settimeout(5.0)
    assert b"the first" in peer.recv(SMALL)
    stream.cut_off()


class Caller:
    """Owns a dealer, and counts what it tells."""

    def __init__(self) -> None:
        self.tried = 0
        self.has_connected = False

    def tries(self) -> None:
        self.tried += 1

    def connected(self, send: SendFrames) -> None:
        self.has_connected = True

    def refused(self, refusal: ConnectionRefusal) -> None:
        pass

    def missed(self) -> None:
        pass

    def lost(self) -> None:
        pass

    def take(self, frames: list[bytes]) -> bool:
        return True


async def test_a_client_is_not_its_own_server() -> None:
    """The system may choose the very port that is called while nobody listens there; here it has no other choice."""
    place = f"127.0.0.1:{free_port()}"
    caller = Caller()
    dealer = PlainDealer(caller, f"tcp://{place};{place}", -1, PATIENT, LoopTurn())
    dealer.connect()
    try:
        await eventually(lambda: caller.tried > 1 or caller.has_connected, "it tries again")
        assert not caller.has_connected
    finally:
        dealer.close()


ANSWERS = 1000
"""Answers of 1 kB: more than is under way at once, and less than both ends keep."""


async def test_what_is_under_way_arrives_though_the_peer_has_sent_more_than_was_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        peer = socket.create_connection(listening.getsockname())
        ours, _ = listening.accept()
    with peer:
        stream = ZmtpStream(ours, Incoming(ROUTER, LIMITS), Keeper())
        stream.start()
        peer.sendall(SHAKEN)
        await eventually(lambda: stream.has_heard, "the peer has said who it is")
        stream.pause()
        peer.sendall(encode_frame(0, b"a call that nobody reads"))
        for _ in range(ANSWERS):
            stream.send([b"x" * 1000])
        stream.close()
        came = await asyncio.to_thread(_all_of, peer)
    assert came.count(b"x") == 1000 * ANSWERS


def _all_of(peer: socket.socket) -> bytes:
    parts = [b""]
    while part := peer.recv(65536):
        parts.append(part)
    return b"".join(parts)


@pytest.mark.skipif(not HAS_EPOLL, reason="the sockets of a server are watched by epoll")
async def test_an_interrupt_while_a_socket_is_read_leaves_the_turn_at_work_for_nobody() -> None:
    done: list[str] = []
    turn = LoopTurn()
    watch = SocketWatch(turn)

    def interrupted() -> None:
        turn.acts.append(lambda: done.append("behind"))
        raise KeyboardInterrupt

    ours, peer = socket.socketpair()
    with ours, peer:
        watch.add_reader(ours.fileno(), interrupted)
        peer.send(b"x")
        with pytest.raises(KeyboardInterrupt):
            watch._look()
        watch.close()
    assert (done, turn.is_busy) == (["behind"], False)


async def watch_made() -> SocketWatch | None:
    return watch_of_clients()


@pytest.mark.skipif(not HAS_EPOLL, reason="the sockets of clients are watched by epoll")
def test_the_clients_of_a_loop_share_a_watch_and_those_of_another_loop_have_their_own() -> None:
    async def both() -> list[SocketWatch | None]:
        return [await watch_made(), await watch_made()]

    with asyncio.Runner() as first, asyncio.Runner() as second:
        one, same = first.run(both())
        other = second.run(watch_made())
    assert one is same is not None
    assert other not in (None, one)


@pytest.mark.skipif(not HAS_EPOLL, reason="the sockets of clients are watched by epoll")
async def test_a_watch_of_nothing_needs_no_descriptor_to_go_on_and_leaves_none_at_its_end() -> None:
    before = len(os.listdir("/proc/self/fd"))
    watch = SocketWatch(LoopTurn())
    heard: list[bytes] = []
    ours, peer = socket.socketpair()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ours, peer:
        watch.add_reader(ours.fileno(), lambda: heard.append(ours.recv(1)))
        watch.remove_reader(ours.fileno())
        resource.setrlimit(resource.RLIMIT_NOFILE, (_lowest_free(), hard))
        try:
            watch.add_reader(ours.fileno(), lambda: heard.append(ours.recv(1)))
            peer.send(b"x")
            await eventually(lambda: bool(heard), "it is read")
            watch.remove_reader(ours.fileno())
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    del watch
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.skipif(not HAS_EPOLL, reason="the sockets of clients are watched by epoll")
def test_a_watch_is_closed_behind_the_end_of_its_loop() -> None:
    async def watching(descriptor: int) -> SocketWatch:
        watch = SocketWatch(LoopTurn())
        watch.add_reader(descriptor, list)
        return watch

    ours, peer = socket.socketpair()
    with ours, peer:
        with asyncio.Runner() as runner:
            watch = runner.run(watching(ours.fileno()))
        watch.remove_reader(ours.fileno())
        watch.close()


def _lowest_free() -> int:
    """The lowest number of a descriptor that is free: all others of lower numbers are taken."""
    descriptor = os.dup(0)
    os.close(descriptor)
    return descriptor
