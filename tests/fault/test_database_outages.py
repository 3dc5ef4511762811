"""The database is away, silent, cut off, full, read-only or locked: nobody is told anything false, callers get a coded
answer in time, health tells of it, and all goes on by itself afterwards."""

import asyncio
import json
import resource
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

import psycopg2
import pytest

from tests.conftest import StartDaemon
from tests.support import postgres
from tests.support.bus import add_bus
from tests.support.daemon import Daemon, write_config
from tests.support.disks import MEBIBYTE, on_small_disk
from tests.support.outages import riding
from tests.support.processes import run, script
from tests.support.waiting import DEADLINE_SECONDS

DISK_BYTES = 24 * MEBIBYTE
OPTIONS = {"journal": {"answer_timeout": 2}}

WRITING = "-c default_transaction_read_only=off"
"""Options of sessions that write though the server has them read only."""


@pytest.fixture
def daemon(url: str, start_daemon: StartDaemon) -> Daemon:
    add_bus(url, {"test_event": {"c": []}})
    return start_daemon(url, OPTIONS)


@pytest.fixture
def sqlite_daemon(sqlite_url: str, start_daemon: StartDaemon) -> Daemon:
    add_bus(sqlite_url, {"test_event": {"c": []}})
    return start_daemon(sqlite_url, OPTIONS)


async def test_postgresql_stopped(cluster: postgres.Cluster, daemon: Daemon) -> None:
    async with riding(daemon) as rider:
        await asyncio.to_thread(cluster.stop)
        await rider.refused()
        await rider.healthy(False)
        await asyncio.to_thread(cluster.start)
        await rider.healthy(True)


async def test_postgresql_killed(cluster: postgres.Cluster, daemon: Daemon) -> None:
    async with riding(daemon) as rider:
        await asyncio.to_thread(cluster.kill)
        await rider.refused()
        await rider.healthy(False)
        await asyncio.to_thread(cluster.start)
        await rider.healthy(True)


async def test_postgresql_silent(cluster: postgres.Cluster, daemon: Daemon) -> None:
    async with riding(daemon) as rider:
        cluster.signal(signal.SIGSTOP)
        try:
            await rider.refused()
            await rider.healthy(False)
        finally:
            cluster.signal(signal.SIGCONT)
        await rider.healthy(True)


async def test_connections_cut(url: str, cluster: postgres.Cluster, daemon: Daemon) -> None:
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
    async with riding(daemon) as rider:
        for _ in range(5):
            with administering(cluster) as cursor:
                cursor.execute(cut, [urlsplit(url).path.removeprefix("/")])
            await rider.more(3)


async def test_postgresql_read_only(cluster: postgres.Cluster, daemon: Daemon) -> None:
    async with riding(daemon) as rider:
        with administering(cluster) as cursor:
            cursor.execute("ALTER SYSTEM SET default_transaction_read_only = on")
            cursor.execute("SELECT pg_reload_conf()")
        try:
            await rider.refused()
            await rider.healthy(False)
            # Sessions of the doctor write, so all that it can tell is what the broker says of its own.
            told = await asyncio.to_thread(examined, daemon, WRITING)
            assert told["journal_unavailable"] == "broker"
            assert "database" not in told.values()
        finally:
            with administering(cluster) as cursor:
                cursor.execute("ALTER SYSTEM RESET default_transaction_read_only")
                cursor.execute("SELECT pg_reload_conf()")
        await rider.healthy(True)


async def test_postgresql_full(url: str, start_daemon: StartDaemon) -> None:
    add_bus(url, {"test_event": {"c": []}})
    with on_small_disk(url, DISK_BYTES) as disk:
        daemon = start_daemon(url, OPTIONS)
        async with riding(daemon, item_bytes=50_000) as rider:
            filler = disk.fill()
            await rider.refused()
            await rider.healthy(False)
            filler.unlink()
            await rider.healthy(True)
        assert daemon.stop() == 0


async def test_sqlite_full(sqlite_daemon: Daemon, sqlite_url: str) -> None:
    """The file that all is written to first may not grow."""
    wal = Path(sqlite_url.removeprefix("sqlite:///") + "-wal")
    async with riding(sqlite_daemon) as rider:
        with limited_files([sqlite_daemon.pid], wal.stat().st_size + 50_000):
            await rider.refused()
            await rider.healthy(False)
        await rider.healthy(True)


async def test_sqlite_locked(sqlite_daemon: Daemon, sqlite_url: str) -> None:
    async with riding(sqlite_daemon) as rider:
        with closing(
            sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None, timeout=DEADLINE_SECONDS)
        ) as other:
            other.execute("BEGIN EXCLUSIVE")
            await rider.refused()
            await rider.healthy(False)
            other.execute("ROLLBACK")
        await rider.healthy(True)


@contextmanager
def administering(cluster: postgres.Cluster) -> Iterator["psycopg2.extensions.cursor"]:
    with closing(psycopg2.connect(cluster.url, options=WRITING)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            yield cursor


def examined(daemon: Daemon, session: str) -> dict[str, str]:
    """The problems that ``xbus doctor`` tells, each with the part of the installation that has it.

    Args:
        session: options of its own sessions of the database.
    """
    ports = {f"{side}socket": address for side, address in (("front", daemon.front), ("back", daemon.back))}
    url = f"{daemon.url}?options={quote(session)}"
    config = write_config(daemon.config.with_name("doctor.ini"), url, {"zmq": ports})
    config.chmod(0o600)
    told = run(script("xbus"), "doctor", "-c", config, "-o", "json").stdout.splitlines()
    findings = [json.loads(line) for line in told]
    return {finding["code"]: finding["part"] for finding in findings if finding["severity"] == "problem"}


@contextmanager
def limited_files(pids: list[int], most_bytes: int) -> Iterator[None]:
    """Let processes write no file beyond a size."""
    before = [resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in pids]
    for pid, (_, hard) in zip(pids, before, strict=True):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (most_bytes, hard))
    try:
        yield
    finally:
        for pid, limits in zip(pids, before, strict=True):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)
