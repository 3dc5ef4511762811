"""Bodies of requests keep no more than there is room for."""

from collections.abc import AsyncIterator

import pytest

from xbus.errors import Failed
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
