"""The journal's database, which can be struck as everything else."""

import asyncio
import os
import secrets
import signal
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import TypeAlias

import psutil
import psycopg2

from tests.support.disks import MEBIBYTE, SmallDisk, mounted
from tests.support.postgres import Cluster, Server, cluster
from tests.support.waiting import wait_until
from tests.torture.proxy import Proxy
from xbus.broker.journal.database import schema

BROKERS = 2
"""The brokers of a PostgreSQL."""

LOCK_SECONDS = 5.0
"""How long the lock of an SQLite file is waited for."""

STREAM_SECONDS = 30.0
"""How long a standby may take until it has all that its primary has written."""

LAG_SECONDS = 0.5
"""For how long a standby lags at the least before its primary dies, so that it lacks something."""

DISK_BYTES = 4 * 1024 * MEBIBYTE
LEFT_BYTES = 64 * 1024
"""The size of the disk of two servers, in memory, and what is left of it when it is full."""

Lost: TypeAlias = tuple[float, float]
"""From when to when the database acknowledged what it has lost, by the monotonic clock."""

Fault: TypeAlias = Callable[[float], Awaitable[Lost | None]]
"""Strikes, and comes back when all is well again; takes how long that lasts, in seconds. Says what may be lost."""


class Database(ABC):
    """A database with the bus's tables.

    Attributes:
        urls: for the brokers: one that is alone, or several that stand by for each other.
        proxies: those by which each broker reaches it, where they lead there.
        own_url: for this program, past everything that is struck.
    """

    urls: Sequence[str]
    proxies: Sequence[Proxy] = ()
    own_url: str

    @property
    @abstractmethod
    def faults(self) -> Mapping[str, Fault]:
        """What can be done to it, by kind."""


class Sqlite(Database):
    """A file.

    Args:
        path: of the file, which is made.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.own_url = f"sqlite:///{path}"
        self.urls = (self.own_url,)
        schema.upgrade(self.own_url)

    @property
    def faults(self) -> Mapping[str, Fault]:
        return {"database-lock": self._lock}

    async def _lock(self, seconds: float) -> None:
        """Another program keeps the file to itself for a while."""
        with closing(sqlite3.connect(self._path, LOCK_SECONDS, isolation_level=None, check_same_thread=False)) as other:
            try:
                await asyncio.to_thread(other.execute, "BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return  # the broker never let go of it
            await asyncio.sleep(seconds)


class Postgresql(Database):
    """A database of a private cluster, which each broker reaches by a proxy.

    Args:
        private: the cluster, which runs.
        spare: another one, which does not run: it becomes the standby in a fail-over.
        url: of the database there.
        proxies: to the cluster, one for each broker.
        disk: on which the files of both are; None where no disk can be made.
    """

    def __init__(
        self, private: Cluster, spare: Cluster, url: str, proxies: Sequence[Proxy], disk: SmallDisk | None
    ) -> None:
        self._disk = disk
        self._cluster = private
        self._spare = spare
        self.proxies = proxies
        self.own_url = url
        self.urls = [url.replace(f":{private.port}/", f":{proxy.port}/") for proxy in proxies]

    @property
    def faults(self) -> Mapping[str, Fault]:
        return {
            "database-kill": self._kill,
            "database-restart": self._restart,
            "database-stop": self._stop,
            "cut-database": self._cut,
            "delay-database": self._hold,
            "failover_sync": self._fail_over_in_step,
            "failover_async": self._fail_over_behind,
            "read_only": self._only_read,
            **({} if self._disk is None else {"disk_full": partial(self._fill, self._disk)}),
        }

    async def _kill(self, seconds: float) -> None:
        for pid in self._processes():
            _signal(pid, signal.SIGKILL)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(self._cluster.stop)
        await asyncio.to_thread(self._cluster.start)

    async def _restart(self, seconds: float) -> None:
        await asyncio.to_thread(self._cluster.stop, signal.SIGINT)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(self._cluster.start)

    async def _stop(self, seconds: float) -> None:
        stopped = self._processes()
        for pid in stopped:
            _signal(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            for pid in stopped:
                _signal(pid, signal.SIGCONT)

    async def _cut(self, seconds: float) -> None:
        for proxy in self.proxies:
            proxy.cut()
        await self._mend(seconds)

    async def _hold(self, seconds: float) -> None:
        for proxy in self.proxies:
            proxy.hold()
        await self._mend(seconds)

    async def _mend(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        for proxy in self.proxies:
            proxy.mend()

    async def _only_read(self, seconds: float) -> None:
        """Have all sessions only read, those that are there, too; then the server itself, as one that was demoted."""
        await asyncio.to_thread(self._administer, "ALTER SYSTEM SET default_transaction_read_only = on")
        await asyncio.sleep(seconds / 2)
        await asyncio.to_thread(self._administer, "ALTER SYSTEM RESET default_transaction_read_only")
        await asyncio.to_thread(self._cluster.stop)
        self._cluster.become_standby()
        await asyncio.to_thread(self._cluster.start)
        await asyncio.sleep(seconds / 2)
        await asyncio.to_thread(self._cluster.promote)

    async def _fill(self, disk: SmallDisk, seconds: float) -> None:
        """Leave no room on the disk for a while: a server that finds none for its log ends."""
        disk.resize(disk.used + LEFT_BYTES)
        try:
            await asyncio.sleep(LAG_SECONDS + seconds)
        finally:
            disk.resize(DISK_BYTES)
        if not self._cluster.runs:
            await asyncio.to_thread(self._cluster.stop)
            await asyncio.to_thread(self._cluster.start)

    def _administer(self, statement: str) -> None:
        writes = "-c default_transaction_read_only=off"
        with closing(psycopg2.connect(self._cluster.url, options=writes)) as connection:
            connection.autocommit = True
            connection.cursor().execute(statement)
            connection.cursor().execute("SELECT pg_reload_conf()")

    async def _fail_over_in_step(self, seconds: float) -> None:
        """Kill the server, and promote a standby that had each commit before it was acknowledged."""
        await asyncio.to_thread(self._follow, self._cluster.port)
        await asyncio.to_thread(self._keep_in_step)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(self._cluster.kill)
        await asyncio.to_thread(self._swap)

    async def _fail_over_behind(self, seconds: float) -> Lost:
        """Kill the server, and promote a standby that lacks its last commits."""
        link = Proxy(self._cluster.port)
        await link.start()
        try:
            await asyncio.to_thread(self._follow, link.port)
            since = await asyncio.to_thread(self._catch_up)
            link.hold()
            await asyncio.sleep(LAG_SECONDS + seconds)
            await asyncio.to_thread(self._cluster.kill)
            link.cut()
        finally:
            await link.close()
        return since, await asyncio.to_thread(self._swap)

    def _follow(self, port: int) -> None:
        """Have the spare cluster follow the server by a port, and come back when it has all."""
        self._spare.become_standby_of(self._cluster, port)
        self._spare.start()
        wait_until(lambda: self._asks("state = 'streaming'"), "the standby follows", STREAM_SECONDS)

    def _catch_up(self) -> float:
        """Have the standby take all that is committed now, and give that moment."""
        now = time.monotonic()
        with closing(psycopg2.connect(self._cluster.url)) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT pg_current_wal_flush_lsn()")
            ((end,),) = cursor.fetchall()
        wait_until(lambda: self._asks(f"replay_lsn >= '{end}'"), "the standby has caught up", STREAM_SECONDS)
        return now

    def _keep_in_step(self) -> None:
        self._administer("ALTER SYSTEM SET synchronous_standby_names = '*'")
        wait_until(lambda: self._asks("sync_state = 'sync'"), "the standby is in step", STREAM_SECONDS)

    def _asks(self, condition: str) -> bool:
        with closing(psycopg2.connect(self._cluster.url)) as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT count(*) FROM pg_stat_replication WHERE {condition} AND replay_lsn IS NOT NULL")
            return bool(cursor.fetchone() == (1,))

    def _swap(self) -> float:
        """Have the spare cluster take the address of the server, as a moving address does, and let it write.

        Returns:
            The last moment at which an acknowledgement can only be of the server that died.
        """
        self._spare.stop()
        self._cluster, self._spare = self._spare, self._cluster
        self._cluster.port, self._spare.port = self._spare.port, self._cluster.port
        self._cluster.start()
        until = time.monotonic()
        self._cluster.promote()
        return until

    def revive(self) -> None:
        """Start the server if it was interrupted while it was struck."""
        if not self._cluster.runs:
            self._cluster.start()

    def _processes(self) -> list[int]:
        """The server and all that it has started; it first, so that it does not mend what happens to them."""
        server = psutil.Process(self._cluster.pid)
        return [server.pid, *(child.pid for child in server.children(recursive=True))]


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # it has ended meanwhile


def _open_to_all(disk: SmallDisk | None) -> Path | None:
    """The folder of a disk, in which another account may enter the folder that is its own."""
    if disk is None:
        return None
    disk.folder.chmod(0o755)
    return disk.folder


@asynccontextmanager
async def database(kind: str, folder: Path) -> AsyncIterator[Database]:
    """A database of a kind, thrown away at the end where it is not in the folder.

    Raises:
        NotFound: there is no PostgreSQL on this machine.
    """
    if kind == "sqlite":
        yield Sqlite(folder / "xbus.db")
        return
    with (
        mounted(Path("/tmp") / f"xbus-torture-{secrets.token_hex(4)}", DISK_BYTES) as disk,
        cluster(place=_open_to_all(disk)) as private,
        cluster(place=_open_to_all(disk)) as spare,
        closing(Server(private.url)) as server,
    ):
        spare.stop()
        proxies = [Proxy(private.port) for _ in range(BROKERS)]
        for proxy in proxies:
            await proxy.start()
        postgresql = Postgresql(private, spare, server.create(), proxies, disk)
        try:
            yield postgresql
        finally:
            for proxy in proxies:
                await proxy.close()
            postgresql.revive()
