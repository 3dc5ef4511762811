"""The loop of everything that the broker does again and again."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NoReturn, TypeAlias

Pause: TypeAlias = Callable[[float], Awaitable[object]]
"""Waits for so many seconds."""


async def every(seconds: float, work: Callable[[], Awaitable[object]], *, pause: Pause = asyncio.sleep) -> NoReturn:
    """Repeat work for ever, at once and then again so many seconds after its end.

    Args:
        seconds: between the end of one time and the beginning of the next: slow work never runs twice at once.
        work: its errors end the loop; it deals itself with those that only delay it.
        pause: waits; handed in by tests.
    """
    while True:
        await work()
        await pause(seconds)


async def after_every(
    seconds: float, work: Callable[[], Awaitable[object]], *, pause: Pause = asyncio.sleep
) -> NoReturn:
    """Repeat work for ever as ``every`` does, for the first time after so many seconds."""
    await pause(seconds)
    await every(seconds, work, pause=pause)
