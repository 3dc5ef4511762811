"""Requests and replies as frames, with bytes only."""

import struct
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xbus.errors import CallError, ConnectionLost, Failed, ProtocolError, Refused, TimedOut
from xbus.rpc.codec import pack
from xbus.rpc.frames import (
    decode_reply,
    decode_request,
    encode_error,
    encode_request,
    sender_prefix,
)

SENDER = sender_prefix(70000, 7)
HEADER = struct.pack("=HHLd", 1, 2, 3, 4.0)
plain = st.none() | st.booleans() | st.integers(0, 2**32) | st.text() | st.binary()


@given(st.integers(0, 2**32 - 1), st.text(), st.lists(plain))
def test_a_request_comes_back(request_id: int, method: str, args: list[Any]) -> None:
    frames = encode_request(SENDER, request_id, 1.5, method, tuple(args))
    assert decode_request([b"peer", *map(bytes, frames)]) == (request_id, method, args, {}, None)


def test_a_request_has_the_form_of_aiozmq() -> None:
    header, method, args, kwargs = map(bytes, encode_request(SENDER, 5, 1.5, "xbus.login", ("a", b"b")))
    assert struct.unpack("=HHLd", header) == (70000 % 65536, 7, 5, 1.5)
    assert (method, msgpack.unpackb(args), msgpack.unpackb(kwargs)) == (b"xbus.login", ["a", b"b"], {})


def test_keyword_arguments_are_read() -> None:
    frames = [b"peer", HEADER, b"login", pack(["me"]), pack({"password": "secret"})]
    assert decode_request(frames)[3] == {"password": "secret"}


@pytest.mark.parametrize("number", range(5))
def test_too_few_frames_are_no_request(number: int) -> None:
    with pytest.raises(ProtocolError):
        decode_request([b"peer", HEADER, b"ping", pack([]), pack({})][:number])


@pytest.mark.parametrize(
    ("position", "frame"),
    [
        (1, b"short"),
        (1, HEADER + b"x"),
        (2, b"\xff"),
        (3, b""),
        (3, b"\xc1"),
        (3, pack({})),
        (4, b"\xc1"),
        (4, pack([])),
    ],
)
def test_a_bad_frame_is_no_request(position: int, frame: bytes) -> None:
    frames = [b"peer", HEADER, b"ping", pack([]), pack({})]
    frames[position] = frame
    with pytest.raises(ProtocolError):
        decode_request(frames)


@given(st.lists(st.binary(), max_size=7))
def test_any_frames_are_read_or_refused(frames: list[bytes]) -> None:
    for decode in (decode_request, decode_reply):
        try:
            decode(frames)
        except ProtocolError as error:
            assert error.cause


@pytest.mark.parametrize("position", [3, 4])
def test_an_extension_is_a_request_to_be_refused(position: int) -> None:
    frames = [b"peer", HEADER, b"ping", pack([]), pack({})]
    frames[position] = b"\x91\xd4\x7fx" if position == 3 else b"\x81\xa1k\xd4\x7fx"
    request_id, _, args, _, refusal = decode_request(frames)
    assert refusal is not None
    assert (request_id, args, refusal.code) == (3, [], "wrong_arguments")


@pytest.mark.parametrize("position", [3, 4])
def test_a_map_with_a_name_twice_is_a_request_to_be_refused(position: int) -> None:
    doubled = b"\x82\xa5token\xa1a\xa5token\xa1b"
    frames = [b"peer", HEADER, b"ping", pack([]), pack({})]
    frames[position] = b"\x91" + doubled if position == 3 else doubled
    request_id, _, args, _, refusal = decode_request(frames)
    assert refusal is not None
    assert (request_id, args, refusal.code, refusal.cause) == (3, [], "wrong_arguments", "a map has a name twice")


@given(plain)
def test_an_answer_comes_back(answer: Any) -> None:
    header = struct.pack("=HHLd?", 1, 2, 9, 1.5, False)
    assert decode_reply([header, msgpack.packb(answer)]) == (9, answer, None)


@pytest.mark.parametrize(
    ("error", "kind", "wire_type"),
    [
        (Refused("a", "b", code="c"), Refused, "xbus.errors.Refused"),
        (Failed("a", "b"), Failed, "xbus.errors.Failed"),
        (TimedOut("a", "b"), Failed, "xbus.errors.TimedOut"),
        (ConnectionLost("a", "b"), Failed, "xbus.errors.ConnectionLost"),
        (CallError("a", "b"), Failed, "xbus.errors.Failed"),
    ],
)
def test_an_error_comes_back_with_its_code(error: CallError, kind: type[CallError], wire_type: str) -> None:
    frames = encode_error(SENDER, 9, 0, error)
    assert msgpack.unpackb(frames[1])[0] == wire_type
    came = decode_reply(frames).error
    assert type(came) is kind
    assert (came.cause, came.next_step, came.code) == ("a", "b", error.code)


@pytest.mark.parametrize(
    ("code", "wire_type"),
    [("unknown_method", "aiozmq.rpc.base.NotFoundError"), ("wrong_arguments", "aiozmq.rpc.base.ParametersError")],
)
def test_old_clients_get_the_errors_that_they_know(code: str, wire_type: str) -> None:
    frames = encode_error(SENDER, 9, 0, Refused("a", "b", code=code))
    assert msgpack.unpackb(frames[1])[:2] == [wire_type, ["a: b"]]
    came = decode_reply(frames).error
    assert isinstance(came, Refused)
    assert (came.cause, came.next_step, came.code) == ("a", "b", code)


@pytest.mark.parametrize(
    ("cause", "next_step"), [("a: it's b", 'give "c": d'), ("a", ""), ("a: b", ""), ("", "b"), ("x: " * 2000, "b")]
)
def test_an_error_for_old_clients_keeps_its_next_step_for_new_ones(cause: str, next_step: str) -> None:
    frames = encode_error(SENDER, 9, 0, Refused(cause, next_step, code="wrong_arguments"))
    came = decode_reply(frames).error
    assert isinstance(came, Refused)
    assert cause.startswith(came.cause.removesuffix("…"))
    assert came.next_step == next_step


@pytest.mark.parametrize(
    "answer",
    [["builtins.ValueError", ["no"], "ValueError('no')"], None, 7, [], ["a"], ["xbus.errors.Refused", [], "r"]],
)
def test_any_other_error_reply_is_a_failure(answer: Any) -> None:
    header = struct.pack("=HHLd?", 1, 2, 3, 4.0, True)
    error = decode_reply([header, pack(answer)]).error
    assert type(error) is Failed
    assert error.code == "error_reply"


@pytest.mark.parametrize("data", [b"\xc1", b"\xd4\x7fx", b""])
def test_an_answer_that_cannot_be_read_fails_its_call(data: bytes) -> None:
    reply = decode_reply([struct.pack("=HHLd?", 1, 2, 3, 4.0, False), data])
    assert reply.id == 3
    assert isinstance(reply.error, Refused)
    assert reply.error.code == "bad_answer"


def test_the_details_of_an_error_come_along() -> None:
    error = Failed("too fast", "repeat the call in 1.5 s", code="slow_down", details={"seconds": 1.5})
    frames = encode_error(SENDER, 9, 1.5, error)
    assert msgpack.unpackb(frames[1])[1] == ["too fast", "repeat the call in 1.5 s", "slow_down", {"seconds": 1.5}]
    came = decode_reply(frames).error
    assert isinstance(came, Failed)
    assert (came.code, came.details) == ("slow_down", {"seconds": 1.5})


@pytest.mark.parametrize("details", [["seconds"], None, {"seconds": "soon", "also": True, 7: 2}, {"a": {"b": 1}}])
def test_details_of_another_form_are_left_out(details: object) -> None:
    answer = ["xbus.errors.Failed", ["too fast", "wait", "slow_down", details, "more"], "repr"]
    came = decode_reply([struct.pack("=HHLd?", 1, 2, 3, 4.0, True), msgpack.packb(answer)]).error
    assert isinstance(came, Failed)
    assert came.code == "slow_down"
    assert set(came.details) <= {"7"}
