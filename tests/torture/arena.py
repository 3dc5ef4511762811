"""All programs of a run and the connections between them; what is started here is ended here."""

import asyncio
import json
import signal
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import click

from tests.support.daemon import write_config
from tests.support.ports import free_port
from tests.support.processes import module
from tests.torture import bus
from tests.torture.brokers import LOST_LEASE, Brokers
from tests.torture.database import Database
from tests.torture.emitter import LISTENS, is_old
from tests.torture.history import LOST, Log, Routes, lines
from tests.torture.program import Broker, Program
from tests.torture.proxy import Proxy

RECIPIENT_SECONDS = 20.0
EMITTER_SECONDS = 330.0
BROKER_SECONDS = 30.0
"""How long each may take to end when it is asked to; an emitter first gets its envelope off its hands."""

ENDED_WELL = frozenset({0, -signal.SIGTERM})
"""The second is the code of a recipient that was asked before it could listen."""

LOSES_LEASE_SECONDS = 20.0
"""For how long after a strike a broker may notice that another one leads in its place."""

WATCH_SECONDS = 0.2
BEGIN_SECONDS = 60.0
"""How long an emitter may take to begin."""

HEARTBEAT_SECONDS = 0.5
SLOW_SECONDS, QUICK_SECONDS = 0.06, 0.005
"""How long a consumer takes for an envelope at the most."""


class Arena:
    """A broker or two, recipients and emitters around them, and a proxy in each connection.

    Args:
        folder: for all files.
        database: of the journal.
        seed: for what the emitters send.
        log: of what strikes.

    Attributes:
        routes: the ways of the items.
        chained: the roles that get what nodes make of them.
        problems: what went wrong without having been struck.
        brokers: one, or two that stand by for each other.
        config_path: a configuration with the addresses of all brokers.
    """

    def __init__(self, folder: Path, database: Database, seed: int, log: Log) -> None:
        settled = bus.read_bus()
        self.folder = folder
        self.routes: Routes = bus.routes(settled)
        self.chained = bus.chained(settled)
        self.brokers = Brokers(folder, database, bus.OPTIONS)
        self.problems = self.brokers.problems
        self.one_at_a_time: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """By target, which is the same for all brokers: held by a strike, and by the start of a program that ended by
        itself. Two starts at once would leave a program behind that nobody knows, at the ports of the other one."""
        self._log = log
        self._struck_until = 0.0
        self._links: dict[str, list[Proxy]] = {}
        self._to_brokers: defaultdict[str, dict[str, Proxy]] = defaultdict(dict)
        """By program its proxies that lead to brokers, by the name of the broker."""
        sockets = {f"{part}socket": self.brokers.addresses(part) for part in ("front", "back")}
        self.config_path = write_config(folder / "config.ini", database.own_url, {"zmq": sockets})
        workers, consumers = bus.roles(settled, "worker"), bus.roles(settled, "consumer")
        self.workers = {login: self._worker(login, service) for login, service in workers.items()}
        self.consumers = {
            name: self._consumer(login, name) for login in consumers for name in bus.programs(settled, login)
        }
        self.emitters = {login: self._emitter(login, seed) for login in settled.emitters}

    def reign_at(self, name: str, at: float) -> int | None:
        """In which reign a program registered; None where a broker comes to it, which a registration can't tell.

        A broker that starts connects anew to those that listen, whether they have registered at it or not.
        """
        if bus.role_of(name) in bus.LISTENING:
            return None
        came = {
            broker: max((each for each in proxy.came if each <= at), default=0.0)
            for broker, proxy in self._to_brokers[name].items()
        }
        return self.brokers.reign_at(max(came, key=came.__getitem__), at)

    def strikes_brokers(self) -> None:
        """Note that one may lose its lease by what strikes now, or has struck."""
        self._struck_until = time.monotonic() + LOSES_LEASE_SECONDS

    def program(self, target: str) -> Program:
        """The program that is struck with a target: of the brokers the one that leads."""
        return self.brokers.leader if target == "broker" else self._clients[target]

    @property
    def _clients(self) -> Mapping[str, Program]:
        return {**self.workers, **self.consumers, **self.emitters}

    @property
    def _programs(self) -> list[Program]:
        return [*self.brokers, *self._clients.values()]

    def links(self, name: str) -> Iterable[Proxy]:
        """The connections between a program and the broker."""
        return self._links[name]

    def log_of(self, login: str) -> Path:
        """Where an emitter or a consumer writes down what it does."""
        return self.folder / f"{login}.jsonl"

    # -- from the beginning to the end ---------------------------------------------------------------------------------

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Arena"]:
        """All programs run within the block; behind it nothing is left of them."""
        try:
            for proxy in self._proxies():
                await proxy.start()
            await self.brokers.start()
            for program in self._clients.values():
                await program.start()
            async with asyncio.TaskGroup() as tasks:
                watch = tasks.create_task(self._watch())
                try:
                    await self._until(self._has_begun)
                    yield self
                finally:
                    watch.cancel()
        finally:
            for program in self._programs:
                program.kill()
            for proxy in self._proxies():
                await proxy.close()

    async def end_emitters(self) -> None:
        """Let the emitters finish what they are at, and end."""
        # One that was started just now and never listened would leave what is in its outbox.
        await self._until(self._listens)
        await self._end(self.emitters.values(), EMITTER_SECONDS)

    async def end_others(self) -> None:
        """End the recipients, then the brokers, as an operator would."""
        await self._end((*self.workers.values(), *self.consumers.values()), RECIPIENT_SECONDS)
        for broker in self.brokers:
            broker.sample()
        await self._end(self.brokers, BROKER_SECONDS)

    async def end(self, program: Program) -> None:
        """End a broker or a recipient, as an operator would."""
        await self._end((program,), BROKER_SECONDS if isinstance(program, Broker) else RECIPIENT_SECONDS)

    async def _end(self, programs: Iterable[Program], seconds: float) -> None:
        ending = list(programs)
        codes = await asyncio.gather(*(program.end(seconds) for program in ending))
        self.problems += [
            f"{program.name} did not end within {seconds:g} s" if code is None else f"{program.name} ended with {code}"
            for program, code in zip(ending, codes, strict=True)
            if code not in ENDED_WELL | program.may_end_with
        ]

    async def _until(self, condition: Callable[[str], bool]) -> None:
        """Wait until something is true of every emitter."""
        async with asyncio.timeout(BEGIN_SECONDS):
            while not all(map(condition, self.emitters)):
                await asyncio.sleep(WATCH_SECONDS)

    def _has_begun(self, login: str) -> bool:
        return any(lines(self.log_of(login)))

    def _listens(self, login: str) -> bool:
        try:
            return int(self.log_of(login).with_suffix(LISTENS).read_text()) == self.emitters[login].pid
        except (OSError, ValueError):
            return False  # not there, or half written

    async def _watch(self) -> None:
        """Notice who ends by itself, and start it again."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            for broker in self.brokers:
                broker.sample()
            self._follow_leader()
            for program in self._programs:
                one_at_a_time = self.one_at_a_time["broker" if isinstance(program, Broker) else program.name]
                if program.runs or not program.should_run or one_at_a_time.locked():
                    continue
                async with one_at_a_time:
                    code = await program.ended(1)
                    is_replaced = isinstance(program, Broker) and self._is_replaced(program, code)
                    if code not in program.may_end_with and not is_replaced:
                        self.problems.append(f"{program.name} ended by itself with {code}")
                        click.echo(self.problems[-1], err=True)
                    await program.start()

    def _is_replaced(self, broker: Broker, code: int | None) -> bool:
        """Whether a broker ended as its lease was over, because of a strike: the next one may redeliver."""
        now, reign = time.monotonic(), self.brokers.reigns[-1]
        if code not in LOST_LEASE or not broker.stands_by or now > self._struck_until:
            return False
        since = now if reign.broker == broker.name else reign.since
        self._log.write(kind=LOST, target="broker", since=since - WATCH_SECONDS, until=now)
        return True

    def _follow_leader(self) -> None:
        """Lead those to the leader that know one address alone."""
        leader = self.brokers.leader
        for login in self.emitters:
            if is_old(login):
                (proxy,) = self._to_brokers[login].values()
                proxy.lead_to(leader.ports["front"])

    def _proxies(self) -> list[Proxy]:
        return [proxy for links in self._links.values() for proxy in links]

    # -- the programs --------------------------------------------------------------------------------------------------

    def _link(self, name: str, target: int) -> int:
        """A proxy in front of a port; where it listens."""
        proxy = Proxy(target)
        self._links.setdefault(name, []).append(proxy)
        return proxy.port

    def _link_to_brokers(self, name: str, part: str, brokers: Iterable[Broker]) -> str:
        """The addresses of brokers for a program, each behind a proxy."""
        addresses = []
        for broker in brokers:
            addresses.append(f"tcp://127.0.0.1:{self._link(name, broker.ports[part])}")
            self._to_brokers[name][broker.name] = self._links[name][-1]
        return ",".join(addresses)

    def _emitter(self, login: str, seed: int) -> Program:
        # An old one knows one address, which leads to whoever leads.
        front = self._link_to_brokers(login, "front", self.brokers.all[:1] if is_old(login) else self.brokers)
        options = ["--front", front, "--login", login, "--log", str(self.log_of(login)), "--seed", str(seed)]
        return Program(login, [*module("tests.torture.emitter"), *options], self.folder)

    def _worker(self, login: str, service: str) -> Program:
        options = [*self._recipient(login, login), "--service", service]
        return Program(login, [*module("tests.torture.worker"), *options], self.folder)

    def _consumer(self, login: str, name: str) -> Program:
        paths = bus.arrivals(bus.read_bus(), login)
        pause = SLOW_SECONDS if login == bus.SLOW else QUICK_SECONDS
        options = ["--log", str(self.log_of(name)), "--paths", json.dumps(paths), "--pause", str(pause)]
        options += ["--several"] if login in bus.SEVERAL else []
        return Program(name, [*module("tests.torture.consumer"), *self._recipient(login, name), *options], self.folder)

    def _recipient(self, login: str, name: str) -> list[str]:
        options: dict[str, object] = {"heartbeat_seconds": HEARTBEAT_SECONDS}
        if login in bus.LISTENING:
            own = free_port()
            options["bind"] = f"tcp://127.0.0.1:{own}"
            options["advertise"] = f"tcp://127.0.0.1:{self._link(name, own)}"
        back = self._link_to_brokers(name, "back", self.brokers)
        return ["--back", back, "--login", login, "--options", json.dumps(options)]
