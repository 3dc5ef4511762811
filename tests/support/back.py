"""A whole back over a journal in memory, with scripted recipients around it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from random import Random
from typing import Any, cast
from uuid import uuid4

import sqlalchemy as sa

from tests.support.clock import StandingClock
from tests.support.journal import NOW, Scribe
from tests.support.recipients import NEW, Script, ScriptedClient, metadata
from xbus import model
from xbus.broker.back.back import Back
from xbus.broker.back.progress.retry_policy import RetryPolicy
from xbus.broker.back.recipients.abilities import Abilities
from xbus.broker.back.runtime import BackIntervals, Runtime
from xbus.broker.configuration import Configuration
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.deliveries import read_cursors
from xbus.broker.journal.writes import GroupType, PutGroup, SealReceipt, Write
from xbus.config import BackSettings
from xbus.envelope import PLAIN_HEAD, EnvelopeHead
from xbus.errors import JournalUnavailable, Refused
from xbus.headers import NO_TAGS
from xbus.rpc.bell import Bell
from xbus.rpc.codec import pack_items
from xbus.rpc.owed_calls import Callee
from xbus.supervision.health import Health

ONCE = RetryPolicy(attempts=1)
"""What failed is parked at once."""

PATIENCE_SECONDS = 60
"""Nothing here is to be over because the machine stood still for a moment."""

SETTINGS = BackSettings(
    start_event_timeout=PATIENCE_SECONDS,
    send_item_timeout=PATIENCE_SECONDS,
    end_event_timeout=PATIENCE_SECONDS,
    end_envelope_timeout=PATIENCE_SECONDS,
    stop_envelope_timeout=PATIENCE_SECONDS,
    register_timeout=PATIENCE_SECONDS,
    window_bytes=100_000,
    worker_grace=0,
)


IMPATIENT = BackIntervals(gather=0, retry=0, leases=0.01, changes=0.01)
"""Who arrives is not waited for, and what failed is tried again at once."""

QUIET = replace(IMPATIENT, leases=1000, changes=1000, idle=1000, rows=1000)
"""The same, and no timer interrupts a test that counts calls."""


class SilentBell:
    """Rings when the test says so."""

    def __init__(self) -> None:
        self.rung = asyncio.Event()

    async def wait(self, timeout: float) -> bool:
        await self.rung.wait()
        self.rung.clear()
        return True

    def ring(self) -> None:
        """Nobody listens."""


class Broker:
    """A back, the journal under it, and recipients around it."""

    def __init__(
        self,
        journal: Journal,
        configuration: Configuration,
        scribe: Scribe,
        tasks: asyncio.TaskGroup,
        retry: RetryPolicy,
        trouble_after: int,
        behind_after: float,
        intervals: BackIntervals,
    ) -> None:
        self.journal = journal
        self.configuration = configuration
        self.scribe = scribe
        self._configuration = configuration
        self.script = Script()
        self.clients: dict[str, ScriptedClient] = {}
        self.lost: dict[str, Callable[[], None]] = {}
        self.clock = StandingClock()
        self._bell = SilentBell()
        self.health = Health("back", self.clock)
        self.back = Back(
            journal,
            configuration,
            cast(Bell, self._bell),
            self._connect,
            self.health,
            Runtime(self.clock, tasks, Random(7), intervals),
            replace(
                SETTINGS,
                **asdict(retry),
                trouble_after=trouble_after,
                behind_after=behind_after,
            ),
        )

    def prepare(self, login: str, abilities: Abilities = NEW, **answers: Any) -> ScriptedClient:
        """The recipient that the broker will find at ``tcp://login``."""
        named = {verb.replace("xbus_", "xbus."): answer for verb, answer in answers.items()}
        client = ScriptedClient(login, self.script, not login.startswith("store"), named)
        client.metadata = metadata(abilities)
        self.clients[f"tcp://{login}"] = client
        return client

    async def _connect(self, uri: str, caller: str | None, lost: Callable[[], None]) -> Callee:
        self.lost[uri] = lost
        client = self.clients.get(uri)
        if client is None:
            raise Refused("nobody listens there", code="bad_address")
        return client

    async def register(self, login: str, abilities: Abilities = NEW, **answers: Any) -> ScriptedClient:
        client = self.prepare(login, abilities, **answers)
        await self.back.register(self.scribe.role_id(login), login.encode(), f"tcp://{login}")
        return client

    async def join(self, login: str, name: str, abilities: Abilities = NEW, **answers: Any) -> ScriptedClient:
        """Register one more program of a role; ``name`` is its session, and where it listens."""
        client = self.prepare(name, abilities, **answers)
        await self.back.register(self.scribe.role_id(login), name.encode(), f"tcp://{name}")
        return client

    async def lose(self, login: str, name: str) -> None:
        """Have a program of a role lost."""
        recipient = self.back.registry.find(self.scribe.role_id(login), name.encode())
        assert recipient is not None
        await self.back.unregister(recipient, "the connection was lost")

    async def leave(self, login: str) -> None:
        recipient = self.back.registry.find(self.scribe.role_id(login), login.encode())
        assert recipient is not None
        await self.back.unregister(recipient, "the test said so")

    async def put(self, *items: bytes, type_name: str = "notes", ordering_key: str | None = None) -> SealReceipt:
        """Put an envelope of one event, as the front does: in a group, here of one."""
        kind = self.scribe.catalog.event_types[type_name]
        data = pack_items(items) if items else b""
        sealed = await self.journal.write(
            PutGroup(
                [self.scribe.emitter_id()],
                NOW,
                [uuid4().bytes],
                [uuid4().bytes],
                [GroupType(kind.id, kind.name, kind.hashed_name, kind.graph_id, compress=False)],
                [len(items)],
                [data],
                [PLAIN_HEAD if ordering_key is None else EnvelopeHead(ordering_key=ordering_key)],
                [NO_TAGS],
                len(data),
            )
        )
        self.ring()
        return sealed.receipt(0)

    def ring(self) -> None:
        """As the front does."""
        self._bell.rung.set()

    async def write(self, write: Write[object]) -> None:
        await self.journal.write(write)
        self._bell.rung.set()

    async def refresh_configuration(self) -> None:
        """Have the broker notice that the configuration was changed."""
        await self._configuration.refresh()

    def pass_time(self, seconds: float) -> None:
        """Let the clock go on, and have it noticed at once."""
        self.clock.go_on(seconds)
        self._look_at_rows()

    def _look_at_rows(self) -> None:
        for recipient in self.back.registry.all():
            self.back.events.rows_due.publish(recipient.role.id)

    async def until(self, condition: Callable[[], object]) -> None:
        while not condition():
            # As the poll does now and then, by a clock that stands still here.
            await asyncio.sleep(0.001)
            self._look_at_rows()

    async def until_together(self) -> None:
        """All consumers read in one lane."""
        all_lanes = self.back._assembly.lanes
        await self.until(lambda: len(all_lanes._lanes) == 1)

    def items(self, login: str) -> list[bytes]:
        return [item for _, item in self.script.items(login)]

    async def cursor(self, login: str = "store_1") -> int:
        return (await self.journal.read(read_cursors))[self.scribe.role_id(login)].position

    async def rows(self) -> dict[str, tuple[str, int, str]]:
        """State, attempts and code of the rows of deliveries, by the login of their roles."""

        def read(connection: sa.Connection) -> dict[str, tuple[str, int, str]]:
            row = model.delivery.c
            wanted = sa.select(model.role.c.login, row.state, row.attempts, row.code).join(
                model.role, model.role.c.id == row.role_id
            )
            return {login: (state, attempts, code) for login, state, attempts, code in connection.execute(wanted)}

        return await self.journal.read(read)

    async def until_rows(self, expected: dict[str, tuple[str, int, str]]) -> None:
        while await self.rows() != expected:
            await asyncio.sleep(0)


class Stop(Exception):
    """Ends all that goes on."""


async def _recovered(broker: Broker) -> bool:
    try:
        await broker.back.recover()
    except JournalUnavailable:
        return False
    return True


@asynccontextmanager
async def running(
    journal: Journal,
    *,
    prepared: Callable[[Broker], object] = lambda broker: None,
    clean: bool = True,
    started: bool = True,
    retry: RetryPolicy = ONCE,
    trouble_after: int = 1000,
    behind_after: float = 1000,
    intervals: BackIntervals = IMPATIENT,
) -> AsyncIterator[Broker]:
    """A broker that runs; at the end it stops in order, or goes down as it is.

    Args:
        started: False for one that has only taken up what the last run left.
    """
    configuration = Configuration(journal)
    await configuration.refresh()
    tasks = asyncio.TaskGroup()
    scribe = await Scribe.of(journal)
    broker = Broker(journal, configuration, scribe, tasks, retry, trouble_after, behind_after, intervals)
    prepared(broker)
    try:
        async with tasks:
            while not await _recovered(broker):
                pass
            if started:
                broker.back.start()
            yield broker
            if clean:
                await broker.back.stop(PATIENCE_SECONDS)
            raise Stop
    except* Stop:
        pass
