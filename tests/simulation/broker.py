"""A broker in virtual time: the real front and back over the simulated journal and network; it may be killed."""

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any, cast

from tests.simulation.journal import Database, SimulatedJournal
from tests.simulation.loop import VirtualClock
from tests.simulation.network import Connection, Process
from xbus.broker.back.back import Back
from xbus.broker.back.runtime import Runtime
from xbus.broker.configuration import Configuration
from xbus.broker.front.envelopes.checks import Checks
from xbus.broker.front.envelopes.replies import ReplyRequests
from xbus.broker.front.envelopes.state import EnvelopeLimits
from xbus.broker.front.front import Front
from xbus.broker.housekeeping.space import Space
from xbus.broker.journal.journal import Journal
from xbus.clock import Clock
from xbus.config import BackSettings
from xbus.errors import JournalUnavailable, Refused
from xbus.rpc.bell import Bell
from xbus.rpc.client import Client
from xbus.supervision.health import Health

LIMITS = EnvelopeLimits(item_bytes=1_000, batch_bytes=5_000, envelope_items=1_000, envelope_bytes=100_000)
SETTINGS = BackSettings(
    start_event_timeout=5,
    send_item_timeout=5,
    end_event_timeout=5,
    end_envelope_timeout=5,
    stop_envelope_timeout=5,
    reply_hold_timeout=10,
    register_timeout=3,
    window_bytes=1_000,
    behind_after=3,
    worker_grace=1,
    bulk_lease=10,
)
REPLY_SECONDS = 10.0


class _Bell:
    """Both ends of a bell; some rings get lost."""

    def __init__(self, choices: random.Random) -> None:
        self._choices = choices
        self._rung = asyncio.Event()

    def ring(self) -> None:
        if self._choices.random() < 0.8:
            self._rung.set()

    async def wait(self, timeout: float) -> bool:
        try:
            async with asyncio.timeout(timeout):
                await self._rung.wait()
        except TimeoutError:
            return False
        self._rung.clear()
        return True


class SimulatedBroker:
    """One life of the broker.

    Args:
        database: what it finds and leaves behind.
        processes: who may be reached, by address.
        choices: gives the times that things take.
        clock: tells the time.
    """

    front: Front
    back: Back

    def __init__(
        self, database: Database, processes: Mapping[str, Process], choices: random.Random, clock: VirtualClock
    ) -> None:
        self._journal = SimulatedJournal(database, choices)
        self._processes = processes
        self._choices = choices
        self._clock: Clock = clock
        self._connections: list[Connection] = []
        self.is_up = asyncio.Event()
        self.is_dead = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="broker")

    async def _run(self) -> None:
        while True:
            try:
                self._journal.open()
                break
            except JournalUnavailable:
                await asyncio.sleep(1)
        journal = cast(Journal, self._journal)
        configuration = Configuration(journal)
        async with asyncio.TaskGroup() as tasks:
            bell = cast(Bell, _Bell(self._choices))
            replies = ReplyRequests(journal, bell, self._clock, REPLY_SECONDS)
            self.back = Back(
                journal,
                configuration,
                bell,
                self._connect,
                Health("broker", self._clock),
                Runtime(self._clock, tasks, random.Random(self._choices.random())),
                SETTINGS,
            )
            space = Space(journal, 0, Health("broker", self._clock))
            self.front = Front(journal, Checks(configuration, LIMITS), self._clock, replies, bell.ring, tasks, space)
            await self._patiently(configuration.refresh)
            await self._patiently(self.back.recover)
            await self._patiently(replies.recover)
            self.back.start()
            tasks.create_task(configuration.watch())
            self.is_up.set()
            await self._journal.ended()

    @staticmethod
    async def _patiently(step: Callable[[], Any]) -> None:
        """As whoever starts the broker does: again, until the database is there."""
        while True:
            try:
                await step()
                return
            except JournalUnavailable:
                await asyncio.sleep(1)

    def _connect(self, uri: str, lost: Callable[[], None]) -> Client:
        process = self._processes.get(uri)
        if process is None or process.served is None:
            raise Refused("nobody listens there", code="recipient_unreachable")
        connection = Connection(process, self._choices, lost)
        self._connections.append(connection)
        return cast(Client, connection)

    def check_alive(self) -> None:
        """Raise what the broker died of, which must never happen by itself."""
        if self._task.done() and not self.is_dead.is_set():
            self._task.result()
            raise AssertionError("the broker has ended by itself")

    async def stop(self) -> bool:
        """In order: what is under way may end; false where it is killed in the midst of that."""
        if self.is_up.is_set():
            await self.back.stop(2)
        if self.is_dead.is_set():
            return False
        await self.kill()
        return True

    async def kill(self) -> None:
        """As by SIGKILL: nothing more is written, sent or answered."""
        self.is_dead.set()
        self._journal.kill()
        for connection in self._connections:
            connection.kill()
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled() and (error := self._task.exception()) is not None:
            raise error
