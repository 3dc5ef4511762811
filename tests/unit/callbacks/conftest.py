"""These tests are played in virtual time: some ask for what happens between two moments that lie 5 ms apart."""

import asyncio
from collections.abc import Callable, Mapping

from xbus.testing.loop import VirtualLoop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Give the loops that the plugin plays each test on."""
    return {"virtual": VirtualLoop}
