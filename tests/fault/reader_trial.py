"""A trial of the verbs of readers: programs read, die, fall silent and come late, ranges are split and merged, and the
broker is killed, in an order that a seed makes.

The programs are played by one loop here, so each call and answer is known. ``tests/fault/reading`` has real programs.
"""

import asyncio
import random
import uuid
from dataclasses import dataclass, field
from typing import Any

from tests.support.bus import PASSWORD, add_bus, add_reader
from tests.support.daemon import Daemon
from xbus.broker.journal.audit import RepairDecision
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.readers import people
from xbus.broker.journal.readers.ranges import read_ranges
from xbus.clock import SystemClock
from xbus.emitter import AsyncEmitter
from xbus.errors import Failed, Refused
from xbus.rpc.client import Client
from xbus.rpc.context import new_context

READER = "billing"
TYPE = "orders"
LEASE = 1.0
KEYS = 12
TRIES = 240
"""Calls that a trial makes at its end until all is settled. One waits for half a second, so it is two minutes."""


class TrialFailed(AssertionError):
    """A promise was broken."""


@dataclass(slots=True)
class Books:
    """All that programs were given, and what the bus accepted as settled.

    Args:
        sent: positions by key.
        seen: positions that any program got, by key.
        settled: the highest position that was settled, by key.
        out: the batch that was handed out last and is not settled, by range: where it begins and ends, and its events.
    """

    sent: dict[str, list[int]] = field(default_factory=dict)
    seen: dict[str, set[int]] = field(default_factory=dict)
    settled: dict[str, int] = field(default_factory=dict)
    out: dict[int, tuple[object, ...]] = field(default_factory=dict)

    def got(self, batch: Any) -> None:
        events = tuple((event["partition_key"], event["position"]) for event in batch["events"])
        positions = [position for _, position in events]
        _check(positions == sorted(positions), f"{batch['range']}: positions {positions} are in no order")
        told = (batch["from"], batch["to"], events)
        former = self.out.get(batch["range"])
        _check(former in (None, told), f"range {batch['range']}: {former} came again as {told}")
        self.out[batch["range"]] = told
        for key, position in events:
            _check(position > self.settled.get(key, 0), f"{key}: {position} came after it was settled")
            self.seen.setdefault(key, set()).add(position)
            skipped = [each for each in self.sent[key] if each < position and each not in self.seen[key]]
            _check(not skipped, f"{key}: {position} came before {skipped}")

    def done(self, batch: Any) -> None:
        self.out.pop(batch["range"], None)
        for event in batch["events"]:
            key = event["partition_key"]
            self.settled[key] = max(self.settled.get(key, 0), event["position"])

    @property
    def is_all_settled(self) -> bool:
        return all(self.settled.get(key) == positions[-1] for key, positions in self.sent.items())


def _check(is_kept: bool, broken: str) -> None:
    if not is_kept:
        raise TrialFailed(broken)


@dataclass(slots=True)
class _Program:
    id: str
    batch: Any = None
    silent_until: float = 0.0


class Trial:
    """One trial.

    Args:
        broker: runs, with the reader.
        seed: of the order in which things happen.
        programs: how many read side by side.
    """

    def __init__(self, broker: Daemon, seed: int, programs: int = 3) -> None:
        self._broker = broker
        self._chance = random.Random(seed)
        self._books = Books()
        self._programs = [_Program(str(uuid.UUID(int=self._chance.getrandbits(128)))) for _ in range(programs)]
        self._token = ""
        self.late = 0
        """How many late checkpoints were refused."""
        self.kills = 0

    async def run(self, cycles: int) -> None:
        """Play so many cycles, and settle all in the end.

        Raises:
            TrialFailed: a promise was broken.
        """
        context = new_context()
        client = Client(context, name="trial", clock=SystemClock())
        client.connect(self._broker.back)
        try:
            async with AsyncEmitter(self._broker.front, "emitter_1", PASSWORD, retry_seconds=120) as emitter:
                answer: Any = await client.call("xbus.login", f"{READER}_1", PASSWORD, timeout=60)
                self._token = answer["token"]
                for cycle in range(cycles):
                    await self._send(emitter)
                    for program in self._programs:
                        await self._step(client, program)
                    await self._trouble(at_least="kill" if cycle == cycles // 2 else "none")
                await self._settle_all(client)
        finally:
            client.close()
            context.destroy(linger=0)

    async def _send(self, emitter: AsyncEmitter) -> None:
        for _ in range(self._chance.randint(0, 6)):
            key = f"client {self._chance.randrange(KEYS)}"
            receipt = await emitter.put(TYPE, ["x"], partition_key=key)
            self._books.sent.setdefault(key, []).append(receipt.position)

    async def _step(self, client: Client, program: _Program) -> None:
        now = asyncio.get_running_loop().time()
        if now < program.silent_until:
            return
        if program.silent_until:
            program.silent_until = 0.0
            await self._come_late(client, program)
        match self._chance.choices(["read", "checkpoint", "die", "leave", "silence"], [12, 3, 1, 1, 1])[0]:
            case "read":
                await self._read(client, program)
            case "checkpoint" if program.batch is not None:
                await self._settle(client, program)
            case "die":
                program.id, program.batch = str(uuid.UUID(int=self._chance.getrandbits(128))), None
            case "leave":
                program.batch = None
                await self._call(client, program, "xbus.leave_ranges")
            case "silence":
                program.silent_until = now + LEASE + 1

    async def _read(self, client: Client, program: _Program, wait: float = 0.0) -> None:
        options: dict[str, Any] = {"wait": wait}
        done, program.batch = program.batch, None
        if done is not None:
            options["done"] = [done["range"], done["counter"], done["to"]]
        try:
            answer = await self._call(client, program, "xbus.read_batch", options)
        except Refused as refusal:
            _check(refusal.code == "lease_lost", f"{refusal}")
            return
        if done is not None:
            self._books.done(done)
        if answer["batch"] is not None:
            program.batch = answer["batch"]
            self._books.got(program.batch)

    async def _settle(self, client: Client, program: _Program) -> None:
        batch, program.batch = program.batch, None
        place = (batch["range"], batch["counter"], batch["to"])
        try:
            await self._call(client, program, "xbus.checkpoint", *place)
        except Refused as refusal:
            _check(refusal.code == "lease_lost", f"{refusal}")
        else:
            self._books.done(batch)

    async def _come_late(self, client: Client, program: _Program) -> None:
        """Settle after a silence that is longer than the lease: that must be refused."""
        batch, program.batch = program.batch, None
        if batch is None:
            return
        try:
            await self._call(client, program, "xbus.checkpoint", batch["range"], batch["counter"], batch["to"])
        except Refused as refusal:
            _check(refusal.code == "lease_lost", f"{refusal}")
            self.late += 1
        else:
            # A broker that was started anew meanwhile has given all a lease of their own.
            _check(self.kills > 0, "a late checkpoint was accepted")
            self._books.done(batch)

    async def _call(self, client: Client, program: _Program, verb: str, *arguments: object) -> Any:
        """Call until an answer comes: a broker that was killed may or may not have carried the call out."""
        for _ in range(TRIES):
            try:
                return await client.call(verb, self._token, program.id, *arguments, timeout=20)
            except Failed:
                await asyncio.sleep(0.05)
        raise TrialFailed(f"{verb} got no answer")

    async def _trouble(self, at_least: str) -> None:
        match self._chance.choices([at_least, "split", "merge", "kill"], [20, 3, 3, 1])[0]:
            case "split" | "merge" as which:
                await asyncio.to_thread(self._rearrange, which)
            case "kill":
                self.kills += 1
                await asyncio.to_thread(self._broker.crash)
                await asyncio.to_thread(self._broker.start)

    def _rearrange(self, which: str) -> None:
        decision = RepairDecision("trial", "to try it", SystemClock().now())
        with reading(self._broker.url) as connection:
            ranges = read_ranges(connection)
        if which == "split" and len(ranges) < 8:
            chosen = [self._chance.choice(ranges).id]
            with writing(self._broker.url) as connection:
                people.split(connection, READER, chosen[0], decision)
        elif which == "merge" and len(ranges) > 2:
            first = self._chance.randrange(len(ranges) - 1)
            chosen = [each.id for each in ranges[first : first + 2]]
            with writing(self._broker.url) as connection:
                people.merge(connection, READER, chosen, decision)
        else:
            return
        for range_id in chosen:
            self._books.out.pop(range_id, None)

    async def _settle_all(self, client: Client) -> None:
        for program in self._programs:
            program.batch = None
        last = self._programs[0]
        for _ in range(TRIES):
            await self._read(client, last, wait=0.5)
            if self._books.is_all_settled:
                return
        missing = {key: sent[-1] for key, sent in self._books.sent.items() if self._books.settled.get(key) != sent[-1]}
        raise TrialFailed(f"never settled: {missing}")


def set_up(url: str) -> None:
    """Make the bus of a trial in a database with a schema."""
    add_bus(url, {TYPE: {"store": []}})
    add_reader(url, READER, TYPE, ranges=4, lease=LEASE, batch_items=5)
