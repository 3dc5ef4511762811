"""A recipient that is served: the author's code, the thread it runs in, and the way by which the broker calls it."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from xbus.clock import Clock
from xbus.errors import ConfigurationError
from xbus.loop_turn import LoopTurn
from xbus.recipient.api import RecipientApi
from xbus.recipient.base import Recipient
from xbus.recipient.bulk import JOB_WAITS, BulkJobs, BulkWorker, JobWaits
from xbus.recipient.calls import AuthorThread, Calls
from xbus.recipient.ways import BrokerWay, CallBack, OwnConnection, OwnPort
from xbus.rpc.answering import Channels
from xbus.rpc.context import Context
from xbus.rpc.curve import BrokerAddress
from xbus.rpc.dispatch import Dispatch

logger = logging.getLogger(__name__)


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
        author: the author's recipient.
        login: the role's login, for names in the log.
        clock: tells the time.
        on_worker_ready: see ``RecipientApi``.
        call: calls the back, with the token of the role.
        waits: how long its end may take.
        turn: of the connection by which the recipient registers. The broker calls by the same one, unless the recipient
            listens at an address of its own.

    Attributes:
        way: by which the broker comes, once it is chosen.
    """

    way: BrokerWay

    def __init__(
        self,
        author: Recipient,
        login: str,
        clock: Clock,
        on_worker_ready: Callable[[], None],
        call: CallBack,
        waits: ServiceWaits,
        turn: LoopTurn,
    ) -> None:
        self._waits = waits
        self._login = login
        self._clock = clock
        self._author_thread = AuthorThread(f"recipient {login}", turn)
        self._calls = Calls(author, self._author_thread)
        self._jobs = BulkJobs(author, call, waits.jobs) if isinstance(author, BulkWorker) else None
        self.api = RecipientApi(author, self._calls, self._author_thread, clock, on_worker_ready, self._jobs)

    def choose_way(
        self, channels: Channels, context: Context, broker: BrokerAddress, bind: str, advertise: str
    ) -> None:
        """Have the broker come over a connection that this process made, or listen for it.

        Args:
            channels: of that connection.
            context: for a socket to listen.
            broker: the way to it. With keys, the broker needs its key to be let in where this process listens.
            bind: where to listen; "" for nowhere. Nothing is read from there yet.
            advertise: the address for the broker, if it is another one; ``{port}`` becomes the port that was taken.

        Raises:
            ConfigurationError: an address can't be used.
        """
        if bind:
            self.way = OwnPort(self.api, self._login, context, broker, bind, advertise, self._clock)
        elif advertise:
            raise ConfigurationError(
                f"the recipient has an address for the broker, {advertise}, and does not listen",
                "say where it listens: bind=, on the command line --bind; or leave both out",
                code="bad_address",
            )
        else:
            self.way = OwnConnection(channels, Dispatch(self.api))
        self.api.deliveries.way = self.way

    async def start(self) -> None:
        """Run the author's ``on_start``, then take calls. It may be repeated after an exception of that."""
        await self._author_thread.give(self._calls.start)
        self.way.start()

    async def finish(self, seconds: float) -> None:
        """Take no new envelopes, and give those that are open some time to come to their end."""
        logger.info("stopping", extra={"action": "recipient_stopping"})
        self.api.deliveries.is_closing = True
        if not await _within(seconds, self.api.deliveries.idle()):
            logger.warning("envelopes still open, rolling back", extra={"action": "recipient_stop_timeout"})
        if self._jobs is not None:
            await self._jobs.close()

    async def stop(self) -> None:
        """Roll back open envelopes, and run the author's ``on_stop`` if ``on_start`` went well."""
        if not await _within(self._waits.roll_back, self._stop_author()):
            logger.error("the recipient's code does not return", extra={"action": "recipient_hangs"})

    def close(self) -> None:
        """Take no more calls, and end the thread."""
        if hasattr(self, "way"):
            self.way.close()
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
