"""The journal's database, which can be struck as everything else."""

import asyncio
import os
import signal
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import TypeAlias

import psutil

from tests.support.postgres import Cluster, Server, cluster
from tests.torture.proxy import Proxy
from xbus.broker.journal.database import schema

LOCK_SECONDS = 5.0
"""How long the lock of an SQLite file is waited for."""

Fault: TypeAlias = Callable[[float], Awaitable[None]]
"""Strikes, and comes back when all is well again; takes how long that lasts, in seconds."""


class Database(ABC):
    """A database with the bus's tables.

    Attributes:
        url: for the broker.
        own_url: for this program, past everything that is struck.
    """

    url: str
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
        self.url = self.own_url = f"sqlite:///{path}"
        schema.upgrade(self.url)

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
    """A database of a private cluster, which the broker reaches by a proxy.

    Args:
        private: the cluster, which runs.
        url: of the database there.
        proxy: to the cluster, for the broker.
    """

    def __init__(self, private: Cluster, url: str, proxy: Proxy) -> None:
        self._cluster = private
        self._proxy = proxy
        self.own_url = url
        self.url = url.replace(f":{private.port}/", f":{proxy.port}/")

    @property
    def faults(self) -> Mapping[str, Fault]:
        return {
            "database-kill": self._kill,
            "database-restart": self._restart,
            "database-stop": self._stop,
            "cut-database": self._cut,
            "delay-database": self._hold,
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
        self._proxy.cut()
        await asyncio.sleep(seconds)
        self._proxy.mend()

    async def _hold(self, seconds: float) -> None:
        self._proxy.hold()
        await asyncio.sleep(seconds)
        self._proxy.mend()

    def _processes(self) -> list[int]:
        """The server and all that it has started; it first, so that it does not mend what happens to them."""
        server = psutil.Process(self._cluster.pid)
        return [server.pid, *(child.pid for child in server.children(recursive=True))]


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # it has ended meanwhile


@asynccontextmanager
async def database(kind: str, folder: Path) -> AsyncIterator[Database]:
    """A database of a kind, thrown away at the end where it is not in the folder.

    Raises:
        NotFound: there is no PostgreSQL on this machine.
    """
    if kind == "sqlite":
        yield Sqlite(folder / "xbus.db")
        return
    with cluster() as private, closing(Server(private.url)) as server:
        proxy = Proxy(private.port)
        await proxy.start()
        try:
            yield Postgresql(private, server.create(), proxy)
        finally:
            await proxy.close()
            if not private.runs:  # interrupted while it was struck
                private.start()
