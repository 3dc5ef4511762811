"""An outbox sent to its end by a program that does nothing else."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from xbus.clock import SystemClock
from xbus.emitter.asynchronous import AsyncEmitter
from xbus.emitter.options import Options
from xbus.emitter.outbox.box import Outbox
from xbus.emitter.outbox.file import locked
from xbus.emitter.outbox.queueing import OutboxThread
from xbus.emitter.outbox.sending import OutboxSender

PAUSE_SECONDS = 5.0
"""Seconds to wait for the end of a pause at the bus: whoever gives the command sees that it does not go on."""


@dataclass(frozen=True)
class Flushed:
    """The result of a flush: how many envelopes the bus took, and how many it refused."""

    sent: int
    refused: int


def flush_outbox(
    path: Path, url: str, login: str, password: str, retry_seconds: float = Options.retry_seconds
) -> Flushed:
    """Send all that waits in an outbox.

    Args:
        path: the outbox.
        url: the front socket of the bus.
        login: the emitter's login.
        password: the emitter's password.
        retry_seconds: how long to insist while the bus does not answer or takes nothing.

    Raises:
        Refused: the outbox does not exist (``outbox_unknown``), another process sends from it (``outbox_in_use``), or
            the login is refused.
        Failed: the bus did not take an envelope; it stays first in the line.
    """
    emitter = AsyncEmitter(url, login, password, retry_seconds=retry_seconds, pause_seconds=PAUSE_SECONDS)
    return asyncio.run(_flush(path, emitter))


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
