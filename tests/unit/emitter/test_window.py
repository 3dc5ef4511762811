"""What may be in flight."""

import asyncio

from xbus.emitter.session import SendWindow


async def test_there_is_room_up_to_the_limit_and_for_the_batch_that_passes_it() -> None:
    window = SendWindow(100)
    found = []
    for count in (window.take, window.take, window.give):
        count(99)
        found.append(window.is_open)
    assert found == [True, False, True]


async def test_who_waits_goes_on_when_there_is_room() -> None:
    window = SendWindow(100)
    window.take(150)
    waiting = asyncio.create_task(window.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    window.give(40)
    await asyncio.sleep(0)
    assert not waiting.done()
    window.give(40)
    await waiting


async def test_of_two_who_wait_the_second_looks_again() -> None:
    window = SendWindow(100)
    window.take(100)

    async def send() -> None:
        await window.room()
        window.take(100)

    first, second = asyncio.create_task(send()), asyncio.create_task(send())
    await asyncio.sleep(0)
    window.give(100)
    await first
    await asyncio.sleep(0)
    assert not second.done()
    window.give(100)
    await second
