"""One broker of a journal leads, and any number stand by: they have imported all, and wait for its lease.

A broker that is told to stand by answers ``not_leading`` to each call until it leads. Any other leads at once, and ends
the broker that led.
"""

import asyncio
import contextlib
import logging
import platform
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from xbus.broker.drill import HealthAlone, answering
from xbus.broker.journal import leadership
from xbus.broker.journal.commit.committer import this_holder
from xbus.broker.journal.database.engine import create_engine, journal_errors
from xbus.broker.journal.leadership import BrokerPlace
from xbus.broker.parts import PARTS
from xbus.clock import SystemClock
from xbus.config import Config
from xbus.errors import ConfigurationError, Failed, JournalUnavailable, TakenOver
from xbus.extras import installed_version
from xbus.rpc.client import NOT_LEADING
from xbus.supervision.health import Health
from xbus.system.service_manager import READY, notify, stop_signals

log = logging.getLogger(__name__)

T = TypeVar("T")

RENEWALS = 3
"""The renewals of a lease within its time."""

GIVE_BACK_SECONDS = 2.0
"""How long a broker that ends tries to give its lease back; the database may be away."""

LOOK_SECONDS = 0.5
"""Seconds between two looks of a broker that stands by."""


class Lease:
    """The right to lead, over a connection and a thread of its own: a commit that waits keeps nobody from renewing it.

    Args:
        config: its database, which is a PostgreSQL, its time, and the name of this broker.
    """

    def __init__(self, config: Config) -> None:
        self._engine = create_engine(config.database.url)
        self._config = config
        self._seconds = config.broker.lease
        self._process = this_holder(SystemClock().now())
        self._held: tuple[BrokerPlace, int] | None = None
        self._thread = ThreadPoolExecutor(1, "lease")

    @classmethod
    def of(cls, config: Config) -> "Lease | None":
        """Make that of a broker; None where its database serves one broker alone."""
        return None if config.database.url.startswith("sqlite") else cls(config)

    async def take(self, addresses: Mapping[str, str], *, at_once: bool) -> BrokerPlace | None:
        """Begin to lead where nobody leads.

        Args:
            addresses: of this broker, by part.
            at_once: whether to lead whoever does so now.

        Returns:
            The broker that leads, where that is another one.

        Raises:
            JournalUnavailable: the database can't be written.
        """
        if self._held is not None:
            return None
        place = self._place(addresses)
        epoch, leader = await self._do(leadership.take, place, self._seconds, at_once)
        if epoch is not None:
            self._held = place, epoch
            log.info("this broker leads, by epoch %d of the lease", epoch, extra={"action": "leads", "epoch": epoch})
        return leader

    @property
    def leads(self) -> bool:
        """True from ``take`` on, while no other broker is known to lead."""
        return self._held is not None

    async def keep(self) -> None:
        """Renew it again and again.

        Raises:
            TakenOver: another broker leads.
        """
        while self._held is not None:
            await asyncio.sleep(self._seconds / RENEWALS)
            try:
                if not await self._do(leadership.renew, *self._held, self._seconds):
                    self._held = None
            except JournalUnavailable as error:
                # The row says that this broker leads, until another one reaches the database.
                log.warning("the lease is not renewed: %s", error, extra={"action": "lease_not_renewed"})
        leader = await self._do(leadership.read_leader)
        raise TakenOver(
            f"another broker leads now ({'unknown' if leader is None else leader.process})",
            "start this one again only if it is to lead",
        )

    async def give_back(self) -> None:
        """Have the next broker lead at once."""
        if self._held is None:
            return
        try:
            async with asyncio.timeout(GIVE_BACK_SECONDS):
                await self._do(leadership.give_back, *self._held)
        except (JournalUnavailable, TimeoutError) as error:
            log.warning("the lease ends by itself: %s", error, extra={"action": "lease_not_given_back"})

    def close(self) -> None:
        """Close its connection."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._engine.dispose()

    def _place(self, addresses: Mapping[str, str]) -> BrokerPlace:
        host = platform.node()
        reached = {part: address.replace("//*:", f"//{host}:") for part, address in addresses.items()}
        name = self._config.broker.name or f"{host}:{addresses['front'].rpartition(':')[2]}"
        return BrokerPlace(name, reached["front"], reached["back"], installed_version(), self._process)

    async def _do(self, work: Callable[..., T], *args: object) -> T:
        def transaction() -> T:
            with journal_errors(), self._engine.begin() as connection:
                return work(connection, *args)

        return await asyncio.get_running_loop().run_in_executor(self._thread, transaction)


def stand_by(config: Config, only: str | None) -> Lease | None:
    """Answer ``not_leading`` to each call until this broker leads, or is told to stop.

    Returns:
        The lease by which it leads; None where it was told to stop.

    Raises:
        ConfigurationError: it can't stand by with this database (``standby_needs_postgresql``), or with one part alone
            (``standby_apart``).
        XbusError: a port is taken.
    """
    lease = Lease.of(config)
    if lease is None:
        raise ConfigurationError(
            "a broker can't stand by on SQLite, whose file is on one machine",
            "use PostgreSQL for sqlalchemy.dburi, or leave --standby out",
            code="standby_needs_postgresql",
        )
    if only is not None:
        raise ConfigurationError(
            f"the {only} alone can't stand by", "leave --only out, or --standby", code="standby_apart"
        )
    try:
        asyncio.run(_stand_by(config, lease))
    except BaseException:
        lease.close()
        raise
    if lease.leads:
        return lease
    lease.close()
    return None


async def _stand_by(config: Config, lease: Lease) -> None:
    leader: BrokerPlace | None = None

    def failure() -> Failed:
        there = "another broker leads" if leader is None else f"the broker {leader.name} leads"
        places = "" if leader is None else f": {leader.front} for emitters, {leader.back} for recipients"
        return Failed(f"{there}, and this one stands by", f"call the one that leads{places}", code=NOT_LEADING)

    dispatch = HealthAlone(Health("standby", SystemClock()), failure)
    with stop_signals() as stop, answering(config, list(PARTS), dispatch) as addresses:
        log.info("standing by", extra={"action": "stands_by"})
        notify(READY, "STATUS=stands by")
        while not stop.is_set():
            try:
                leader = await lease.take(addresses, at_once=False)
            except JournalUnavailable as error:
                log.warning("the lease is not seen: %s", error, extra={"action": "lease_not_seen"})
            if lease.leads:
                break
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), LOOK_SECONDS)
