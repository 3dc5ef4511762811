"""A deadline for asynchronous tests, so that what is never answered fails the test and not the whole run."""

import asyncio
import functools
import inspect
from collections.abc import Iterable
from typing import Any

import pytest


def set_deadlines(items: Iterable[pytest.Item], folder: str, seconds: float) -> None:
    """Let each test of a folder that is a coroutine run for so long at the most.

    Args:
        items: tests, as pytest collected them.
        folder: from the checkout, as ``tests/contract/``; ids begin so, and looking at paths takes a second.
        seconds: more than any of them needs on a busy machine.
    """
    functions = [item for item in items if isinstance(item, pytest.Function) and item.nodeid.startswith(folder)]
    for item in functions:
        if inspect.iscoroutinefunction(item.obj):
            item.obj = _within(item.obj, seconds)


def _within(test: Any, seconds: float) -> Any:
    @functools.wraps(test)
    async def run(*args: Any, **kwargs: Any) -> None:
        try:
            async with asyncio.timeout(seconds) as deadline:
                await test(*args, **kwargs)
        except TimeoutError:
            if deadline.expired():
                pytest.fail(f"the test still waited after {seconds:g} s", pytrace=False)
            raise

    return run
