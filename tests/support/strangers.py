"""A peer that speaks ZMTP 3.0 by itself, and so can say what libzmq would not: which id it wants to have."""

import socket
import struct
from collections.abc import Mapping
from types import MappingProxyType, TracebackType
from typing import Any
from urllib.parse import urlsplit

from tests.support.waiting import DEADLINE_SECONDS
from xbus.rpc.codec import pack
from xbus.rpc.frames import decode_reply, encode_request

UNSEEDED = (0x6B8B4567, 0xE43C9869)
"""Where the ids of a process's first two ROUTER sockets begin while nobody has seeded the C library's ``rand``."""

_GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
_MORE, _LONG, _COMMAND = 1, 2, 4


def made_up_id(number: int) -> bytes:
    """The id that a ROUTER socket gives to the connection of this number."""
    return b"\0" + struct.pack(">I", number % 2**32)


class Stranger:
    """One connection, made at once.

    Args:
        address: ``tcp://host:port``.
        identity: the id that it claims; empty for none, as clients do.
        patience: how many seconds it waits for an answer.
        claims: further properties that it says it has.
    """

    def __init__(
        self,
        address: str,
        identity: bytes = b"",
        patience: float = DEADLINE_SECONDS,
        claims: Mapping[bytes, bytes] = MappingProxyType({}),
    ) -> None:
        place = urlsplit(address)
        self._socket = socket.create_connection((place.hostname, place.port), patience)
        self._stream = self._socket.makefile("rb")
        ready = b"\x05READY" + _property(b"Socket-Type", b"DEALER") + _property(b"Identity", identity)
        ready += b"".join(_property(name, value) for name, value in claims.items())
        self._socket.sendall(_GREETING + bytes([_COMMAND, len(ready)]) + ready)
        assert len(self._stream.read(len(_GREETING))) == len(_GREETING), "no greeting"
        flags, body = self._frame()
        assert (flags, body[:6]) == (_COMMAND, b"\x05READY"), body

    def __enter__(self) -> "Stranger":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, traceback: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Leave without a word."""
        self._stream.close()
        self._socket.close()

    def reset(self) -> None:
        """Leave by a reset, as one that crashes."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def call(self, method: str, *arguments: Any, request_id: int = 1) -> None:
        """Make a call; ``answer`` reads what is said to it."""
        self.send(method, pack(arguments), request_id=request_id)

    def send(self, method: str, arguments: bytes, *, request_id: int = 1) -> None:
        """Make a call with arguments in any form."""
        self._socket.sendall(self.framed(method, arguments, request_id=request_id))

    @staticmethod
    def framed(method: str, arguments: bytes, *, request_id: int = 1) -> bytes:
        """Give the bytes of a call as they are on the wire."""
        header, name, _, last = map(bytes, encode_request(b"\0\0\0\0", request_id, 0.0, method, ()))
        frames = (header, name, arguments)
        return b"".join(_framed(_MORE, frame) for frame in frames) + _framed(0, last)

    def send_raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def is_over(self) -> bool:
        """Check whether the other side has ended the connection, after what it still said."""
        try:
            while self._socket.recv(65536):
                pass
        except ConnectionError:
            pass
        except TimeoutError:
            return False
        return True

    def answer(self) -> tuple[int, Any]:
        """The next reply: the id of its request, and the answer or the error."""
        frames = [b""]
        flags = _MORE
        while flags & _MORE:
            flags, body = self._frame()
            frames.append(body)
        reply = decode_reply(frames[1:])
        return reply.id, reply.error or reply.answer

    def _frame(self) -> tuple[int, bytes]:
        head = self._stream.read(1)
        assert head, "the other side has ended the connection"
        size = self._stream.read(8 if head[0] & _LONG else 1)
        return head[0], self._stream.read(int.from_bytes(size, "big"))


def _property(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + struct.pack(">I", len(value)) + value


def _framed(flags: int, body: bytes) -> bytes:
    if len(body) > 255:
        return bytes([flags | _LONG]) + struct.pack(">Q", len(body)) + body
    return bytes([flags, len(body)]) + body
