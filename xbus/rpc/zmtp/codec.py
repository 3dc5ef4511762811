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
_NO_FLAGS = -1

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

_SHORT_BYTES = 18
"""Below these a message is shorter than any call, headers of frames included."""

_MOST_OF_A_PART = 900
"""The short messages and the commands of a part. More would keep other connections waiting for longer."""

_MOST_COMMANDS_OF_A_PART = 100
"""The commands among them. Peers ask for a sign of life now and then; more would cost others their time."""

_READY = b"\x05READY"
_PING = b"\x04PING"
_PONG = b"\x04PONG"
_TTL_BYTES = 2
_SOCKET_TYPE = b"socket-type"


def _property(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + struct.pack(">I", len(value)) + value


class _Headers(dict[int, bytes]):
    """The headers of frames by their size. That of a long frame is made anew each time, as there are many sizes."""

    def __init__(self, flags: int) -> None:
        super().__init__({size: bytes((flags, size)) for size in range(MOST_SHORT + 1)})
        self._long = bytes((flags | LONG,))

    def __missing__(self, size: int) -> bytes:
        return self._long + _LENGTH.pack(size)


HEADERS = {flags: _Headers(flags) for flags in (0, MORE, COMMAND)}
"""The headers of frames, by their flags and the size of the frame."""


def encode_frame(flags: int, body: bytes) -> bytes:
    """Encode a frame."""
    return HEADERS[flags][len(body)] + body


PING = encode_frame(COMMAND, _PING + bytes(_TTL_BYTES))
PONG = encode_frame(COMMAND, _PONG)
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
        self._most_frames = limits.frames
        self._most_bytes = limits.message_bytes + sum(map(len, route))
        self._most_of_frame = limits.frame_bytes
        self._plain = self._plain_long = _NO_FLAGS
        """The largest flags of frames that need no check once they have come: of short ones, and of long ones."""
        self._data = b""
        self._at = 0
        self._flags = 0
        self.missing = 0
        """The bytes of the present frame that have not come, where some have."""
        self._partial: list[bytes | bytearray] = []
        self._partial_bytes = 0
        """The bytes of that frame that have come."""
        self._frames = [*route]
        self.unfinished = 0
        """The bytes of the message whose end has not come, without the header of a frame that came in part."""
        self.message_bytes = 0
        """The bytes of all frames of the last message."""
        self._of_part = 0
        self._commands_of_part = 0
        self._greeting: bytes | None = b""
        self._is_amid = True
        """Whether what comes next belongs to the greeting, or to the present frame."""
        self.has_more = True
        """Whether another message may have come."""
        self.is_ready = False
        self.asks_for_life = False
        """Whether the other side has ever asked for a sign of life."""
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
        data, at = self._data, self._at
        if come:
            if self._is_amid:
                come = self._go_on_with(come)
                if self.missing or self._greeting is not None:
                    return None
            data = data + come
            self._of_part = self._commands_of_part = 0
            if self._is_amid and self._ends_message():
                return self._finished(self._frames, data, 0, len(come))
        start, end, frames, plain = at, len(data), self._frames, self._plain
        flags = begin = _NO_FLAGS
        # Each step counts here, as the loop runs for each frame. So the end of the data is met by an error, and a
        # message is measured once: at its end, or at that of the part.
        try:
            while True:
                flags = data[at]
                begin = at + _SHORT_HEADER
                stop = begin + data[at + 1]
                if flags > plain:
                    if flags & LONG:
                        begin = at + _LONG_HEADER
                        stop = begin + _LENGTH.unpack_from(data, at + 1)[0]
                    # A long frame is checked before its content comes.
                    if flags > self._plain_long or stop > end or stop - begin > self._most_of_frame:
                        self._check(flags, stop - begin)
                frames.append(data[begin:stop])
                at = stop
                if not flags & MORE:
                    break
        except (IndexError, struct.error):
            pass
        else:
            if at <= end and not flags & COMMAND:
                return self._finished(frames, data, at, at - start)
            if at <= end:
                self._obey(frames.pop())
                self._data, self._at = data, at
                return self.next_message()
        if at > end:
            part = frames.pop()
            self._check(flags, at - begin)
            self._flags, self.missing, self._is_amid, at = flags, at - end, True, end
            self._keep(part)
        self.has_more = False
        # A connection that falls silent must not keep the last part that it sent.
        self._data, self._at = data[at:], 0
        self.unfinished = self._size() + self._partial_bytes
        return None

    def _finished(self, frames: list[bytes], data: bytes, at: int, came: int) -> list[bytes]:
        """Give the message that has ended.

        Args:
            data: in which the next one begins at ``at``.
            came: the bytes of the message in the present part.
        """
        self._frames = [*self._route]
        self.message_bytes = size = sum(map(len, frames))
        if size > self._most_bytes or len(frames) > self._most_frames:
            raise self._too_large(len(frames))
        if came < _SHORT_BYTES:
            self._note_short()
        self.unfinished = 0
        if at == len(data):
            self._data, self._at, self.has_more = b"", 0, False
        else:
            self._data, self._at, self.has_more = data, at, True
        return frames

    def _note_short(self) -> None:
        self._of_part += 1
        if self._of_part > _MOST_OF_A_PART:
            raise ProtocolError("the messages of a peer are too short for calls, and too many")

    def _size(self) -> int:
        """Compute the bytes of the frames of a message whose end has not come, and check them."""
        frames = self._frames
        size = sum(map(len, frames))
        if len(frames) > self._most_frames or size > self._most_bytes:
            raise self._too_large(len(frames))
        return size - sum(map(len, self._route))

    def _ends_message(self) -> bool:
        """Take up a frame that came in parts, if there is one; true where that ends a message."""
        self._is_amid = False
        if not self._partial:
            return False
        body = b"".join(self._partial)
        self._partial.clear()
        self._partial_bytes = 0
        if self._flags & COMMAND:
            self._obey(body)
            return False
        self._frames.append(body)
        return not self._flags & MORE

    def _go_on_with(self, come: bytes) -> bytes:
        """Take what is still missing of the greeting or of a long frame; give what came behind it."""
        if self._greeting is not None:
            come = self._greet(self._greeting + come)
        if missing := self.missing:
            self._keep(come[:missing])
            self.missing = max(0, missing - len(come))
            self.unfinished += len(come[:missing])
            come = come[missing:]
        return come

    def _keep(self, part: bytes) -> None:
        """Keep a part of a frame. Parts are joined once, as bytes that grow are copied many times over.

        Only short ones grow together: each would cost more than it holds.
        """
        self._partial_bytes += len(part)
        if len(part) >= _MOST_GROWN:
            self._partial.append(part)
        elif self._partial and isinstance(self._partial[-1], bytearray):
            self._partial[-1] += part
        else:
            self._partial.append(bytearray(part))

    def _check(self, flags: int, size: int) -> None:
        """Check a frame before its content comes."""
        if flags & COMMAND:
            if flags & ~(COMMAND | LONG) or size > _MOST_COMMAND:
                raise ProtocolError("a command of ZMTP has other flags, or is too long")
        elif not self.is_ready:
            raise ProtocolError("a message comes before the handshake of ZMTP is over")
        elif flags > _OF_MESSAGES:
            raise ProtocolError("a frame of ZMTP has flags that nobody knows")
        elif size > self._most_of_frame:
            raise ProtocolError(f"a frame has {size} bytes, and {self._most_of_frame:.0f} are taken at the most")
        elif len(self._frames) >= self._most_frames or size + sum(map(len, self._frames)) > self._most_bytes:
            raise self._too_large(len(self._frames) + 1)

    def _too_large(self, frames: int) -> ProtocolError:
        if frames > self._most_frames:
            return ProtocolError(f"a message has more than {self._limits.frames} frames")
        return ProtocolError(f"a message has more than {self._limits.message_bytes:.0f} bytes")

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
        self._note_short()
        self._commands_of_part += 1
        if self._commands_of_part > _MOST_COMMANDS_OF_A_PART:
            raise ProtocolError("a peer sends more commands of ZMTP than anybody needs")
        if not self.is_ready:
            if not body.startswith(_READY):
                raise ProtocolError("the handshake of ZMTP has another command than READY")
            _check_ready(body[len(_READY) :], self._role)
            self.is_ready = True
            self._plain_long = _OF_MESSAGES
            if self._most_of_frame >= MOST_SHORT:
                self._plain = MORE
        elif body.startswith(_PING):
            self.asks_for_life = True
            context = body[len(_PING) + _TTL_BYTES :]
            self.answers.append(encode_frame(COMMAND, _PONG + context))
        elif not body.startswith(_PONG):
            raise ProtocolError("a peer sends a command of ZMTP that nobody expects")


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
