"""Bytes as a stranger may send them, at everything that decodes: it decodes them, or says why not."""

from collections.abc import Callable, Sequence
from contextlib import suppress

from tests.fuzz.tape import Tape
from xbus.errors import CallError, ProtocolError
from xbus.headers.packing import check_packed, unpack_headers
from xbus.ids import parse_new_uuid
from xbus.rpc.codec import MOST_VALUES, check_values, first_text, largest_item, pack, pack_items, unpack, unpack_items
from xbus.rpc.frames import argument_bytes, decode_reply, decode_request, first_argument


def judge(data: bytes) -> None:
    """Decode bytes in one of all ways.

    Raises:
        Exception: something else than a refusal came of it, or what was decoded is not what was encoded.
    """
    tape = Tape(data)
    with suppress(ProtocolError, CallError):
        tape.one_of(_WAYS)(tape)


def _value(tape: Tape) -> None:
    value = unpack(tape.bytes(tape.left), MOST_VALUES)
    # NaN differs from itself, and its bytes don't.
    assert pack(unpack(pack(value))) == pack(value)


def _count(tape: Tape) -> None:
    data = tape.bytes(tape.left)
    # Each value takes a byte, so data that is whole can't have more.
    try:
        unpack(data)
    except ProtocolError:
        with suppress(ProtocolError):
            check_values(data, MOST_VALUES)
    else:
        check_values(data, len(data))


def _items(tape: Tape) -> None:
    number = 1 + tape.number(300)
    data = tape.bytes(tape.left)
    try:
        items = unpack_items(data, number)
    except ProtocolError:
        items = None
    try:
        largest = largest_item(data, number)
    except ProtocolError:
        assert items is None, "one reads what the other refuses"
    else:
        assert items is not None, "one reads what the other refuses"
        assert largest == max(map(len, items), default=0)
        assert unpack_items(pack_items(items), number) == items


def _first(tape: Tape) -> None:
    key = tape.one_of((None, "token"))
    text = first_text(tape.bytes(tape.left), key)
    assert isinstance(text, str)


def _request(tape: Tape) -> None:
    frames = _frames(tape)
    assert argument_bytes(frames) >= 0
    if argument_bytes(frames):
        first_argument(frames, "token")
    _, _, args, kwargs, _ = decode_request(frames)
    assert isinstance(args, list)
    assert isinstance(kwargs, dict)


def _reply(tape: Tape) -> None:
    reply = decode_reply(_frames(tape))
    assert reply.error is None or isinstance(reply.error, CallError)


def _headers(tape: Tape) -> None:
    data = tape.bytes(tape.left)
    headers = unpack_headers(check_packed(data))
    assert all(isinstance(name, str) for name in headers)


def _uuid(tape: Tape) -> None:
    found = parse_new_uuid(tape.text(64))
    assert found is None or parse_new_uuid(str(found)) == found


def _frames(tape: Tape) -> list[bytes]:
    lengths = [tape.one_of((4, 5, 16, 17, 17, 40, 200)) for _ in range(tape.number(7))]
    return [*(tape.bytes(length) for length in lengths), tape.bytes(tape.left)]


_WAYS: Sequence[Callable[[Tape], None]] = (_value, _count, _items, _first, _request, _reply, _headers, _uuid)
