"""Reads what one side sends by ZMTP 3 without encryption, and encodes what it is sent; pure, no sockets.

Sources: https://rfc.zeromq.org/spec/23 (ZMTP 3.0) and https://rfc.zeromq.org/spec/37 (3.1, for ``PING``).
"""

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from xbus.errors import ProtocolError

MORE = 0x01
LONG = 0x02
COMMAND = 0x04
_OF_MESSAGES = MORE | LONG

MOST_SHORT = 255
"""The longest frame whose length takes one byte."""

_LENGTH = struct.Struct(">Q")
_SHORT_HEADER = 2
_LONG_HEADER = 9

GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
"""The signature, the version 3.0, the mechanism and a filler, 64 bytes."""

_SIGNATURE_END = 10
_VERSION = 3
_MECHANISM = slice(12, 32)

_MOST_COMMAND = 1024
"""The longest command: one with the properties of a peer. Longer ones end the connection."""

PART_BYTES = 16 * 1024
"""The bytes of a connection that are read at once. Connections take turns by parts: more keep others waiting."""

_LONG_PART_BYTES = 256 * 1024
"""The same in the midst of a long frame, which takes next to no time."""

_MOST_GROWN = 4096
"""Bytes below which a part of a long frame is put into those before it."""

_MOST_OF_A_PART = 900
"""The messages and commands of a part: more than calls can be, of 30 bytes and more. Shorter messages would keep
other connections waiting for longer."""

_MOST_COMMANDS_OF_A_PART = 100
"""The commands among them. Peers ask for a sign of life now and then; more would cost others their time."""

_READY = b"\x05READY"
_PING = b"\x04PING"
_PONG = b"\x04PONG"
_TTL_BYTES = 2
_SOCKET_TYPE = b"socket-type"


def _property(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + struct.pack(">I", len(value)) + value


SHORT_HEADERS = {flags: [bytes((flags, size)) for size in range(MOST_SHORT + 1)] for flags in (0, MORE, COMMAND)}
"""The headers of frames that are no longer, by their flags and the size of the frame."""


def long_header(flags: int, size: int) -> bytes:
    """Write the header of a frame that is longer than ``MOST_SHORT``."""
    return bytes((flags | LONG,)) + _LENGTH.pack(size)


def encode_frame(flags: int, body: bytes) -> bytes:
    """Encode a frame."""
    size = len(body)
    return (SHORT_HEADERS[flags][size] if size <= MOST_SHORT else long_header(flags, size)) + body


PING = encode_frame(COMMAND, _PING + bytes(_TTL_BYTES))
"""Asks the other side for a sign of life."""


class Role(NamedTuple):
    """One side of a connection.

    Args:
        greets_first: how much of the greeting it sends at once. It sends the rest when it has read the other's.
        ready: tells the other side what it is, and that it may send.
        others: the kinds of sockets that the other side may have.
    """

    greets_first: int
    ready: bytes
    others: tuple[bytes, ...]


def _role(kind: bytes, greets_first: int, *others: bytes) -> Role:
    return Role(greets_first, encode_frame(COMMAND, _READY + _property(b"Socket-Type", kind)), others)


ROUTER = _role(b"ROUTER", len(GREETING), b"DEALER", b"REQ", b"ROUTER")

# libzmq ends a connection as soon as it has read of another mechanism, before it says its own.
DEALER = _role(b"DEALER", _MECHANISM.start, b"ROUTER", b"DEALER", b"REP")


class MessageLimits(NamedTuple):
    """The largest message.

    Args:
        frames: of a message, with those that it is handed out with in front.
        frame_bytes: of a frame.
        message_bytes: of all frames of a message.
    """

    frames: int
    frame_bytes: float
    message_bytes: float


class Incoming:
    """Reads the bytes of the other side of a connection.

    Args:
        role: of this side.
        limits: of a message.
        route: the frames with which each message that it hands out begins.
    """

    def __init__(self, role: Role, limits: MessageLimits, route: Sequence[bytes] = ()) -> None:
        self._role = role
        self._route = route
        self._limits = limits
        self._most_frames = limits.frames - 1
        self._most_bytes = limits.message_bytes
        # Before the handshake is over any message is one too many.
        self._most: float = -1
        self._data = b""
        self._at = 0
        self._flags = 0
        self.missing = 0
        """The bytes of the present frame that have not come, where some have."""
        self._partial: list[bytes | bytearray] = []
        self.partial_bytes = 0
        """The bytes of that frame that have come."""
        self._frames = [*route]
        self.size = 0
        """The bytes of the frames before it in its message."""
        self._of_part = 0
        self._commands_of_part = 0
        self._greeting: bytes | None = b""
        self.has_more = True
        """Whether another message may have come."""
        self.is_ready = False
        """Whether the other side has said what it is."""
        self.answers: list[bytes] = [GREETING[: role.greets_first]]
        """The bytes to be sent to the other side."""

    @property
    def wanted(self) -> int:
        """The most bytes to be read at once."""
        return max(PART_BYTES, min(self.missing, _LONG_PART_BYTES))

    def next_message(self, come: bytes = b"") -> list[bytes] | None:
        """Give the next message; None until more bytes come.

        Args:
            come: bytes that came; the messages before them must have been asked for.

        Raises:
            ProtocolError: the peer speaks something else, or goes beyond the limits. Nothing may be asked for then.
        """
        if come:
            if self._greeting is not None or self.missing:
                come = self._go_on_with(come)
                if self.missing:
                    return None
            self._data, self._at = self._data[self._at :] + come, 0
            self._of_part = self._commands_of_part = 0
            self.has_more = True
        if self._partial and not self.missing and self._ends_message():
            return self._finished()
        data, end, frames = self._data, len(self._data), self._frames
        while end - self._at >= _SHORT_HEADER:
            at = self._at
            flags, size, begin = data[at], data[at + 1], at + _SHORT_HEADER
            if flags & LONG:
                begin = at + _LONG_HEADER
                if begin > end:
                    break
                (size,) = _LENGTH.unpack_from(data, at + 1)
            if (
                flags > _OF_MESSAGES
                or size > self._most
                or len(frames) > self._most_frames
                or (size + self.size > self._most_bytes)
            ):
                self._check(flags, size)
            stop = begin + size
            if stop > end:
                self._flags, self.missing, self._at = flags, stop - end, end
                self._keep(data[begin:])
                break
            self._at = stop
            if flags & COMMAND:
                self._obey(data[begin:stop])
                continue
            frames.append(data[begin:stop])
            self.size += size
            if not flags & MORE:
                if stop == end:
                    self._data, self._at, self.has_more = b"", 0, False
                self._of_part += 1
                if self._of_part > _MOST_OF_A_PART:
                    raise _too_many()
                self._frames, self.size = [*self._route], 0
                return frames
        self.has_more = False
        if self._at == end:
            # A connection that falls silent must not keep the last part that it sent.
            self._data, self._at = b"", 0
        return None

    def _ends_message(self) -> bool:
        """Take up a frame that came in parts; true where it is the last one of a message."""
        body = b"".join(self._partial)
        self._partial.clear()
        self.partial_bytes = 0
        if self._flags & COMMAND:
            self._obey(body)
            return False
        self._frames.append(body)
        self.size += len(body)
        return not self._flags & MORE

    def _go_on_with(self, come: bytes) -> bytes:
        """Take what is still missing of the greeting or of a long frame; give what came behind it."""
        if self._greeting is not None:
            come = self._greet(self._greeting + come)
        if missing := self.missing:
            self._keep(come[:missing])
            self.missing = max(0, missing - len(come))
            come = come[missing:]
        return come

    def _keep(self, part: bytes) -> None:
        """Keep a part of a frame. Parts are joined once, as bytes that grow are copied many times over.

        Only short ones grow together: each would cost more than it holds.
        """
        self.partial_bytes += len(part)
        if len(part) >= _MOST_GROWN:
            self._partial.append(part)
        elif self._partial and isinstance(self._partial[-1], bytearray):
            self._partial[-1] += part
        else:
            self._partial.append(bytearray(part))

    def _check(self, flags: int, size: int) -> None:
        if flags & COMMAND:
            if flags & ~(COMMAND | LONG) or size > _MOST_COMMAND:
                raise ProtocolError("a command of ZMTP has other flags, or is too long")
        elif not self.is_ready:
            raise ProtocolError("a message comes before the handshake of ZMTP is over")
        elif flags > _OF_MESSAGES:
            raise ProtocolError("a frame of ZMTP has flags that nobody knows")
        elif size > self._limits.frame_bytes:
            raise ProtocolError(f"a frame has {size} bytes, and {self._limits.frame_bytes:.0f} are taken at the most")
        elif size + self.size > self._most_bytes:
            raise ProtocolError(f"a message has more than {self._limits.message_bytes:.0f} bytes")
        else:
            raise ProtocolError(f"a message has more than {self._limits.frames} frames")

    def _count(self) -> None:
        self._of_part += 1
        if self._of_part > _MOST_OF_A_PART:
            raise _too_many()

    def _finished(self) -> list[bytes]:
        self._count()
        frames, self._frames = self._frames, [*self._route]
        self.size = 0
        return frames

    def _greet(self, data: bytes) -> bytes:
        """Take what has come of the greeting; give what came behind it."""
        if len(data) < len(GREETING):
            self._greeting = data
            # Who speaks something else may say less than a greeting, and wait.
            _check_greeting(data)
            return b""
        _check_greeting(data)
        self._greeting = None
        self.answers.append(GREETING[self._role.greets_first :] + self._role.ready)
        return data[len(GREETING) :]

    def _obey(self, body: bytes) -> None:
        self._count()
        self._commands_of_part += 1
        if self._commands_of_part > _MOST_COMMANDS_OF_A_PART:
            raise ProtocolError("a peer sends more commands of ZMTP than anybody needs")
        if not self.is_ready:
            if not body.startswith(_READY):
                raise ProtocolError("the handshake of ZMTP has another command than READY")
            _check_ready(body[len(_READY) :], self._role)
            self.is_ready = True
            self._most = self._limits.frame_bytes
        elif body.startswith(_PING):
            context = body[len(_PING) + _TTL_BYTES :]
            self.answers.append(encode_frame(COMMAND, _PONG + context))
        elif not body.startswith(_PONG):
            raise ProtocolError("a peer sends a command of ZMTP that nobody expects")


def _too_many() -> ProtocolError:
    return ProtocolError("the messages of a peer are too short for calls, and too many")


def _check_greeting(data: bytes) -> None:
    """Check the part of a greeting that has come."""
    if data[:1] not in (b"", b"\xff") or (len(data) >= _SIGNATURE_END and not data[_SIGNATURE_END - 1] & 1):
        raise ProtocolError("a peer does not speak ZMTP")
    if len(data) > _SIGNATURE_END and data[_SIGNATURE_END] < _VERSION:
        raise ProtocolError("a peer speaks an older ZMTP than 3")
    if len(data) >= _MECHANISM.stop and data[_MECHANISM] != GREETING[_MECHANISM]:
        raise ProtocolError("a peer wants another mechanism of ZMTP than NULL")


def _check_ready(data: bytes, role: Role) -> None:
    for name, value in _properties(data):
        if name.lower() == _SOCKET_TYPE:
            if value not in role.others:
                raise ProtocolError("the sockets of both sides do not fit each other")
            return
    raise ProtocolError("a peer does not say which socket it is")


def _properties(data: bytes) -> Iterable[tuple[bytes, bytes]]:
    at = 0
    while at < len(data):
        begin = at + 1 + data[at]
        name, size = data[at + 1 : begin], data[begin : begin + 4]
        at = begin + 4 + int.from_bytes(size, "big")
        if not name or len(size) < 4 or at > len(data):
            raise ProtocolError("the properties of a peer can't be read")
        yield name, data[begin + 4 : at]
