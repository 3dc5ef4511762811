"""Recipients that a test serves in its own process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.support.bus import PASSWORD
from tests.support.daemon import Daemon
from tests.support.ways import WAY
from xbus.recipient import Recipient, serve
from xbus.recipient.bulk import JobWaits
from xbus.recipient.service import ServiceWaits

END_SECONDS = 90.0


@asynccontextmanager
async def serving(
    daemon: Daemon, login: str, recipient: Recipient, *, bind: str | None = None, back: str = ""
) -> AsyncIterator[None]:
    """A recipient that is served until the block is left.

    Args:
        bind: where it listens for the broker; by default as the test's way says, which opens no port as a rule.
        back: where it finds the broker, if that is another address than the broker's.
    """
    stop = asyncio.Event()
    # On a busy machine a farewell may take its time, and what is not heard is noticed by the lease only.
    waits = ServiceWaits(jobs=JobWaits(farewell=END_SECONDS / 2))
    options: Any = {
        "heartbeat_seconds": 0.2,
        "stop_timeout": 1,
        "waits": waits,
        "bind": WAY.bind if bind is None else bind,
    }
    task = asyncio.create_task(serve(recipient, back or daemon.back, login, PASSWORD, stop, **options))
    try:
        yield
    finally:
        stop.set()
        async with asyncio.timeout(END_SECONDS):
            await task
