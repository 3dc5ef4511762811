"""The brokers of a run: one, or several that stand by for each other, and the ways to strike the one that leads."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.daemon import Options
from tests.torture.database import Database
from tests.torture.program import Broker
from tests.torture.proxy import Proxy

STEP_SECONDS = 0.01
LEAD_SECONDS = 60.0
"""Seconds until one leads at the most, on a busy machine."""

END_SECONDS = 45.0
"""Seconds within which a broker ends that leads no more: more than it waits for a database that it can't reach."""

AWAY_SECONDS = 10.0
"""Seconds for which a leader is frozen or cut off: more than its lease."""

NOTICE_SECONDS = 5.0
"""How long a broker that another one has replaced may still hand out what it had read. It looks each second."""

LOST_LEASE = frozenset({3, 4})
"""Exit codes of a broker in whose place another one leads: one that has stood by ends with the first."""

ENDS_WITH = {
    "kill": frozenset({-signal.SIGKILL}),
    "stop": frozenset({0}),
    "freeze": LOST_LEASE,
    "cut-off": LOST_LEASE,
    "silence": LOST_LEASE,
    "with-database": frozenset({-signal.SIGKILL}),
}
"""The exit codes of a leader, by how it was struck. The database resets its connections, or is silent for a while."""


@dataclass(slots=True)
class Reign:
    """The time of a broker that leads, from its start to its end; each start makes another one.

    Args:
        broker: its name.
        started: when it was started.
        since: when it was seen to begin to lead.
        until: when the broker before it surely handed nothing out any more.
    """

    broker: str
    started: float
    since: float
    until: float


class Brokers:
    """All brokers of one journal.

    Args:
        folder: for their files.
        database: of the journal, with a way for each broker.
        options: of their configuration.
        ahead: the seconds by which the clock of the first one is ahead, and that of the next one is behind.

    Attributes:
        reigns: the brokers that have led so far, in order.
        problems: what went otherwise than it should.
    """

    def __init__(self, folder: Path, database: Database, options: Options, ahead: int = 0) -> None:
        self._database = database
        several = len(database.urls) > 1
        proxies: Sequence[Proxy | None] = database.proxies or [None]
        self.all = [
            Broker(
                folder,
                f"broker_{number}" if several else "broker",
                url,
                options,
                proxy,
                stands_by=several,
                ahead=ahead * (3 - 2 * number),
            )
            for number, (url, proxy) in enumerate(zip(database.urls, proxies, strict=True), 1)
        ]
        self.reigns: list[Reign] = []
        self.problems: list[str] = []

    def __iter__(self) -> Iterator[Broker]:
        return iter(self.all)

    def addresses(self, part: str) -> str:
        """The addresses of all of them, for a client."""
        return ",".join(f"tcp://127.0.0.1:{broker.ports[part]}" for broker in self)

    @property
    def leader(self) -> Broker:
        """The one that began to lead last."""
        self.look()
        return self.named(self.reigns[-1].broker) if self.reigns else self.all[0]

    def named(self, name: str) -> Broker:
        return next(broker for broker in self if broker.name == name)

    def look(self) -> None:
        """Note who leads by now."""
        now = time.monotonic()
        for broker in self:
            started = broker.leads_since
            if started is not None and not any(
                (each.broker, each.started) == (broker.name, started) for each in self.reigns
            ):
                self.reigns.append(Reign(broker.name, started, now, now))

    def reign_at(self, broker: str, at: float) -> int:
        """The number of the reign in which a broker answered somebody at a moment."""
        found = [number for number, each in enumerate(self.reigns) if each.broker == broker and each.started <= at]
        return found[-1] if found else 0

    async def start(self) -> None:
        """Start all, and come back when one leads."""
        for broker in self:
            await broker.start()
        await self.led()

    async def led(self, *, instead_of: Broker | None = None) -> None:
        """Wait until one leads, and not this one."""
        async with asyncio.timeout(LEAD_SECONDS):
            while not any(broker.is_ready for broker in self if broker is not instead_of):
                await asyncio.sleep(STEP_SECONDS)
        self.look()

    @asynccontextmanager
    async def struck(self, how: str) -> AsyncIterator[Broker]:
        """Strike the leader, and give it; behind the block it stands by, and all is well again.

        A leader that is frozen or cut off goes on within the block if that lasts for long.

        Args:
            how: one of ``ENDS_WITH``.
        """
        leader = self.leader
        try:
            async with asyncio.TaskGroup() as tasks:
                if ENDS_WITH[how] is LOST_LEASE:
                    tasks.create_task(self._wake_later(leader))
                await self._strike(leader, how)
                yield leader
                await self.led(instead_of=leader)
        finally:
            self.wake(leader)
        await self.ended(leader, ENDS_WITH[how])
        await leader.start()

    async def _wake_later(self, leader: Broker) -> None:
        await asyncio.sleep(AWAY_SECONDS)
        await self.led(instead_of=leader)
        self.wake(leader)

    def wake(self, broker: Broker) -> None:
        """Have a broker go on that was frozen or cut off."""
        if broker.runs:
            self.reigns[-1].until = time.monotonic() + NOTICE_SECONDS
        broker.signal(signal.SIGCONT)
        if broker.proxy is not None:
            broker.proxy.mend()

    async def ended(self, broker: Broker, codes: frozenset[int]) -> None:
        """Wait until a broker has ended, as it should with one of these codes."""
        code = await broker.ended(END_SECONDS)
        if code not in codes:
            self.problems.append(f"{broker.name} ended with {code} in place of {sorted(codes)}")
        broker.kill()

    async def _strike(self, leader: Broker, how: str) -> None:
        leader.should_run = False
        match how:
            case "stop":
                leader.signal(signal.SIGTERM)
            case "freeze":
                leader.signal(signal.SIGSTOP)
            case "cut-off" | "silence":
                assert leader.proxy is not None
                (leader.proxy.cut if how == "cut-off" else leader.proxy.hold)()
            case _:
                leader.kill()
        if how == "with-database":
            await self._database.faults["database-kill"](0)
