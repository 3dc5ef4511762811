"""Waiting for what must become true, with a deadline and never longer than needed."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

STEP_SECONDS = 0.01
DEADLINE_SECONDS = 90.0
"""Many times as long as anything takes, because other tests may keep the machine busy."""

Answer = TypeVar("Answer")


def wait_until(condition: Callable[[], object], what: str, timeout: float = DEADLINE_SECONDS) -> None:
    """Return as soon as ``condition`` is true.

    Args:
        condition: is called again and again; what it raises comes out.
        what: what is waited for, for the message.
        timeout: in seconds; after it the test fails.
    """
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} within {timeout} s: did not happen")
        time.sleep(STEP_SECONDS)


async def eventually(condition: Callable[[], object], what: str, timeout: float = DEADLINE_SECONDS) -> None:
    """As :func:`wait_until`, while the event loop goes on."""

    async def ask() -> object:
        return condition()

    await answered(ask, what, timeout)


async def answered(ask: Callable[[], Awaitable[Answer]], what: str, timeout: float = DEADLINE_SECONDS) -> Answer:
    """As :func:`eventually`, for what must be awaited itself: the first answer that is true."""
    deadline = time.monotonic() + timeout
    while not (answer := await ask()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} within {timeout} s: did not happen")
        await asyncio.sleep(STEP_SECONDS)
    return answer
