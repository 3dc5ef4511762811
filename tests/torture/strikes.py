"""Carries faults out, and writes down when they struck and when all was well again."""

import asyncio
import contextlib
import resource
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeAlias

from sqlalchemy import make_url

from tests.torture import bus
from tests.torture.arena import Arena
from tests.torture.brokers import ENDS_WITH, LOST_LEASE
from tests.torture.checker import EVERYBODYS
from tests.torture.database import LEFT_BYTES, Database, Fault, Lost
from tests.torture.examining import Examiner
from tests.torture.faults import Cycle, Strike, Targets
from tests.torture.history import Log
from tests.torture.program import Broker, Program
from xbus.broker.journal.configuration import BusSpec
from xbus.errors import JournalUnavailable

EDIT_AGAIN_SECONDS = 0.2

REFUSED, WENT_BACK = 1, 3
"""Exit codes of the broker."""

LEADER = "leader-"
"""Begins the kinds of strikes at a leader that another broker stands by for."""

ALONE = frozenset({"two_brokers", "failover_sync", "failover_async", *(f"{LEADER}{how}" for how in ENDS_WITH)})
"""Kinds that nothing else may befall the broker or its database at the same time: it ends as these want it to."""

Way: TypeAlias = Callable[[str, float], Awaitable[Lost | None]]
"""Strikes a target for so many seconds, and comes back when all is well again; says what may be lost by it."""


class Striker:
    """Strikes in an arena.

    Args:
        log: of what struck.
        examiner: examines what a broker leaves that is killed.

    Attributes:
        struck: how often, by kind.
    """

    def __init__(self, arena: Arena, database: Database, log: Log, examiner: Examiner) -> None:
        self._arena = arena
        self._examiner = examiner
        self._log = log
        self._url = database.own_url
        self._ways, self._targets = _ways(arena, database, self)
        self.struck: Counter[str] = Counter()

    @property
    def targets(self) -> Targets:
        """Whom each kind of fault may strike here."""
        return self._targets

    async def carry_out(self, cycle: Cycle) -> None:
        """Come back when the cycle is over and all is well again."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.sleep(cycle.seconds))
            for strike in cycle.strikes:
                tasks.create_task(self._strike(strike))

    async def _strike(self, strike: Strike) -> None:
        await asyncio.sleep(strike.after)
        async with AsyncExitStack() as alone:
            for name in sorted(EVERYBODYS) if strike.kind in ALONE else (strike.target,):
                await alone.enter_async_context(self._arena.one_at_a_time[name])
            since = time.monotonic()
            if strike.target in EVERYBODYS:
                self._arena.strikes_brokers()
            lost = await self._ways[strike.kind](strike.target, strike.lasts)
            if strike.target in EVERYBODYS:
                self._arena.strikes_brokers()
                await self._arena.brokers.led()
            self.struck[strike.kind] += 1
            # What ends in order leaves nothing in doubt, so it explains nothing that comes twice.
            role = bus.role_of(strike.target)
            target = f"{role} in order" if self._ways[strike.kind] == self.restart else role
            self._log.write(kind=strike.kind, target=target, since=since, until=time.monotonic(), lost=lost)

    async def kill(self, name: str, seconds: float) -> None:
        """SIGKILL, and start it again later."""
        program = self._arena.program(name)
        program.kill()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.sleep(seconds))
            if isinstance(program, Broker) and self._examiner.is_due:
                # A database that is struck meanwhile is examined behind the cycle.
                tasks.create_task(self._examiner.examine("while the broker was down"))
        await program.start()

    async def restart(self, name: str, seconds: float) -> None:
        """SIGTERM, and start it again later."""
        program = self._arena.program(name)
        await self._arena.end(program)
        await asyncio.sleep(seconds)
        await program.start()

    async def stop(self, name: str, seconds: float) -> None:
        """SIGSTOP, and SIGCONT later."""
        program = self._arena.program(name)
        program.signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        program.signal(signal.SIGCONT)

    async def cut(self, name: str, seconds: float) -> None:
        """Reset its connections to the broker, and let it have none for a while."""
        for link in self._arena.links(name):
            link.cut()
        await self._mend(name, seconds)

    async def hold(self, name: str, seconds: float) -> None:
        """Delay all that is on its connections to the broker."""
        for link in self._arena.links(name):
            link.hold()
        await self._mend(name, seconds)

    async def two_brokers(self, _: str, seconds: float) -> None:
        """Freeze the broker, and start another one on its journal that does not wait for its lease to be over."""
        brokers = self._arena.brokers
        leader = brokers.leader
        leader.signal(signal.SIGSTOP)
        try:
            if self._url.startswith("sqlite"):
                await self._is_refused()
                return
            leader.should_run = False
            other = next(broker for broker in brokers if broker is not leader)
            await self._arena.end(other)
            await other.start(stands_by=False)
            brokers.look()
        finally:
            brokers.wake(leader)
        await brokers.ended(leader, LOST_LEASE)
        await asyncio.sleep(seconds)
        await leader.start()

    async def _is_refused(self) -> None:
        second = Broker(self._arena.folder, "refused_broker", self._url, bus.OPTIONS, stands_by=False)
        await Program.start(second)
        await self._arena.brokers.ended(second, frozenset({REFUSED}))

    async def strike_leader(self, how: str) -> None:
        """Have the broker lead that stands by."""
        async with self._arena.brokers.struck(how):
            pass

    async def fail_over(self, fault: Fault, seconds: float) -> Lost | None:
        """Let a standby take the place of the database."""
        # It may notice after the strike that the journal went back.
        for broker in self._arena.brokers:
            broker.may_end_with = frozenset({WENT_BACK})
        return await fault(seconds)

    async def fill_disk(self, _: str, seconds: float) -> None:
        """Let the broker write no file beyond its size for a while, as if the disk of its journal were full."""
        files = [Path(f"{make_url(self._url).database}{suffix}") for suffix in ("", "-wal")]
        size = max(file.stat().st_size for file in files if file.exists())
        pid = self._arena.brokers.leader.pid
        with contextlib.suppress(ProcessLookupError):
            hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (size + LEFT_BYTES, hard))
            await asyncio.sleep(seconds)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))

    async def edit(self, _: str, seconds: float) -> None:
        """Edit all graphs while items flow through them, and undo that later."""
        settled = bus.read_bus()
        await self._change(bus.edited(settled))
        await asyncio.sleep(seconds)
        await self._change(settled)

    async def _change(self, wanted: BusSpec) -> None:
        """Bring the bus to that, as soon as the database can be written."""
        while True:
            try:
                await asyncio.to_thread(bus.change, self._url, wanted)
            except JournalUnavailable:
                await asyncio.sleep(EDIT_AGAIN_SECONDS)
            else:
                return

    async def _mend(self, name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        for link in self._arena.links(name):
            link.mend()


def _ways(arena: Arena, database: Database, striker: Striker) -> tuple[Mapping[str, Way], Targets]:
    """How each kind of fault is carried out, and whom it may strike."""
    emitters, workers, consumers = list(arena.emitters), list(arena.workers), list(arena.consumers)
    groups = {"broker": ["broker"], "worker": workers, "consumer": consumers, "emitter": emitters}
    links = {"front": emitters, "back": [*workers, *consumers]}
    known: dict[str, tuple[Way, list[str]]] = {
        **{f"{group}-kill": (striker.kill, names) for group, names in groups.items()},
        **{f"{group}-restart": (striker.restart, names) for group, names in groups.items() if group != "emitter"},
        **{f"{group}-stop": (striker.stop, names) for group, names in groups.items()},
        **{f"cut-{side}": (striker.cut, names) for side, names in links.items()},
        **{f"delay-{side}": (striker.hold, names) for side, names in links.items()},
        "two_brokers": (striker.two_brokers, ["broker"]),
        **(
            {
                f"{LEADER}{how}": (_to_leader(striker, how), ["broker"])
                for how in ENDS_WITH
                if how not in ("kill", "stop")
            }
            if len(arena.brokers.all) > 1
            else {}
        ),
        "graph-edit": (striker.edit, ["graphs"]),
        **({"disk_full": (striker.fill_disk, ["database"])} if database.own_url.startswith("sqlite") else {}),
        **{kind: (_to_database(striker, kind, fault), ["database"]) for kind, fault in database.faults.items()},
    }
    return {kind: way for kind, (way, _) in known.items()}, {kind: names for kind, (_, names) in known.items()}


def _to_leader(striker: Striker, how: str) -> Way:
    async def strike(_: str, seconds: float) -> None:
        await striker.strike_leader(how)

    return strike


def _to_database(striker: Striker, kind: str, fault: Fault) -> Way:
    async def strike(_: str, seconds: float) -> Lost | None:
        return await (striker.fail_over(fault, seconds) if kind == "failover_async" else fault(seconds))

    return strike
