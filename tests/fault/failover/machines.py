"""Three machines with etcd, Patroni and PostgreSQL, each a network namespace of its own on one bridge.

The configuration of Patroni is that of ``deploy/patroni``. Only root may make network namespaces. PostgreSQL refuses to
run as root, so all programs run as another account.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg2

from tests.support import postgres
from tests.support.documentation import CHECKOUT
from tests.support.waiting import wait_until

PATRONI = CHECKOUT / "deploy" / "patroni" / "patroni.yml"
PROGRAMS = ("ip", "setpriv", "etcd", "patroni")
BRIDGE = "xbustrial"
NETWORK = "10.84.0"
NUMBERS = (1, 2, 3)
PASSWORD = "password"
BEGIN_SECONDS = 120.0
HEAL_SECONDS = 180.0
ASK_SECONDS = 1.0


SAFE_WITH_ETCD3 = (3, 0, 3)
"""The first version of Patroni whose primary does not take its lock back from the next one after a partition.

Older ones do so by etcd's third protocol, and not by its second.
"""


def patroni_version() -> tuple[int, ...]:
    """The version of Patroni on this machine."""
    told = subprocess.run(["patroni", "--version"], check=True, capture_output=True, text=True).stdout
    return tuple(int(number) for number in told.split()[-1].split("."))


def missing() -> str:
    """Tell what this machine lacks for the trial; an empty text where it lacks nothing."""
    if os.geteuid() != 0:
        return "the trial needs root, for network namespaces"
    lacking = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"the trial needs {', '.join(lacking)}: apt-get install patroni etcd-server iproute2" if lacking else ""


def _ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


class Machine:
    """A machine with etcd, Patroni and PostgreSQL.

    Args:
        number: of the three.
        folder: for its files.
        is_synchronous: whether a commit waits for a standby.
    """

    def __init__(self, number: int, folder: Path, is_synchronous: bool) -> None:
        self.name = f"db-{number}"
        self.address = f"{NETWORK}.1{number}"
        self._space, self._link = f"{BRIDGE}-{number}", f"{BRIDGE}{number}"
        self._folder = folder / self.name
        self._processes: list[subprocess.Popen[bytes]] = []
        account = postgres.account()
        assert account is not None
        self._account = account
        for path in (self._folder, self._folder / "etcd", self._folder / "data"):
            path.mkdir(parents=True, mode=0o700)
            os.chown(path, account.pw_uid, account.pw_gid)
        self._config = self._folder / "patroni.yml"
        self._config.write_text(self._configured(PATRONI.read_text(), is_synchronous))
        self._config.chmod(0o644)

    def plug(self) -> None:
        """Make it a part of the network."""
        _ip("netns", "add", self._space)
        _ip("link", "add", self._link, "type", "veth", "peer", "name", "eth0", "netns", self._space)
        _ip("link", "set", self._link, "master", BRIDGE, "up")
        _ip("-n", self._space, "address", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", self._space, "link", "set", device, "up")

    def start(self) -> None:
        """Start its programs, as at a start of the machine."""
        here, members = f"http://{self.address}", [f"db-{each}=http://{NETWORK}.1{each}:2380" for each in NUMBERS]
        self._run(
            *("etcd", "--name", self.name, "--data-dir", str(self._folder / "etcd")),
            *("--listen-client-urls", f"{here}:2379", "--advertise-client-urls", f"{here}:2379"),
            *("--listen-peer-urls", f"{here}:2380", "--initial-advertise-peer-urls", f"{here}:2380"),
            *("--initial-cluster", ",".join(members), "--enable-v2"),
        )
        self._run("patroni", str(self._config))

    def kill(self) -> None:
        """End all of it at once, as a loss of power does."""
        while pids := self._pids():
            self._signal(pids, signal.SIGKILL)
        for process in self._processes:
            process.wait()
        self._processes.clear()

    def freeze(self) -> None:
        """Stop all its programs, while its network answers."""
        frozen: set[int] = set()
        while pids := self._pids() - frozen:
            self._signal(pids, signal.SIGSTOP)
            frozen |= pids

    def thaw(self) -> None:
        """Have its programs go on."""
        self._signal(self._pids(), signal.SIGCONT)

    def cut_off(self) -> None:
        """Let nothing through between it and all others."""
        _ip("link", "set", self._link, "down")

    def join(self) -> None:
        """Let all through again."""
        _ip("link", "set", self._link, "up")

    def unplug(self) -> None:
        """Take it from the network, if it is there."""
        with contextlib.suppress(subprocess.CalledProcessError):
            self.kill()
        # The network of a space that is deleted goes later.
        for words in (("link", "delete", self._link), ("netns", "delete", self._space)):
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip(*words)

    def is_a(self, role: str) -> bool:
        """Ask its Patroni for its role: ``primary``, ``replica`` or ``synchronous``."""
        try:
            with urllib.request.urlopen(f"http://{self.address}:8008/{role}", timeout=ASK_SECONDS) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _configured(self, text: str, is_synchronous: bool) -> str:
        changes = {
            "name: db-1": f"name: {self.name}",
            "connect_address: db-1:": f"connect_address: {self.name}:",
            "0.0.0.0:": f"{self.address}:",
            "/usr/lib/postgresql/15/bin": str(postgres.find_programs()),
            "/var/lib/postgresql/15/xbus": str(self._folder / "data"),
            "/var/run/postgresql": str(self._folder),
            "mode: automatic": "mode: off",
            "etcd3:": "etcd3:" if patroni_version() >= SAFE_WITH_ETCD3 else "etcd:",
            "synchronous_mode: true": f"synchronous_mode: {str(is_synchronous).lower()}",
        }
        for old, new in changes.items():
            assert old in text, f"{PATRONI.name} has no {old}"
            text = text.replace(old, new)
        for number in NUMBERS:
            text = text.replace(f"db-{number}:", f"{NETWORK}.1{number}:")
        return text

    def _run(self, *command: str) -> None:
        as_account = ("setpriv", f"--reuid={self._account.pw_uid}", f"--regid={self._account.pw_gid}", "--clear-groups")
        passwords = {f"PATRONI_{each}_PASSWORD": PASSWORD for each in ("SUPERUSER", "REPLICATION")}
        with (self._folder / f"{command[0]}.log").open("ab") as log:
            process = subprocess.Popen(
                ["ip", "netns", "exec", self._space, *as_account, *command],
                env={"PATH": os.environ["PATH"], "HOME": str(self._folder), "LC_ALL": "C.UTF-8", **passwords},
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._processes.append(process)

    def _pids(self) -> set[int]:
        # Those that nobody has waited for yet are in no network any more.
        return {int(pid) for pid in _ip("netns", "pids", self._space).split()}

    @staticmethod
    def _signal(pids: set[int], number: signal.Signals) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


class Machines:
    """The three machines, and the journal that they keep."""

    def __init__(self, folder: Path, is_synchronous: bool) -> None:
        self._is_synchronous = is_synchronous
        self.all = [Machine(number, folder, is_synchronous) for number in NUMBERS]

    @property
    def url(self) -> str:
        """The address of the journal, which names all three."""
        servers = ",".join(f"{each.address}:5432" for each in self.all)
        return f"postgresql+psycopg2://xbus:{PASSWORD}@{servers}/xbus"

    def one_that_is(self, role: str) -> Machine:
        """Find the only one of a role."""
        (found,) = (machine for machine in self.all if machine.is_a(role))
        return found

    def wait_healthy(self, timeout: float = HEAL_SECONDS) -> None:
        """Wait until one writes, and two follow it."""
        wait_until(self._are_healthy, "one machine writes and two follow", timeout)

    def make_journal(self) -> None:
        """Make the user and the database of the bus."""
        url = f"postgresql://postgres:{PASSWORD}@{self.one_that_is('primary').address}/postgres"
        with closing(psycopg2.connect(url)) as connection:
            connection.autocommit = True
            connection.cursor().execute(f"CREATE ROLE xbus LOGIN PASSWORD '{PASSWORD}'")
            connection.cursor().execute("CREATE DATABASE xbus OWNER xbus")
        # libpq tries no other server where one that lags refuses the name.
        wait_until(lambda: all(map(self._has_journal, self.all)), "all three have the journal")

    def _has_journal(self, machine: Machine) -> bool:
        try:
            psycopg2.connect(f"postgresql://xbus:{PASSWORD}@{machine.address}/xbus").close()
        except psycopg2.OperationalError:
            return False
        return True

    def _are_healthy(self) -> bool:
        time.sleep(0.2)
        told = [{role for role in ("primary", "replica", "synchronous") if each.is_a(role)} for each in self.all]
        roles = [role for each in told for role in each]
        wanted = not self._is_synchronous or roles.count("synchronous") > 0
        return roles.count("primary") == 1 and roles.count("replica") == 2 and wanted


@contextmanager
def running(folder: Path, is_synchronous: bool) -> Iterator[Machines]:
    """Run three machines, with an empty journal on them."""
    machines = Machines(folder, is_synchronous)
    _take_apart(machines)  # a trial that was killed leaves its network
    try:
        _ip("link", "add", BRIDGE, "type", "bridge")
        _ip("address", "add", f"{NETWORK}.1/24", "dev", BRIDGE)
        _ip("link", "set", BRIDGE, "up")
        for machine in machines.all:
            machine.plug()
        for machine in machines.all:
            machine.start()
        machines.wait_healthy(BEGIN_SECONDS)
        machines.make_journal()
        yield machines
    finally:
        _take_apart(machines)


def _take_apart(machines: Machines) -> None:
    for machine in machines.all:
        machine.unplug()
    with contextlib.suppress(subprocess.CalledProcessError):
        _ip("link", "delete", BRIDGE)
