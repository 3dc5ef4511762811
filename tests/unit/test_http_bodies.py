"""Bodies of requests keep no more than there is room for."""

from collections.abc import AsyncIterator

import pytest

from xbus.errors import Failed, Refused
from xbus.http.bodies import Body, Room, items_of


async def parts() -> AsyncIterator[bytes]:
    yield b'name\n"'
    for _ in range(100):
        yield b"x\n"
    yield b'"\n'


async def test_a_row_with_many_lines_takes_room_until_it_is_complete() -> None:
    body = Body(parts(), Room(100), 1000)
    with pytest.raises(Failed) as failure:
        [item async for item in items_of("text/csv", body)]
    assert failure.value.code == "gateway_full"


async def test_what_a_row_took_is_given_back() -> None:
    room = Room(1000)
    body = Body(parts(), room, 1000)
    assert len([item async for item in items_of("text/csv", body)]) == 1
    body.close()
    room.take(1000)


async def test_a_row_of_one_line_may_take_all_the_room() -> None:
    async def row() -> AsyncIterator[bytes]:
        yield b"name\n"
        yield b"x" * 900
        yield b"x\n"

    body = Body(row(), Room(1000), 1000)
    assert len([item async for item in items_of("text/csv", body)]) == 1


async def whole(text: bytes) -> AsyncIterator[bytes]:
    yield text


@pytest.mark.parametrize("number", ["1e999", "-1e999", "[0.5, 1e400]", "NaN", "Infinity"])
@pytest.mark.parametrize("media_type", ["application/json", "application/x-ndjson"])
async def test_a_number_without_end_is_refused(number: str, media_type: str) -> None:
    with pytest.raises(Refused) as refusal:
        [item async for item in items_of(media_type, Body(whole(number.encode()), Room(1000), 1000))]
    assert refusal.value.code == "bad_body"
    assert number.strip("[]-").rpartition(" ")[2] in refusal.value.cause


MANY_VALUES = b"[" + b"[]," * 200_000 + b"1]"


@pytest.mark.parametrize(
    ("media_type", "text"),
    [("application/json", MANY_VALUES), ("application/msgpack", b"\xdd\x00\x03\x0d\x40" + b"\x90" * 200_000)],
)
async def test_the_values_of_a_document_take_room_until_it_is_closed(media_type: str, text: bytes) -> None:
    room = Room(20_000_000)
    body = Body(whole(text), room, len(text))
    assert len([item async for item in items_of(media_type, body)]) >= 200_000
    with pytest.raises(Failed):
        room.take(5_000_000)
    body.close()
    room.take(20_000_000)


@pytest.mark.parametrize(
    ("media_type", "text"),
    [("application/json", b"[" + b"1," * 1_000_001 + b"1]"), ("application/msgpack", b"\xdd\xff\xff\xff\xff" * 20_000)],
)
async def test_too_many_values_are_refused_before_they_are_made(media_type: str, text: bytes) -> None:
    with pytest.raises(Refused) as refusal:
        [item async for item in items_of(media_type, Body(whole(text), Room(10**9), len(text)))]
    assert refusal.value.code == "body_too_large"


async def test_one_document_may_take_all_the_room() -> None:
    body = Body(whole(MANY_VALUES), Room(len(MANY_VALUES)), len(MANY_VALUES))
    assert len([item async for item in items_of("application/json", body)]) == 200_001
