"""One broker of a journal leads, and any number stand by: they have imported all, and wait for its lease.

A broker that is told to stand by answers ``not_leading`` to each call until it leads. Any other leads at once, and ends
the broker that led.
"""

import asyncio
import contextlib
import logging
import platform
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from xbus.broker.health_verbs import HealthAlone, answering
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
from xbus.system.service_manager import READY, alive, notify, stop_signals

log = logging.getLogger(__name__)

T = TypeVar("T")

RENEWALS = 3
"""The renewals of a lease within its time."""

GIVE_UP_SECONDS = 30.0
"""A leader that reached no database for so long gives up where others stand by. A restart of PostgreSQL takes less."""

GIVE_BACK_SECONDS = 2.0
"""How long a broker that ends tries to give its lease back; the database may be away."""

_EVERYWHERE = re.compile(r"^tcp://(\*|0\.0\.0\.0|\[::\]):")
"""The beginning of an address on all networks of a machine."""

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
        self._place: BrokerPlace
        self._epoch: int | None = None
        self._is_away = False
        self._thread = ThreadPoolExecutor(1, "lease")
        self.stands_by = False
        """Whether this broker has stood by, as others may do now."""

    @classmethod
    def of(cls, config: Config) -> "Lease | None":
        """Make that of a broker; None where its database serves one broker alone."""
        return None if config.database.url.startswith("sqlite") else cls(config)

    async def take(self, addresses: Mapping[str, str], *, at_once: bool) -> BrokerPlace | None:
        """Begin to lead where nobody leads, and tell where this broker is.

        Args:
            addresses: of this broker, by part; those of encrypted connections are better known.
            at_once: whether to lead whoever does so now.

        Returns:
            The broker that leads, where that is another one.

        Raises:
            JournalUnavailable: the database can't be written.
        """
        self._place = self._told(addresses)
        if self._epoch is not None:
            return None
        self._epoch, leader = await self._do(leadership.take, self._place, self._seconds, at_once)
        if self.leads:
            log.info("this broker leads", extra={"action": "leads", "epoch": self._epoch})
        return leader

    @property
    def leads(self) -> bool:
        """True from ``take`` on, while no other broker is known to lead."""
        return self._epoch is not None

    async def keep(self) -> None:
        """Renew it again and again.

        Raises:
            TakenOver: another broker leads.
            JournalUnavailable: no database was reached for long, and other brokers may stand by.
        """
        renewed = time.monotonic()
        leader: BrokerPlace | None = None
        while self._epoch is not None:
            await asyncio.sleep(self._seconds / RENEWALS)
            try:
                self._epoch, leader = await self._do(leadership.renew, self._place, self._epoch, self._seconds)
                renewed = time.monotonic()
            except JournalUnavailable:
                # The row says that this broker leads, until another one reaches the database.
                if self.stands_by and time.monotonic() - renewed > GIVE_UP_SECONDS:
                    raise
        raise TakenOver(
            f"another broker leads now ({'unknown' if leader is None else leader.process})",
            "start this one again only if it is to lead",
        )

    async def give_back(self) -> None:
        """Have the next broker lead at once, where this one leads."""
        epoch, self._epoch = self._epoch, None
        if epoch is None:
            return
        with contextlib.suppress(JournalUnavailable, TimeoutError):  # it ends by itself
            async with asyncio.timeout(GIVE_BACK_SECONDS):
                await self._do(leadership.give_back, self._place, epoch)

    def release(self) -> None:
        """Give it back where its broker did not come so far as to lead, outside of a loop."""
        if self.leads:
            asyncio.run(self.give_back())
            self.close()

    def leave(self) -> None:
        """Have the lease end by itself, at the end of its time."""
        self._epoch = None

    def close(self) -> None:
        """Close its connection."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._engine.dispose()

    def _told(self, addresses: Mapping[str, str]) -> BrokerPlace:
        host = platform.node()
        name = self._config.broker.name or f"{host}:{addresses['front'].rpartition(':')[2]}"
        front, back = (
            _EVERYWHERE.sub(f"tcp://{host}:", addresses.get(f"{part}.curve", addresses[part]))
            for part in ("front", "back")
        )
        return BrokerPlace(name, front, back, installed_version(), self._process)

    async def _do(self, work: Callable[..., T], *args: object) -> T:
        def transaction() -> T:
            with journal_errors(), self._engine.begin() as connection:
                return work(connection, *args)

        try:
            done = await asyncio.get_running_loop().run_in_executor(self._thread, transaction)
        except JournalUnavailable as error:
            if not self._is_away:
                log.warning("the lease is out of reach: %s", error, extra={"action": "lease_away", "code": error.code})
            self._is_away = True
            raise
        if self._is_away:
            log.info("the lease is within reach again", extra={"action": "lease_back"})
        self._is_away = False
        return done


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
    lease.stands_by = True
    try:
        asyncio.run(_stand_by(config, lease))
        return lease if lease.leads else None
    finally:
        if not lease.leads:
            lease.close()


async def _stand_by(config: Config, lease: Lease) -> None:
    leader: BrokerPlace | None = None

    def failure() -> Failed:
        there = "another broker leads" if leader is None else f"the broker {leader.name} leads"
        places = "" if leader is None else f": {leader.front} for emitters, {leader.back} for recipients"
        return Failed(f"{there}, and this one stands by", f"call the one that leads{places}", code=NOT_LEADING)

    dispatch = HealthAlone(Health("standby", SystemClock()), failure)
    with stop_signals() as stop, answering(config, list(PARTS), dispatch) as addresses:
        # The first look tells of a database that can't be used.
        leader = await lease.take(addresses, at_once=False)
        log.info("standing by", extra={"action": "stands_by"})
        notify(READY, "STATUS=stands by")
        async with alive():
            while not lease.leads:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), LOOK_SECONDS)
                if stop.is_set():
                    return
                with contextlib.suppress(JournalUnavailable):
                    leader = await lease.take(addresses, at_once=False)
