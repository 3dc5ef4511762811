"""One broker of a journal leads, and any number stand by: they have imported all, and wait for its lease.

A broker that is told to stand by answers ``not_leading`` to each call until it leads. Any other leads at once, and ends
the broker that led.
"""

import asyncio
import contextlib
import json
import logging
import math
import os
import platform
import re
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from xbus.broker.health_verbs import HealthAlone, answering
from xbus.broker.journal import leadership
from xbus.broker.journal.commit.committer import this_holder
from xbus.broker.journal.database.connection import Connection
from xbus.broker.journal.database.engine import create_engine, journal_errors
from xbus.broker.journal.leadership import BrokerPlace, JournalEnd, KnownBroker, Looked
from xbus.broker.journal.operations import losses
from xbus.broker.journal.operations.losses import Loss
from xbus.broker.metrics.of_process import ProcessReadiness
from xbus.broker.metrics.service import pages
from xbus.broker.parts import PARTS
from xbus.clock import SystemClock
from xbus.config import Config
from xbus.config.plaintext import needs_keys
from xbus.errors import ConfigurationError, Failed, JournalUnavailable, LeaseLost, TakenOver
from xbus.extras import installed_version
from xbus.rpc.client import NOT_LEADING
from xbus.rpc.curve import read_pair
from xbus.supervision.health import Health
from xbus.system.service_manager import READY, alive, notify, stop_signals

log = logging.getLogger(__name__)

T = TypeVar("T")

RENEWALS = 3
"""The least renewals of a lease within its time."""

ONE_MORE_SECONDS = 1.0
"""Seconds that a renewal may take behind the end of a lease. Nothing is handed out meanwhile."""

LONGEST_RENEWAL_SECONDS = 1.0
"""Seconds between two renewals at the most: an operator waits for one to have another broker lead."""

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
        self._asked_at: float | None = None
        """Since when the database owes an answer, on the monotonic clock; None before there is a connection."""
        self._descriptor = -1
        """Of the connection."""
        self._written = JournalEnd(0, 0, 0)
        """How far the journal was written at the last look."""
        self._lost: Loss | None = None
        self.stands_by = False
        """Whether this broker has stood by, as others may do now."""
        self.until = math.inf
        """When it is over unless it is renewed, on the monotonic clock; never where no other broker may stand by. From
        then on this broker hands nothing out: another one may do so."""
        self.clock = SystemClock()
        """The clock of this broker. It follows that of the database: its moments are read by the next broker, too."""
        self.brokers: Sequence[KnownBroker] = ()
        """All brokers of the journal, as of the last look."""
        self.is_handed_over = False
        """Whether an operator has had another broker lead next."""
        self._end: Callable[[], object] = lambda: None

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
            ConfigurationError: the leader is configured otherwise, where that matters (``standby_differs``).
            JournalUnavailable: the database can't be written.
        """
        self._place = self._told(addresses)
        if self._epoch is not None:
            return None
        leader = await self._look(leadership.take, self._place, self._seconds, at_once)
        if self.leads:
            log.info("this broker leads", extra={"action": "leads", "epoch": self._epoch})
            await self._tell_loss()
        elif leader is not None:
            _check_alike(self._place, leader)
        return leader

    @property
    def leads(self) -> bool:
        """True from ``take`` on, while no other broker is known to lead."""
        return self._epoch is not None

    def ends_by(self, end: Callable[[], object]) -> None:
        """Have this broker end in order where an operator has another one lead next."""
        self._end = end
        if self.is_handed_over:
            end()

    async def keep(self) -> None:
        """Renew it again and again. Where an operator has another broker lead next, end this one.

        Raises:
            TakenOver: another broker leads.
            LeaseLost: another one may lead, as the lease could not be renewed.
        """
        leader: BrokerPlace | None = None
        while self._epoch is not None:
            # One that stood still may find its time over: the row says whether another one leads.
            until = max(self.until, time.monotonic() + ONE_MORE_SECONDS) if self.until < math.inf else None
            try:
                async with asyncio.timeout_at(until):
                    leader = await self._look(leadership.renew, self._place, self._epoch, self._seconds)
            except (JournalUnavailable, TimeoutError) as error:
                # Without others the row says that this broker leads, whenever it reaches the database again.
                if time.monotonic() >= self.until:
                    raise LeaseLost(
                        f"the lease could not be renewed for {self._seconds:g} s, so another broker may lead now",
                        "see whether this machine reaches the database, then start this one again",
                    ) from error
            if not self.is_handed_over and any(each.successor not in (None, self._place.name) for each in self.brokers):
                log.info("another broker is to lead next", extra={"action": "hands_over"})
                self.is_handed_over = True
                self._end()
            left = self.until - time.monotonic()
            await asyncio.sleep(min(self._seconds / RENEWALS, LONGEST_RENEWAL_SECONDS, left))
        raise TakenOver(
            f"another broker leads now ({'unknown' if leader is None else leader.process})",
            "start this one again only if it is to lead",
        )

    async def _look(self, look: Callable[..., Looked], *args: object) -> BrokerPlace | None:
        """Look at the lease, and note what came of it; give the broker that leads, where that is another one."""
        began, looked = await self._do(self._timed, look, *args)
        self._epoch, self.brokers = looked.epoch, looked.brokers
        self._note_written(looked.written)
        others = any(each.place.process != self._process and not each.is_gone for each in looked.brokers)
        self.until = began + self._seconds if self.stands_by or others else math.inf
        return looked.leader if looked.epoch is None else None

    def _timed(self, connection: Connection, look: Callable[..., Looked], *args: object) -> Looked:
        looked = look(connection, *args)
        self.clock.follow(looked.brokers[0].at)  # here, as an answer may have to wait for the loop
        return looked

    def _note_written(self, now: JournalEnd) -> None:
        """Compare how far the journal is written with the look before: it may have gone back, as in a fail-over."""
        before, self._written = self._written, now
        commits = before.lacks(now)
        if commits is not None:
            self._lost = Loss(self.clock.now(), leadership.LEAD, commits, before.position, now.position)

    async def _tell_loss(self) -> None:
        """Note in the journal what it lost while this broker stood by: the leader may have ended without a word."""
        if self._lost is not None:
            log.error("the journal went back: %s", self._lost, extra={"action": "went_back"})
            await self._do(losses.add_unless_told, self._lost)

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
        if self._asked_at is not None:
            self._hang_up()  # the process would wait for its thread
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._engine.dispose()

    def _told(self, addresses: Mapping[str, str]) -> BrokerPlace:
        host = platform.node()
        name = self._config.broker.name or f"{host}:{addresses['front'].rpartition(':')[2]}"
        front, back = (
            _EVERYWHERE.sub(f"tcp://{host}:", addresses.get(f"{part}.curve", addresses[part]))
            for part in ("front", "back")
        )
        return BrokerPlace(name, front, back, installed_version(), self._process, json.dumps(_in_common(self._config)))

    async def _do(self, work: Callable[..., T], *args: object) -> tuple[float, T]:
        """Do work in a transaction; give its beginning, too, on the monotonic clock: a connection may take its time."""

        def transaction() -> tuple[float, T]:
            try:
                with journal_errors(), self._engine.begin() as connection:
                    self._descriptor = connection.connection.fileno()
                    self._asked_at = began = time.monotonic()
                    return began, work(connection, *args)
            finally:
                self._asked_at = None

        try:
            doing = asyncio.get_running_loop().run_in_executor(self._thread, transaction)
            while not (await asyncio.wait([doing], timeout=LOOK_SECONDS))[0]:
                if self._asked_at is not None and time.monotonic() - self._asked_at > self._seconds:
                    self._hang_up()
            done = doing.result()
        except JournalUnavailable as error:
            if not self._is_away:
                log.warning("the lease is out of reach: %s", error, extra={"action": "lease_away", "code": error.code})
            self._is_away = True
            raise
        if self._is_away:
            log.info("the lease is within reach again", extra={"action": "lease_back"})
        self._is_away = False
        return done

    def _hang_up(self) -> None:
        """End the connection to a database that answers no more, as where its process is frozen."""
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self._descriptor)) as same:
            same.shutdown(socket.SHUT_RDWR)


def _in_common(config: Config) -> dict[str, object]:
    """Give what all brokers of a journal must have in common, by the option that says it."""
    return {
        "[curve] key_file": read_pair(config.curve.key_file).public if needs_keys(config) else "",
        "[journal] objects": config.journal.objects,
        "[broker] lease": config.broker.lease,
    }


def _check_alike(own: BrokerPlace, leader: BrokerPlace) -> None:
    """Let a broker pass that may lead behind the leader.

    Raises:
        ConfigurationError: standby_differs.
    """
    ours, theirs = json.loads(own.settings), json.loads(leader.settings)
    for name, value in ours.items():
        if name in theirs and theirs[name] != value:
            raise ConfigurationError(
                f"{name} is {_shown(value)} here, and {_shown(theirs[name])} for the broker {leader.name}, which leads",
                "give both the same: programs and data of the one must suit the other",
                code="standby_differs",
            )


def _shown(value: object) -> str:
    return str(value) or "not given"


def stand_by(config: Config, only: str | None) -> Lease | None:
    """Answer ``not_leading`` to each call until this broker leads, or is told to stop.

    Returns:
        The lease by which it leads; None where it was told to stop.

    Raises:
        ConfigurationError: it can't stand by with this database (``standby_needs_postgresql``), with one part alone
            (``standby_apart``), with a folder of its own for objects (``standby_objects``), or beside a leader that is
            configured otherwise (``standby_differs``).
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
    if config.journal.objects and "://" not in config.journal.objects and not config.journal.objects_shared:
        raise ConfigurationError(
            f"the objects of the journal are in the folder {config.journal.objects}, which one machine may have alone",
            "say [journal] objects_shared = true where all brokers reach the same folder, or keep the objects in S3",
            code="standby_objects",
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

    health = Health("standby", SystemClock())
    readiness = ProcessReadiness(health, lambda: lease.brokers, failure)
    with stop_signals() as stop, answering(config, list(PARTS), HealthAlone(health, failure)) as addresses:
        async with pages(config.metrics.listen, health, readiness), alive():
            # The first look tells of a database that can't be used.
            leader = await lease.take(addresses, at_once=False)
            log.info("standing by", extra={"action": "stands_by"})
            notify(READY, "STATUS=stands by")
            while not lease.leads:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), LOOK_SECONDS)
                if stop.is_set():
                    return
                with contextlib.suppress(JournalUnavailable):
                    leader = await lease.take(addresses, at_once=False)
            if stop.is_set():
                await lease.give_back()  # it came during the look
