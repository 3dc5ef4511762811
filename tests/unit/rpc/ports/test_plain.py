"""A wire ends the connections that do not say who they are, and no others."""

from collections import deque

import pytest
import zmq

from tests.unit.rpc.ports.test_zmtp import DEALER, LIMITS, SHAKEN
from xbus.errors import ProtocolError
from xbus.rpc.ports.plain import PlainWire
from xbus.rpc.ports.zmtp import GREETING, encode_message

STREAM = b"\0abcd"


class StreamDouble:
    """A STREAM socket with one connection, whose bytes come in the given pieces."""

    def __init__(self, *pieces: bytes) -> None:
        self._parts: deque[bytes] = deque(part for piece in (b"", *pieces) for part in (STREAM, piece))

    def recv(self, flags: int, copy: bool = True) -> object:
        if not self._parts:
            raise zmq.Again
        part = self._parts.popleft()
        return part if copy else FrameDouble(part)

    def send(self, data: bytes, flags: int) -> None:
        """Take what the wire sends, and drop it."""


class FrameDouble:
    """The empty frame by which libzmq tells of a new connection."""

    def __init__(self, data: bytes) -> None:
        self.bytes = data

    def get(self, name: str | int) -> object:
        return "127.0.0.1" if name == "Peer-Address" else 7


class Ends:
    """Notes the connections that a wire ends."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def began(self, peer: bytes, descriptor: int, address: str) -> None:
        """Take note of nothing."""

    def has_ended(self, peer: bytes, address: str, error: ProtocolError) -> None:
        self.told.append(str(error))


def ends_after(*pieces: bytes) -> list[str]:
    """Read all pieces at the moment 0, and end those who are silent long afterwards."""
    ends = Ends()
    wire = PlainWire(StreamDouble(*pieces), LIMITS, lambda: 0.0, ends)  # type: ignore[arg-type]
    with pytest.raises(zmq.Again):
        while True:
            wire.receive()
    wire.end_silent(before=1.0)
    return ends.told


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param((SHAKEN,), id="at once"),
        pytest.param((GREETING, DEALER), id="greeting, then who it is"),
        pytest.param((GREETING[:10], GREETING[10:], DEALER), id="as libzmq"),
        pytest.param((GREETING, DEALER + encode_message([b"call"])), id="with a call behind it"),
    ],
)
def test_a_peer_that_has_said_who_it_is_stays(pieces: tuple[bytes, ...]) -> None:
    assert ends_after(*pieces) == []


@pytest.mark.parametrize("pieces", [(), (GREETING[:10],), (GREETING,), (GREETING, DEALER[:-1])])
def test_a_peer_that_does_not_say_who_it_is_has_to_go(pieces: tuple[bytes, ...]) -> None:
    assert ends_after(*pieces) == ["a peer does not end the handshake of ZMTP"]
