"""Sends and consumes envelopes, strikes the machines of the database and the broker, and measures how it goes on."""

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import NamedTuple

import psycopg2
import sqlalchemy as sa

from tests.fault.failover.judge import Acknowledged, Written, judge_failover
from tests.fault.failover.machines import Machine, Machines
from tests.support.bus import PASSWORD, add_bus
from tests.support.daemon import Daemon
from tests.support.fsck import examined
from tests.support.ports import free_port
from tests.support.serving import serving
from tests.support.waiting import eventually, wait_until
from xbus import model
from xbus.broker.journal.database import schema
from xbus.broker.journal.database.connection import writing
from xbus.emitter import AsyncEmitter
from xbus.errors import XbusError
from xbus.recipient import Consumer, Envelope, Event, Item
from xbus.recipient.inbox import Inbox

LANES = 20
"""Ordering keys. Each has one envelope in flight."""

PAUSE_SECONDS = 0.03
"""Between two envelopes of an ordering key: some hundred envelopes a second are enough, and leave the cores time."""

CALM_SECONDS = (2.0, 5.0)
"""Between two strikes."""

FROZEN_SECONDS = 60.0
"""A machine that is frozen goes on when the bus does, or after so long."""

LAG_SECONDS = 2.0
"""How long the standbys lack what is written, before the primary is lost."""

RECOVERY_SECONDS = 180.0
DRAIN_SECONDS = 60.0


class Store(Consumer):
    """Writes each envelope once, by an inbox in its own database."""

    def __init__(self, path: Path) -> None:
        self._engine = sa.create_engine(f"sqlite:///{path}")
        self._inbox = Inbox("c_1")
        self._inbox.create(self._engine)
        self.written: list[Written] = []
        self.moments: dict[Written, float] = {}

    def on_item(self, event: Event, item: Item) -> None:
        event.envelope.state["written"] = Written(item.value["lane"], item.value["number"])

    def commit(self, envelope: Envelope) -> None:
        with self._engine.begin() as connection:
            is_new = self._inbox.note(connection, envelope.id)
        if is_new:
            self.written.append(written := envelope.state["written"])
            self.moments[written] = time.monotonic()


class Struck(NamedTuple):
    """A strike, and what came of it.

    Args:
        strike: what happened to the primary: it was killed (``kill``), frozen (``freeze``), cut off (``partition``),
            killed with the broker that leads (``both``), lost with its network (``power``), or lost so while the others
            lacked something (``lag``). Or its synchronous standby was killed (``standby``).
        writes: seconds until an envelope was acknowledged that was sent after it.
        delivery: seconds until such an envelope was written by the consumer.
        moved: whether another broker leads.
        exits: the exit codes of brokers that ended by themselves.
        acknowledged: envelopes so far.
        lost: of these, and so are the next three figures; see ``judge.py``.
        faults: what ``xbus fsck`` finds.
    """

    strike: str
    writes: float
    delivery: float
    moved: bool
    exits: list[int]
    acknowledged: int
    lost: int
    doubled: int
    reordered: int
    gaps: int
    faults: int


class FailoverTrial:
    """One trial.

    Args:
        machines: of the database, which run.
        folder: for all files.
        chance: chooses the moments.
        loses: whether acknowledged envelopes may be lost, so that none is waited for.
    """

    def __init__(self, machines: Machines, folder: Path, chance: random.Random, *, loses: bool) -> None:
        self._machines = machines
        self._loses = loses
        self._chance = chance
        self._places = {part: [f"tcp://127.0.0.1:{free_port()}" for _ in range(2)] for part in ("front", "back")}
        self._brokers = [self._broker(folder, number) for number in (1, 2)]
        self._store = Store(folder / "written.db")
        self._acknowledged: list[Acknowledged] = []
        self._in_flight = 0
        self._flows = asyncio.Event()
        self._exits: list[int] = []

    async def run(self, strikes: list[str], tell: Callable[[Struck], object]) -> None:
        """Strike, and tell of each strike what came of it.

        Raises:
            AssertionError: the bus does not go on in time.
        """
        await asyncio.to_thread(self._set_up)
        try:
            async with AsyncExitStack() as stack:
                front, back = map(",".join, self._places.values())
                await stack.enter_async_context(serving(self._brokers[0], "c_1", self._store, back=back))
                emitter = await stack.enter_async_context(AsyncEmitter(front, "emitter_1", PASSWORD))
                tasks = [asyncio.create_task(self._send(emitter, lane)) for lane in range(LANES)]
                tasks.append(asyncio.create_task(self._supervise()))
                stack.callback(lambda: [task.cancel() for task in tasks])
                for strike in strikes:
                    self._flows.set()
                    await asyncio.sleep(self._chance.uniform(*CALM_SECONDS))
                    tell(await self._strike(strike))
        finally:
            for broker in self._brokers:
                broker.kill()

    def _broker(self, folder: Path, number: int) -> Daemon:
        sockets = {f"{part}socket": places[number - 1] for part, places in self._places.items()}
        options = {"broker": {"standby": "true", "name": f"bus-{number}"}, "zmq": sockets}
        return Daemon(folder / f"bus-{number}", self._machines.url, options)

    def _set_up(self) -> None:
        schema.upgrade(self._machines.url)
        add_bus(self._machines.url, {"test_event": {"c": []}})
        with writing(self._machines.url) as connection:
            connection.execute(sa.update(model.role).values(ordered=True))
        self._brokers[0].start()
        self._brokers[1].begin()
        wait_until(lambda: "standing by" in self._brokers[1].log, "the second broker stands by")

    async def _send(self, emitter: AsyncEmitter, lane: int) -> None:
        number = 0
        while True:
            await self._flows.wait()
            number, began = number + 1, time.monotonic()
            self._in_flight += 1
            position = await self._put(emitter, lane, number)
            self._acknowledged.append(Acknowledged(lane, number, position, began, time.monotonic()))
            self._in_flight -= 1
            await asyncio.sleep(PAUSE_SECONDS)

    async def _put(self, emitter: AsyncEmitter, lane: int, number: int) -> int:
        item = {"lane": lane, "number": number}
        while True:
            try:
                receipt = await emitter.put("test_event", [item], ordering_key=f"{lane}", key=f"{lane}/{number}")
            except XbusError:
                await asyncio.sleep(PAUSE_SECONDS)  # no broker took it for long
                continue
            assert receipt.position is not None
            return receipt.position

    async def _supervise(self) -> None:
        """Start brokers again that ended by themselves, as systemd does."""
        while True:
            for broker in self._brokers:
                if not broker.process.runs:
                    self._exits.append(broker.process.wait())
                    await asyncio.to_thread(broker.begin)
            await asyncio.sleep(0.2)

    async def _strike(self, strike: str) -> Struck:
        self._exits.clear()
        leader, target = self._leader(), self._machines.one_that_is("primary")
        if strike == "lag":
            others = [machine for machine in self._machines.all if machine is not target]
            for machine in others:
                machine.cut_off()
            await asyncio.sleep(LAG_SECONDS)
        if strike == "standby":
            target = self._machines.one_that_is("synchronous")
        await asyncio.to_thread(self._hit, strike, target, leader)
        at = time.monotonic()
        if strike == "lag":
            for machine in others:
                machine.join()
        writes, delivery = await self._recovered(at, target if strike == "freeze" else None)
        await asyncio.to_thread(self._heal, strike, target)
        await self._rest()
        with closing(psycopg2.connect(self._url)) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT position FROM envelope WHERE position IS NOT NULL ORDER BY position")
            positions = [row[0] for row in cursor]
        ruling = judge_failover(self._acknowledged, self._store.written, positions)
        faults = await asyncio.to_thread(examined, self._machines.url)
        moved, exits = self._leader() != leader, [code for code in self._exits if code >= 0]
        taken = len(self._acknowledged)
        return Struck(strike, round(writes, 1), round(delivery, 1), moved, exits, taken, *ruling, len(faults))

    def _hit(self, strike: str, target: Machine, leader: str) -> None:
        match strike:
            case "freeze":
                target.freeze()
            case "partition":
                target.cut_off()
            case "both":
                self._brokers[int(leader.removeprefix("bus-")) - 1].process.kill()
                target.kill()
            case "power" | "lag":
                target.cut_off()  # what its kernel would still send is lost, too
                target.kill()
            case _:
                target.kill()

    def _heal(self, strike: str, target: Machine) -> None:
        match strike:
            case "freeze":
                target.thaw()
            case "partition":
                target.join()
            case _:
                target.join()
                target.start()
        self._machines.wait_healthy()

    async def _recovered(self, at: float, frozen: Machine | None) -> tuple[float, float]:
        """Wait until envelopes that were sent after a moment are acknowledged and written; the seconds until both."""
        while True:
            await asyncio.sleep(0.05)
            after = [each for each in self._acknowledged if each.began > at]
            moments = [self._store.moments.get(Written(each.lane, each.number)) for each in after]
            if written := [moment for moment in moments if moment is not None]:
                return min(each.ended for each in after) - at, min(written) - at
            waited = time.monotonic() - at
            assert waited < RECOVERY_SECONDS, f"nothing went on within {RECOVERY_SECONDS} s"
            if frozen is not None and waited > FROZEN_SECONDS:
                frozen.thaw()
                frozen = None

    async def _rest(self) -> None:
        """Wait until nothing is in flight, and all that was acknowledged is written, where nothing may be lost."""
        self._flows.clear()
        await eventually(lambda: self._in_flight == 0, "all is acknowledged", RECOVERY_SECONDS)
        if self._loses:
            await asyncio.sleep(DRAIN_SECONDS / 4)
            return
        wanted = {Written(each.lane, each.number) for each in self._acknowledged}
        deadline = time.monotonic() + DRAIN_SECONDS
        while not wanted <= {*self._store.written} and time.monotonic() < deadline:
            await asyncio.sleep(0.5)

    @property
    def _url(self) -> str:
        return f"{self._machines.url.replace('+psycopg2', '')}?target_session_attrs=read-write&connect_timeout=5"

    def _leader(self) -> str:
        with closing(psycopg2.connect(self._url)) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT broker FROM lease")
            (found,) = next(cursor)
        return str(found)
