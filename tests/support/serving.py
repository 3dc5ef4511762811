"""Recipients that a test serves in its own process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.support.bus import PASSWORD
from tests.support.daemon import Daemon
from xbus.recipient import Recipient, serve

END_SECONDS = 90.0


@asynccontextmanager
async def serving(daemon: Daemon, login: str, recipient: Recipient) -> AsyncIterator[None]:
    """A recipient that is served until the block is left."""
    stop = asyncio.Event()
    options: Any = {"heartbeat_seconds": 0.2, "stop_timeout": 1}
    task = asyncio.create_task(serve(recipient, daemon.back, login, PASSWORD, stop, **options))
    try:
        yield
    finally:
        stop.set()
        async with asyncio.timeout(END_SECONDS):
            await task
