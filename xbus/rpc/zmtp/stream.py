"""A connected socket that carries messages by ZMTP, driven by the event loop.

A callback of the loop for each socket costs ten calls of Python functions for each part that is read. So the sockets of
a server have one for all of them (``SocketWatch``), where the system has epoll, and so have the clients of a loop.
"""

import asyncio
import contextlib
import select
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any, Protocol
from weakref import WeakKeyDictionary, ref

from xbus.errors import ProtocolError
from xbus.loop_turn import Act, LoopTurn, tell
from xbus.rpc.codec import Frame, Pieces
from xbus.rpc.zmtp.codec import HEADERS, MORE, PART_BYTES, Incoming

_PIECES_AT_ONCE = 256
"""The most pieces that one call of the system sends; the system takes 1,024."""

_LARGE_BYTES = 32 * 1024
"""Messages below this size are copied into one piece, which costs less than several pieces."""

_EARLY_BYTES = 2 * 1024
"""So many bytes go before the turn of the loop is done, so that the other side begins. More
leaves both sides idle in turns; less takes more calls of the system."""

_DROPPED_BYTES = 256 * 1024
_DROPPED_PARTS = 64
"""Parts that are read and dropped at the end of a connection: more than the system keeps for most. A peer that sends on
and on must not delay the end."""

HAS_EPOLL = hasattr(select, "epoll")
"""Whether the system has epoll, which is ready itself when one of its sockets is."""

_CAN_READ: int = getattr(select, "EPOLLIN", 0)
_CAN_WRITE: int = getattr(select, "EPOLLOUT", 0)

_NO_LINGER = struct.pack("=ii", 1, 0)


_LAST = HEADERS[0]
_before_others = HEADERS[MORE].__getitem__
"""The headers of frames by their size."""


class SocketWatch:
    """Calls the readers and writers of sockets, all that are ready in one turn of the loop behind each other.

    Args:
        turn: what is to be done at its end is done when all sockets are read.
    """

    def __init__(self, turn: LoopTurn) -> None:
        # Its own descriptor is ready when one of its sockets is. It is kept to the end: a server whose last connection
        # has ended may have no descriptor left for another one.
        self._epoll = select.epoll()
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop that looks at the sockets; None while nothing is watched."""
        self._readers: dict[int, Act] = {}
        self._writers: dict[int, Act] = {}
        """By descriptor."""
        self.turn = turn

    def add_reader(self, descriptor: int, act: Act) -> None:
        """Have ``act`` called whenever something can be read."""
        self._add(self._readers, descriptor, act)

    def remove_reader(self, descriptor: int) -> None:
        """Call nobody any more when something can be read."""
        before = self._events(descriptor)
        self._readers.pop(descriptor, None)
        self._change(descriptor, before)

    def add_writer(self, descriptor: int, act: Act) -> None:
        """Have ``act`` called whenever something can be written."""
        self._add(self._writers, descriptor, act)

    def remove_writer(self, descriptor: int) -> None:
        """Call nobody any more when something can be written."""
        before = self._events(descriptor)
        self._writers.pop(descriptor, None)
        self._change(descriptor, before)

    def close(self) -> None:
        """Watch nothing any more."""
        self._readers.clear()
        self._writers.clear()
        self._rest()
        self._epoll.close()

    def _add(self, acts: dict[int, Act], descriptor: int, act: Act) -> None:
        before = self._events(descriptor)
        acts[descriptor] = act
        try:
            self._change(descriptor, before)
        except OSError:
            # The system watches it no more than before.
            del acts[descriptor]
            raise

    def _events(self, descriptor: int) -> int:
        """Give the events of a socket that somebody waits for."""
        return (_CAN_READ if descriptor in self._readers else 0) | (_CAN_WRITE if descriptor in self._writers else 0)

    def _change(self, descriptor: int, before: int) -> None:
        """Have the system watch for the present events of a socket instead of those before."""
        events = self._events(descriptor)
        if events and self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._epoll, self._look)
        if events and before:
            self._epoll.modify(descriptor, events)
        elif events:
            self._epoll.register(descriptor, events)
        elif before:
            self._epoll.unregister(descriptor)
        if not self._readers and not self._writers:
            self._rest()

    def _rest(self) -> None:
        """Have the loop keep nothing of this while there is nothing to watch."""
        if self._loop is not None:
            self._loop.remove_reader(self._epoll)
            self._loop = None

    def _look(self) -> None:
        turn, readers, writers = self.turn, self._readers, self._writers
        turn.number += 1
        turn.is_busy = True
        try:
            for descriptor, events in self._epoll.poll(0):
                # One before it may have ended this connection, or stopped it. An error is told to readers and writers.
                try:
                    if events != _CAN_WRITE and descriptor in readers:
                        readers[descriptor]()
                    if events != _CAN_READ and descriptor in writers:
                        writers[descriptor]()
                except Exception as error:
                    tell(error)
        finally:
            turn.end()


_of_clients: "WeakKeyDictionary[asyncio.AbstractEventLoop, ref[SocketWatch]]" = WeakKeyDictionary()
"""Emitters and readers of a program share nothing but their loop, and a loop takes no attributes of others."""


def watch_of_clients() -> SocketWatch | None:
    """Give the watch that all clients of the running loop share; None where the system has no epoll.

    A program with many connections sends what all of them have, and reads what came for all of them, once a turn.
    """
    if not HAS_EPOLL:
        return None
    loop = asyncio.get_running_loop()
    kept = _of_clients.get(loop)
    watch = None if kept is None else kept()
    if watch is None:
        watch = SocketWatch(LoopTurn())
        _of_clients[loop] = ref(watch)
    return watch


class StreamOwner(Protocol):
    """The owner of a connection: it takes the messages, and says whether they may be read."""

    def take(self, message: list[bytes]) -> bool:
        """Take a message, or refuse it for now: then nothing is read until ``ZmtpStream.resume``."""

    def is_ready(self, stream: "ZmtpStream") -> None:
        """Note that the other side has said what it is, so that messages may go."""

    def keeps(self, stream: "ZmtpStream", more: int) -> None:
        """Note that so many bytes more, or less, are kept of a message whose end has not come."""

    def is_full(self, stream: "ZmtpStream") -> None:
        """Note that the other side leaves so much unread that nothing more can be sent now."""

    def has_room(self, stream: "ZmtpStream") -> None:
        """Note that all is sent again."""

    def ended(self, stream: "ZmtpStream", error: ProtocolError | None) -> None:
        """Note that the other side has ended the connection, or has broken the rules by ``error``. It is closed."""


class ZmtpStream:
    """Reads and sends the messages of a connection.

    Short messages that are sent in one turn of the loop share calls of the system.

    Args:
        connected: the socket; the stream closes it.
        incoming: reads the bytes that come, and keeps the size of the message that was read last.
        owner: takes the messages.
        watch: calls it when there is something to read; the loop itself where none is given.
        turn: messages go at its end, where no ``watch`` is given.
    """

    def __init__(
        self,
        connected: socket.socket,
        incoming: Incoming,
        owner: StreamOwner,
        watch: SocketWatch | None = None,
        turn: LoopTurn | None = None,
    ) -> None:
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected
        self._recv = connected.recv
        self._send_one = connected.send
        self._send_some = connected.sendmsg
        self._descriptor = connected.fileno()
        self.incoming = incoming
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._watch = watch or self._loop
        self._turn = watch.turn if watch else turn or LoopTurn()
        self._reader = self._read if watch else partial(self._turn.run, self._read)
        self._was_ready = False
        self._held_back: list[bytes] | None = None
        """A message that came when nothing might be read any more."""
        self._is_reading = False
        self._next_turn: asyncio.Handle | None = None
        self._unsent: deque[bytes | memoryview] = deque()
        self._socket_use = threading.Lock()
        """Held by whoever sends by the socket, or closes it: the loop, or a thread."""
        self._begun = b""
        """The end of a message that a thread could send only in part: it goes before all others."""
        self._sends_soon = False
        self.waits_for_room = False
        """Whether nothing more can be sent now, as the other side leaves too much unread."""
        self.is_closed = False
        self.has_heard = False
        """Whether something has come, or the other side has read on, since the owner set it back."""
        self.unfinished = 0
        """The bytes that are kept of a message whose end has not come."""
        self.unsent_bytes = 0

    @property
    def unsent(self) -> int:
        """The number of messages, or pieces of large ones, that wait to be sent."""
        return len(self._unsent)

    def start(self) -> None:
        """Greet, and begin to read."""
        self._answer()
        self.resume()

    def pause(self) -> None:
        """Read nothing until ``resume``."""
        if self._is_reading:
            self._is_reading = False
            self._watch.remove_reader(self._descriptor)
        if self._next_turn is not None:
            self._next_turn.cancel()
            self._next_turn = None

    def resume(self) -> None:
        """Read again, first what has come already."""
        if not self._is_reading and not self.is_closed:
            self._is_reading = True
            self._watch.add_reader(self._descriptor, self._reader)
            self._next_turn = self._loop.call_soon(self._read, b"")

    def send(self, frames: Sequence[Frame]) -> bool:
        """Send a message when this turn of the loop is done, or when enough is together.

        Returns:
            True, as it can stand for a client's ``send``. A stream that is closed drops the message.
        """
        # A loop, as iterators take longer for so few frames.
        pieces: list[Any] = []
        size = length = 0
        for frame in frames:
            length = len(frame)
            size += length
            pieces += (_before_others(length), frame)
        pieces[-2] = _LAST[length]
        try:
            message = b"".join(pieces) if size < _LARGE_BYTES else b""
        except TypeError:  # a frame is in pieces
            message = b""
        if message:
            self._unsent.append(message)
            self.unsent_bytes += len(message)
        else:
            pieces = [*chain.from_iterable([each.pieces if isinstance(each, Pieces) else (each,) for each in pieces])]
            self._unsent += pieces
            self.unsent_bytes += sum(map(len, pieces))
        if self.unsent_bytes >= _EARLY_BYTES and not self.waits_for_room:
            self._send()
        elif not self._sends_soon and not self.waits_for_room:
            self._sends_soon = True
            turn = self._turn
            if turn.is_busy:
                turn.acts.append(self._send)
            else:
                turn.at_end(self._send)
        return True

    def send_bytes(self, data: bytes) -> None:
        """Send what is encoded already."""
        self._unsent.append(data)
        self.unsent_bytes += len(data)
        if not self._sends_soon and not self.waits_for_room:
            self._sends_soon = True
            self._turn.at_end(self._send)

    def send_early(self, frames: Sequence[bytes], claim: Callable[[bool], bool]) -> None:
        """Send a message from another thread, if nothing else waits to be sent.

        Args:
            claim: asked with False just before it goes; it does not go where that answers no.
        """
        pieces: list[bytes] = []
        for frame in frames:
            pieces += (_before_others(len(frame)), frame)
        pieces[-2] = _LAST[len(frames[-1])]
        message = b"".join(pieces)
        with self._socket_use:
            if self._unsent or self._begun or self.is_closed or not claim(False):
                return
            try:
                self._begun = message[self._send_one(message) :]
            except (BlockingIOError, InterruptedError):
                self._begun = message
            except OSError:
                self._break_off()
                return
        if self._begun:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._send)

    def close(self) -> None:
        """Send what can be sent at once, and end the connection; the owner does not hear of it."""
        if not self.is_closed:
            self._send()
            self._drop_unread()
            self._close()

    def _drop_unread(self) -> None:
        """Read what has come, as the system drops what it still has to send where something is left unread."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            for _ in range(_DROPPED_PARTS):
                if not self._socket.recv(_DROPPED_BYTES):
                    return

    def cut_off(self) -> None:
        """End the connection at once; the owner does not hear of it."""
        if not self.is_closed:
            # The other side learns of it at once, and the system keeps nothing for it.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            self._close()

    def _close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self.pause()
        if self.waits_for_room:
            self._watch.remove_writer(self._descriptor)
        self._unsent.clear()
        # A thread that still sent would meet the next connection under the same descriptor.
        with self._socket_use:
            self._socket.close()

    def _end(self, error: ProtocolError | None = None) -> None:
        if self.is_closed:
            return
        if error is None:
            self._close()
        else:
            # The calls before the breach are answered, maybe in this turn of the loop.
            self.close()
        self._owner.ended(self, error)

    def _read(self, part: bytes | None = None) -> None:
        """Hand on the messages that are complete by a part of what has come.

        Args:
            part: empty for those that have come before; None to read one.
        """
        incoming, owner = self.incoming, self._owner
        if part is None:
            if not self._is_reading or self._next_turn is not None:
                # Another connection of this turn has stopped it, or what has come before goes first.
                return
            try:
                part = self._recv(incoming.wanted if incoming.missing else PART_BYTES)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                part = b""
            if not part:
                self._end()
                return
            self.has_heard = True
            # What comes may follow from what a thread has sent early: that goes before it here, too.
            if self._turn.told:
                self._turn.hear()
        else:
            self._next_turn = None
        try:
            while not self.is_closed:
                if self._held_back is None:
                    message = incoming.next_message(part)
                else:
                    message, self._held_back = self._held_back, None
                if incoming.answers or not self._was_ready:
                    self._answer()
                if message is None:
                    break
                if not owner.take(message):
                    self._held_back = message
                    self.pause()
                    break
                if not incoming.has_more:
                    break
                part = b""
        except ProtocolError as error:
            self._end(error)
        except Exception:
            # A message that brings its handler down must not end the reading of those behind it.
            self._next_turn = self._loop.call_soon(self._read, b"")
            raise
        unfinished = incoming.unfinished
        if unfinished != self.unfinished and not self.is_closed:
            more, self.unfinished = unfinished - self.unfinished, unfinished
            owner.keeps(self, more)

    def _answer(self) -> None:
        """Send what the handshake and signs of life need, and tell the owner of the end of the handshake."""
        # Whoever leaves so much unread hears of our life by that, and keeps us from nothing by asking.
        if not self.waits_for_room:
            for answer in self.incoming.answers:
                self.send_bytes(answer)
        self.incoming.answers.clear()
        if not self._was_ready and self.incoming.is_ready:
            self._was_ready = True
            self._owner.is_ready(self)

    def _send(self) -> None:
        self._sends_soon = False
        unsent = self._unsent
        if self.is_closed or not (unsent or self._begun):
            return
        if self.waits_for_room:
            self.has_heard = True  # the other side reads, if nothing else: signs of life wait behind what is unsent
        try:
            with self._socket_use:
                if self._begun:
                    unsent.appendleft(self._begun)
                    self.unsent_bytes += len(self._begun)
                    self._begun = b""
                while unsent:
                    if len(unsent) == 1:
                        sent = self._send_one(unsent[0])
                    else:
                        sent = self._send_some([*islice(unsent, _PIECES_AT_ONCE)])
                    if sent == self.unsent_bytes:
                        unsent.clear()
                        self.unsent_bytes = 0
                        break
                    self.unsent_bytes -= sent
                    while sent >= len(unsent[0]):
                        sent -= len(unsent.popleft())
                    if sent:
                        unsent[0] = memoryview(unsent[0])[sent:]
        except (BlockingIOError, InterruptedError):
            self._wait_for_room()
            return
        except OSError:
            # First, as a thread sends nothing early while something is unsent.
            self._break_off()
            unsent.clear()
            self.unsent_bytes = 0
        if self.waits_for_room:
            self.waits_for_room = False
            self._watch.remove_writer(self._descriptor)
            self._owner.has_room(self)

    def _break_off(self) -> None:
        """Send nothing any more; the reader hears of the end, behind all that the other side has sent before it.

        A message may have been sent in part: nothing can follow, even if the system lacked memory.
        """
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _wait_for_room(self) -> None:
        if not self.waits_for_room:
            self.waits_for_room = True
            self._watch.add_writer(self._descriptor, self._send)
            self._owner.is_full(self)
