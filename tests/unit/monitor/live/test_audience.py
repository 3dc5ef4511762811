"""Streams of events: each sample reaches all, silence has heartbeats, and nobody takes all the room."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from xbus.errors import Failed
from xbus.monitor.live.sampler import ALIVE, END, NEWS, Audience


class Session:
    """A session that a test ends."""

    def __init__(self) -> None:
        self.is_over = False

    async def is_in_force(self) -> bool:
        return not self.is_over


async def next_of(stream: AsyncIterator[str]) -> str:
    async with asyncio.timeout(30):
        return await anext(stream)


async def test_a_sample_reaches_all_who_look() -> None:
    audience, session = Audience(heartbeat_seconds=60), Session()
    streams = [audience.stream(name, session.is_in_force) for name in ("ada", "bob")]
    assert [await next_of(stream) for stream in streams] == [NEWS, NEWS]
    assert audience.streams == 2
    coming = [asyncio.create_task(next_of(stream)) for stream in streams]
    await asyncio.sleep(0)
    audience.tell()
    assert [await each for each in coming] == [NEWS, NEWS]


async def test_without_samples_a_stream_shows_that_it_is_alive() -> None:
    stream = Audience(heartbeat_seconds=0.001).stream("ada", Session().is_in_force)
    assert [await next_of(stream) for _ in range(3)] == [NEWS, ALIVE, ALIVE]


async def test_a_stream_ends_with_its_session() -> None:
    audience, session = Audience(heartbeat_seconds=0.001), Session()
    stream = audience.stream("ada", session.is_in_force)
    await next_of(stream)
    session.is_over = True
    assert await next_of(stream) == END
    with pytest.raises(StopAsyncIteration):
        await next_of(stream)
    assert audience.streams == 0


async def test_all_streams_end_with_the_monitor() -> None:
    audience = Audience(heartbeat_seconds=60)
    stream = audience.stream("ada", Session().is_in_force)
    await next_of(stream)
    coming = asyncio.create_task(next_of(stream))
    await asyncio.sleep(0)
    audience.end()
    assert await coming == END


async def test_a_stream_that_is_left_frees_its_place() -> None:
    audience = Audience(heartbeat_seconds=60)
    stream = audience.stream("ada", Session().is_in_force)
    await next_of(stream)
    coming = asyncio.create_task(next_of(stream))
    await asyncio.sleep(0)
    coming.cancel()
    await asyncio.wait([coming])
    assert audience.streams == 0


async def test_room_is_bounded_for_all_and_for_each() -> None:
    audience = Audience(heartbeat_seconds=60, most=3, most_of_a_person=2)
    streams = [audience.stream("ada", Session().is_in_force) for _ in range(2)]
    for stream in streams:
        await next_of(stream)
    with pytest.raises(Failed, match="too many"):
        audience.check_room("ada")
    audience.check_room("bob")
    other = audience.stream("bob", Session().is_in_force)
    await next_of(other)
    with pytest.raises(Failed, match="too many"):
        audience.check_room("cid")
