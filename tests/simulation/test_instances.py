"""Several programs of one role in virtual time, where only their own work takes any: how much faster, how soon."""

import asyncio
import random
from collections.abc import Coroutine, Iterator
from typing import Any, cast

import pytest
import sqlalchemy as sa

from tests.simulation.settings import SETTINGS
from tests.support.journal import small_bus_image
from xbus import model
from xbus.broker.back.recipients import RecipientProxy
from xbus.broker.journal.log.catalog import read_catalog
from xbus.envelope import EnvelopeHead
from xbus.ids import Ids
from xbus.recipient.base import Consumer
from xbus.recipient.calls import AuthorThread, Calls
from xbus.recipient.envelope import Envelope, Event
from xbus.supervision.pinger import Pinger
from xbus.testing.broker import VirtualBroker
from xbus.testing.desk import SteppingThread
from xbus.testing.endpoint import RecipientEndpoint, VirtualRecipient
from xbus.testing.journal import Database
from xbus.testing.loop import VirtualClock, VirtualLoop
from xbus.testing.sending import InMemoryEmitter
from xbus.testing.timing import Timing

LOGIN = "store_1"
WORK_SECONDS = 0.001
ENVELOPES = 800
PING_SECONDS, MISSES = 5.0, 3


class Keeps(Consumer):
    """Notes when it committed what."""

    def __init__(self, name: str, commits: list[tuple[float, str, str]], loop: VirtualLoop) -> None:
        self._name = name
        self._commits = commits
        self._loop = loop

    async def on_event_end(self, event: Event) -> None:
        await asyncio.sleep(WORK_SECONDS)

    def commit(self, envelope: Envelope) -> None:
        self._commits.append((self._loop.time(), self._name, envelope.id))


class OneRole:
    """A broker, and programs of one consumer role."""

    def __init__(self, programs: int, **values: Any) -> None:
        self.loop = VirtualLoop()
        self.clock = VirtualClock(self.loop)
        self.database = Database(small_bus_image())
        self.database.write(self._configure, values)
        self.commits: list[tuple[float, str, str]] = []
        self.programs = [self._program(f"{LOGIN} {number}") for number in range(programs)]
        self._tasks: list[asyncio.Task[Any]] = []

    @staticmethod
    def _configure(connection: sa.Connection, values: dict[str, Any]) -> None:
        role = model.role.c.login
        connection.execute(sa.update(model.role).where(role == LOGIN).values(values))
        connection.execute(sa.update(model.role).where(role == "store_2").values(removed_at=sa.func.now()))

    def _program(self, name: str) -> VirtualRecipient:
        def serve() -> RecipientEndpoint:
            author = Keeps(name, self.commits, self.loop)
            desk = cast(AuthorThread, SteppingThread(lambda: False, lambda: None))
            return RecipientEndpoint(author, Calls(author, desk), desk, self.clock)

        return VirtualRecipient(LOGIN, serve, name)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self.loop.run_until_complete(work)

    async def begin(self) -> None:
        """Start the broker and the programs, and wait until these are registered, in their order."""
        catalog = self.database.read(read_catalog)
        self.role_id = next(role.id for role in catalog.roles.values() if role.login == LOGIN)
        emitter_id = next(entry.id for entry in catalog.emitters.values() if entry.login == "north")
        processes = {program.address: program for program in self.programs}
        self.broker = VirtualBroker(self.database, processes, Timing(random.Random(1)), self.clock, SETTINGS)
        await self.broker.is_up.wait()
        self.emitter = InMemoryEmitter(self.broker, emitter_id, random.Random(2))
        registry = self.broker.back.registry
        for number, program in enumerate(self.programs, start=1):
            program.start()
            keeping = program.keep_registered(self.role_id, lambda: self.broker)
            self._tasks.append(asyncio.ensure_future(keeping))
            while len(registry.connected(self.role_id)) < number:
                await asyncio.sleep(0.1)

    async def put(self, envelopes: int, keys: int = 0) -> None:
        for number in range(envelopes):
            options = EnvelopeHead(ordering_key=str(number % keys) if keys else None)
            await self.emitter.send([("notes", [b"%d" % number])], options, lambda name: False)

    async def committed(self, envelopes: int) -> None:
        while len(self.commits) < envelopes:
            await asyncio.sleep(0.01)

    def close(self) -> None:
        async def end() -> None:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for program in self.programs:
                program.kill()
            await self.broker.kill()

        self.run(end())
        self.loop.close()
        self.database.close()


def seconds_for(instances: int, **values: Any) -> float:
    """The time that so many programs take for a backlog."""
    role = OneRole(instances, instances=instances, **values)

    async def work() -> None:
        await role.begin()
        for program in role.programs:
            program.is_stopped = True
        await role.put(ENVELOPES, keys=100 if values else 0)
        for program in role.programs:
            program.is_stopped = False
        await role.committed(ENVELOPES)

    role.run(work())
    role.close()
    return role.commits[-1][0] - role.commits[0][0]


@pytest.mark.parametrize("values", [{}, {"ordered": True}], ids=["unordered", "ordered"])
def test_four_programs_do_nearly_four_times_as_much(values: dict[str, Any]) -> None:
    assert seconds_for(1, **values) / seconds_for(4, **values) > 3.6


@pytest.fixture
def with_standby() -> Iterator[OneRole]:
    role = OneRole(2, standby=True)
    role.run(role.begin())
    yield role
    role.close()


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "silent"])
def test_one_that_stands_by_takes_over_as_soon_as_the_loss_is_noticed(with_standby: OneRole, is_killed: bool) -> None:
    role = with_standby
    noticed: list[float] = []

    async def give_up(recipient: RecipientProxy, reason: str) -> None:
        noticed.append(role.loop.time())
        await role.broker.back.unregister(recipient, reason)

    pinger: Pinger[RecipientProxy] = Pinger(
        lambda: role.broker.back.registry.connected(role.role_id),
        give_up,
        Ids(role.clock),
        interval=PING_SECONDS,
        timeout=PING_SECONDS,
        misses=MISSES,
    )

    async def work() -> None:
        watching = asyncio.ensure_future(pinger.watch())
        await role.put(1)
        await role.committed(1)
        lost_at = role.loop.time()
        if is_killed:
            role.programs[0].kill()
            noticed.append(lost_at)
        else:
            role.programs[0].is_stopped = True
        await role.put(1)
        await role.committed(2)
        watching.cancel()
        taken_over = role.commits[-1][0]
        assert [name for _, name, _ in role.commits] == [f"{LOGIN} 0", f"{LOGIN} 1"]
        assert taken_over - noticed[0] <= 1
        assert taken_over - lost_at <= (MISSES + 1) * 2 * PING_SECONDS + 1

    role.run(work())
