"""All programs of a run and the connections between them; what is started here is ended here."""

import asyncio
import json
import signal
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import click

from tests.support.daemon import write_config
from tests.support.ports import free_port
from tests.support.processes import module, script
from tests.torture import bus
from tests.torture.emitter import LISTENS
from tests.torture.history import Routes, lines
from tests.torture.program import Broker, Program
from tests.torture.proxy import Proxy

RECIPIENT_SECONDS = 20.0
EMITTER_SECONDS = 330.0
BROKER_SECONDS = 30.0
"""How long each may take to end when it is asked to; an emitter first gets its envelope off its hands."""

ENDED_WELL = frozenset({0, -signal.SIGTERM})
"""The second is the code of a recipient that was asked before it could listen."""

WATCH_SECONDS = 0.2
BEGIN_SECONDS = 60.0
"""How long an emitter may take to begin."""

HEARTBEAT_SECONDS = 0.5
SLOW_SECONDS, QUICK_SECONDS = 0.06, 0.005
"""How long a consumer takes for an envelope at the most."""


class Arena:
    """A broker, recipients and emitters around it, and a proxy in each connection.

    Args:
        folder: for all files.
        url: the database, as the broker is to reach it.
        seed: for what the emitters send.

    Attributes:
        routes: the ways of the items.
        chained: the roles that get what nodes make of them.
        problems: what went wrong without having been struck.
        config_path: the configuration of the broker.
    """

    def __init__(self, folder: Path, url: str, seed: int) -> None:
        settled = bus.read_bus()
        self.folder = folder
        self.routes: Routes = bus.routes(settled)
        self.chained = bus.chained(settled)
        self.problems: list[str] = []
        self.one_at_a_time: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """By target: held by a strike, and by the start of a program that ended by itself. Two starts at once would
        leave a program behind that nobody knows, at the ports of the other one."""
        self._front, self._back = self._ports = free_port(), free_port()
        self._second_ports = free_port(), free_port()
        self._links: dict[str, list[Proxy]] = {}
        self._to_broker: list[tuple[str, Proxy, bool]] = []
        """All proxies that lead to the broker, each with the program that has it, and whether to its front."""
        self._led_at: defaultdict[str, list[float]] = defaultdict(list)
        self.config_path = write_config(folder / "config.ini", url, {**bus.OPTIONS, "zmq": _sockets(*self._ports)})
        self.broker = Broker([script("start_xbusbroker"), "-c", str(self.config_path)], folder)
        second = write_config(folder / "second.ini", url, {**bus.OPTIONS, "zmq": _sockets(*self._second_ports)})
        self.second_command = [script("start_xbusbroker"), "-c", str(second)]
        self.second_broker = Broker(self.second_command, folder, "second_broker")
        workers, consumers = bus.roles(settled, "worker"), bus.roles(settled, "consumer")
        self.workers = {login: self._worker(login, service) for login, service in workers.items()}
        self.consumers = {
            name: self._consumer(login, name) for login in consumers for name in bus.programs(settled, login)
        }
        self.emitters = {login: self._emitter(login, seed) for login in settled.emitters}

    def lead_to_broker(self, names: Collection[str], *, is_second: bool) -> None:
        """Lead the connections of programs to one of two brokers; those that are open are cut."""
        front, back = self._second_ports if is_second else self._ports
        for name, proxy, is_front in self._to_broker:
            if name in names:
                proxy.lead_to(front if is_front else back)
                self._led_at[name].append(time.monotonic())

    def led_at(self, name: str) -> Sequence[float] | None:
        """When a program was led to another broker; None where a broker comes to it, which a registration can't tell.

        A broker that starts connects anew to those that listen, whether they have registered at it or not.
        """
        return None if bus.role_of(name) in bus.LISTENING else self._led_at[name]

    @property
    def programs(self) -> Mapping[str, Program]:
        """All of them, by name."""
        return {"broker": self.broker, **self.workers, **self.consumers, **self.emitters}

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
            await self.broker.start()
            for program in (*self.workers.values(), *self.consumers.values(), *self.emitters.values()):
                await program.start()
            async with asyncio.TaskGroup() as tasks:
                watch = tasks.create_task(self._watch())
                try:
                    await self._until(self._has_begun)
                    yield self
                finally:
                    watch.cancel()
        finally:
            for program in (*self.programs.values(), self.second_broker):
                program.kill()
            for proxy in self._proxies():
                await proxy.close()

    async def end_emitters(self) -> None:
        """Let the emitters finish what they are at, and end."""
        # One that was started just now and never listened would leave what is in its outbox.
        await self._until(self._listens)
        await self._end(self.emitters.values(), EMITTER_SECONDS)

    async def end_others(self) -> None:
        """End the recipients, then the broker, as an operator would."""
        await self._end((*self.workers.values(), *self.consumers.values()), RECIPIENT_SECONDS)
        self.broker.sample()
        await self._end((self.broker,), BROKER_SECONDS)

    async def end(self, name: str) -> None:
        """End the broker or a recipient, as an operator would."""
        await self._end((self.programs[name],), BROKER_SECONDS if name == self.broker.name else RECIPIENT_SECONDS)

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
            self.broker.sample()
            for name, program in self.programs.items():
                if program.runs or not program.should_run or self.one_at_a_time[name].locked():
                    continue
                async with self.one_at_a_time[name]:
                    code = await program.ended(1)
                    if code not in program.may_end_with:
                        self.problems.append(f"{program.name} ended by itself with {code}")
                        click.echo(self.problems[-1], err=True)
                    await program.start()

    def _proxies(self) -> list[Proxy]:
        return [proxy for links in self._links.values() for proxy in links]

    # -- the programs --------------------------------------------------------------------------------------------------

    def _link(self, name: str, target: int) -> int:
        """A proxy in front of a port; where it listens."""
        proxy = Proxy(target)
        self._links.setdefault(name, []).append(proxy)
        return proxy.port

    def _link_to_broker(self, name: str, *, is_front: bool) -> int:
        port = self._link(name, self._front if is_front else self._back)
        self._to_broker.append((name, self._links[name][-1], is_front))
        return port

    def _emitter(self, login: str, seed: int) -> Program:
        front = f"tcp://127.0.0.1:{self._link_to_broker(login, is_front=True)}"
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
        back = f"tcp://127.0.0.1:{self._link_to_broker(name, is_front=False)}"
        return ["--back", back, "--login", login, "--options", json.dumps(options)]


def _sockets(front: int, back: int) -> dict[str, object]:
    return {"frontsocket": f"tcp://127.0.0.1:{front}", "backsocket": f"tcp://127.0.0.1:{back}"}
