"""A peer's bytes become messages, in whatever pieces they come; what breaks the rules is noticed while it arrives."""

import random
import struct
import sys

import pytest

from tests.support.zmtp import encode_message
from xbus.errors import ProtocolError
from xbus.rpc.zmtp.codec import (
    COMMAND,
    GREETING,
    LONG,
    MORE,
    PING,
    ROUTER,
    Incoming,
    MessageLimits,
    encode_frame,
)

ROUTE = b"peer"
LIMITS = MessageLimits(frames=5, frame_bytes=10_000, message_bytes=12_000)

DEALER = encode_frame(COMMAND, b"\x05READY\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER")
SHAKEN = GREETING + DEALER

MESSAGES = [
    [b"header", b"verb", b"x" * 9_000, b"\x80"],
    [b""],
    [b"", b"x" * 255, b"x" * 256, b""],
    [b"y" * 10_000],
]


def heard(incoming: Incoming, data: bytes) -> list[list[bytes]]:
    """The messages that end with some bytes."""
    messages = []
    message = incoming.next_message(data)
    while message is not None:
        messages.append(message)
        message = incoming.next_message()
    return messages


def shaken() -> Incoming:
    incoming = Incoming(ROUTER, LIMITS, (ROUTE,))
    assert heard(incoming, SHAKEN) == []
    assert incoming.is_ready
    return incoming


@pytest.mark.parametrize("size", [1, 2, 7, 64, 65, 300, 8192, 100_000])
def test_messages_come_whole_from_pieces_of_any_size(size: int) -> None:
    data = SHAKEN + b"".join(map(encode_message, MESSAGES))
    incoming, messages = Incoming(ROUTER, LIMITS, (ROUTE,)), []
    for at in range(0, len(data), size):
        messages += heard(incoming, data[at : at + size])
    assert messages == [[ROUTE, *message] for message in MESSAGES]
    assert incoming.answers == [GREETING, ROUTER.ready]


@pytest.mark.parametrize("message", MESSAGES)
@pytest.mark.parametrize("size", [1, 300, 100_000])
def test_a_message_is_measured_with_its_route(message: list[bytes], size: int) -> None:
    incoming, data = shaken(), encode_message(message)
    for at in range(0, len(data), size):
        heard(incoming, data[at : at + size])
    assert incoming.message_bytes == sum(map(len, [ROUTE, *message]))


def test_messages_come_whole_from_pieces_of_all_sizes() -> None:
    draw = random.Random(1)
    data = SHAKEN + b"".join(map(encode_message, 20 * MESSAGES))
    incoming, messages, at = Incoming(ROUTER, LIMITS, (ROUTE,)), [], 0
    while at < len(data):
        size = draw.choice([1, 2, 9, 10, 254, 3_000, 9_500])
        messages += heard(incoming, data[at : at + size])
        at += size
    assert messages == [[ROUTE, *message] for message in 20 * MESSAGES]


def test_a_sign_of_life_is_answered_with_its_context() -> None:
    incoming = shaken()
    incoming.answers.clear()
    ping = encode_frame(COMMAND, b"\x04PING\0\x05context")
    assert heard(incoming, ping + encode_message([b"call"])) == [[ROUTE, b"call"]]
    assert incoming.answers == [encode_frame(COMMAND, b"\x04PONGcontext")]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(encode_message([b""] * 5), id="too many frames"),
        pytest.param(b"\x01\x00" * 5, id="too many frames, without an end"),
        pytest.param(bytes([LONG]) + struct.pack(">Q", 10_001), id="a frame that is too long, before its content"),
        pytest.param(bytes([LONG]) + struct.pack(">Q", 2**64 - 1), id="the longest frame"),
        pytest.param(encode_message([b"x" * 7_000, b"x" * 7_000])[:7_100], id="too many bytes, before they come"),
        pytest.param(b"\x08\x00", id="flags that nobody knows"),
        pytest.param(bytes([COMMAND | MORE, 0]), id="a command that goes on"),
        pytest.param(bytes([COMMAND | LONG]) + struct.pack(">Q", 5_000), id="a long command"),
        pytest.param(encode_frame(COMMAND, b"\x09SUBSCRIBEall"), id="a subscription"),
        pytest.param(encode_frame(COMMAND, b""), id="a command without a name"),
        pytest.param(encode_message([b""]) * 4096, id="many messages that are too short for calls"),
        pytest.param(encode_frame(COMMAND, b"\x04PONG") * 1000, id="many signs of life"),
    ],
)
def test_what_breaks_the_rules_is_noticed_as_soon_as_it_is_there(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        heard(shaken(), data)


@pytest.mark.parametrize("size", [1, 3, 100, 300])
@pytest.mark.parametrize("frames", [[b""] * 5, [b"x" * 9_000, b"x" * 2_900, b"x" * 101]])
def test_limits_of_a_message_hold_in_pieces_of_any_size(frames: list[bytes], size: int) -> None:
    incoming, data = shaken(), encode_message([b"before"]) + encode_message(frames)
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    with pytest.raises(ProtocolError, match="a message has more than"):
        for part in parts:
            heard(incoming, part)
    assert incoming.unfinished <= LIMITS.message_bytes


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET / HTTP/1.1\r\n", id="http"),
        pytest.param(b"\xff" + bytes(8) + b"\x7e", id="no signature"),
        pytest.param(GREETING[:10] + b"\x01\x05", id="ZMTP 2"),
        pytest.param(GREETING[:12] + b"CURVE".ljust(20, b"\0"), id="another mechanism"),
        pytest.param(GREETING + encode_message([b"call"]), id="a call before the handshake is over"),
        pytest.param(GREETING + b"\x02" + struct.pack(">Q", 9_000), id="a long call before the handshake is over"),
        pytest.param(GREETING + encode_frame(COMMAND, b"\x04PING\0\0"), id="a sign of life before that"),
        pytest.param(GREETING + encode_frame(COMMAND, b"\x05READY"), id="no kind of socket"),
        pytest.param(GREETING + DEALER.replace(b"DEALER", b"SERVER"), id="a socket that does not fit"),
        pytest.param(GREETING + encode_frame(COMMAND, b"\x05READY\xffSocket-Type"), id="a name without an end"),
        pytest.param(
            GREETING + encode_frame(COMMAND, b"\x05READY\x0bSocket-Type\xff\xff\xff\xffDEALER"),
            id="a value without an end",
        ),
    ],
)
def test_who_does_not_begin_as_zmtp_does_is_noticed(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        heard(Incoming(ROUTER, LIMITS, (ROUTE,)), data)


def test_any_bytes_are_messages_or_break_the_rules() -> None:
    draw = random.Random(2)
    for _ in range(2_000):
        incoming = shaken()
        try:
            for message in heard(incoming, draw.randbytes(draw.randrange(200))):
                assert message[0] == ROUTE
        except ProtocolError:
            pass


def test_who_sends_commands_without_end_is_put_out() -> None:
    incoming = Incoming(ROUTER, LIMITS)
    heard(incoming, SHAKEN)
    for _ in range(10):
        assert heard(incoming, PING * 20) == []
    with pytest.raises(ProtocolError, match="more commands"):
        heard(incoming, PING * 500)


def test_a_connection_that_falls_silent_keeps_nothing_of_its_last_part() -> None:
    incoming = Incoming(ROUTER, LIMITS)
    heard(incoming, SHAKEN)
    part = encode_message([b"x" * 9_000])
    references = sys.getrefcount(part)
    assert len(heard(incoming, part)) == 1
    assert sys.getrefcount(part) == references
