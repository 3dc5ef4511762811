"""A recipient that listens: the author's code, the thread it runs in, and the socket on which the broker calls it."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from xbus.clock import Clock
from xbus.recipient.api import RecipientApi
from xbus.recipient.author_thread import AuthorThread
from xbus.recipient.base import Recipient
from xbus.recipient.bulk import BulkWorker
from xbus.recipient.bulk.jobs import JOB_WAITS, BulkJobs, Call, JobWaits
from xbus.recipient.calls import Calls
from xbus.rpc.context import Context
from xbus.rpc.dispatch import Dispatch
from xbus.rpc.server import Server, ServerLimits

logger = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 134_217_728
"""The largest message that is read; a broker's batches are far below."""


@dataclass(frozen=True)
class ServiceWaits:
    """Seconds that the end of a recipient may take.

    Args:
        roll_back: for the author's code to roll back, and to close what it opened.
        jobs: for outputs of a bulk worker.
    """

    roll_back: float = 5.0
    jobs: JobWaits = JOB_WAITS


SERVICE_WAITS = ServiceWaits()


class RecipientService:
    """Serves one recipient.

    Args:
        context: for the socket.
        author: the author's recipient.
        login: the role's login, for names in the log.
        clock: tells the time.
        on_worker_ready: see ``RecipientApi``.
        call: calls the back, with the token of the role.
        waits: how long its end may take.
    """

    def __init__(
        self,
        context: Context,
        author: Recipient,
        login: str,
        clock: Clock,
        on_worker_ready: Callable[[], None],
        call: Call,
        waits: ServiceWaits,
    ) -> None:
        self._waits = waits
        self._author_thread = AuthorThread(f"recipient {login}")
        self._calls = Calls(author, self._author_thread)
        self._jobs = BulkJobs(author, call, waits.jobs) if isinstance(author, BulkWorker) else None
        self.api = RecipientApi(
            author, self._calls, self._author_thread, clock, on_worker_ready, lambda: self._server.caller, self._jobs
        )
        self._server = Server(
            context,
            Dispatch(self.api),
            name=f"recipient {login}",
            limits=ServerLimits(max_message_bytes=MAX_MESSAGE_BYTES),
            clock=clock,
        )

    def bind(self, address: str) -> str:
        """Take the address, and return it with the port that was taken; nothing is read from it yet.

        Raises:
            ConfigurationError: the address can't be used.
        """
        return self._server.bind(address)

    async def start(self) -> None:
        """Run the author's ``on_start``, then listen. It may be repeated after an exception of the author's code."""
        await self._author_thread.give(self._calls.start)
        self._server.start()

    async def finish(self, seconds: float) -> None:
        """Take no new envelopes, and give those that are open some time to come to their end."""
        logger.info("stopping", extra={"action": "recipient_stopping"})
        self.api.is_closing = True
        if not await _within(seconds, self.api.idle.wait()):
            logger.warning("envelopes still open, rolling back", extra={"action": "recipient_stop_timeout"})
        if self._jobs is not None:
            await self._jobs.close()

    async def stop(self) -> None:
        """Roll back open envelopes, and run the author's ``on_stop`` if ``on_start`` went well."""
        if not await _within(self._waits.roll_back, self._stop_author()):
            logger.error("the recipient's code does not return", extra={"action": "recipient_hangs"})

    def close(self) -> None:
        """Close the socket and the thread."""
        self._server.close()
        self._author_thread.close()

    async def _stop_author(self) -> None:
        if self._jobs is not None:
            await self._jobs.close()
        await self.api.roll_back_all()
        await self._author_thread.give(self._calls.stop)


async def _within(seconds: float, work: Coroutine[Any, Any, Any]) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        return False
    return True
