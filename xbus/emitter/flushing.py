"""An outbox sent to its end by a program that does nothing else."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from xbus.clock import SystemClock
from xbus.emitter.asynchronous import AsyncEmitter
from xbus.emitter.outbox.box import Outbox
from xbus.emitter.outbox.lock import locked
from xbus.emitter.outbox.queueing import OutboxThread
from xbus.emitter.outbox.sending import OutboxSender


@dataclass(frozen=True)
class Flushed:
    """The result of a flush: how many envelopes the bus took, and how many it refused."""

    sent: int
    refused: int


def flush_outbox(path: Path, url: str, login: str, password: str) -> Flushed:
    """Send all that waits in an outbox.

    Args:
        path: the outbox.
        url: the front socket of the bus.
        login: the emitter's login.
        password: the emitter's password.

    Raises:
        Refused: the outbox does not exist (``outbox_unknown``), another process sends from it (``outbox_in_use``), or
            the login is refused.
        Failed: the bus did not take an envelope; it stays first in the line.
    """
    return asyncio.run(_flush(path, AsyncEmitter(url, login, password)))


async def _flush(path: Path, emitter: AsyncEmitter) -> Flushed:
    thread = OutboxThread(await asyncio.to_thread(Outbox.existing, path))
    try:
        with locked(path):
            await thread.run(thread.outbox.remove_unfinished)
            sender = OutboxSender(thread, lambda: emitter, SystemClock())
            async with emitter:
                await sender.flush(emitter)
            return Flushed(sender.sent, sender.refused)
    finally:
        thread.close()
