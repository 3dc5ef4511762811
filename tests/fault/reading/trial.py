"""Starts programs of a reader, strikes them and the broker at random from a seed, and settles all in the end."""

import asyncio
import multiprocessing
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import sqlalchemy as sa

from tests.fault.reading import program as reading_program
from tests.fault.reading.judge import Handed, ReaderHistory, Ruling, judge, read_handed
from tests.support.bus import PASSWORD, add_bus, add_reader
from tests.support.daemon import Daemon
from tests.torture.history import lines
from xbus import model
from xbus.broker.journal.audit import RepairDecision
from xbus.broker.journal.database.connection import connected_to_states, reading, writing
from xbus.broker.journal.fsck.progress import check_readers
from xbus.broker.journal.log.slices.values import Place, key_hash
from xbus.broker.journal.readers import people
from xbus.broker.journal.readers.ranges import read_ranges
from xbus.clock import SystemClock
from xbus.emitter import AsyncEmitter

READER = "billing"
TYPE = "orders"
LEASE = 1.0
FEWEST, MOST = 2, 5
FEWEST_RANGES, MOST_RANGES = 2, 8
KEYS = 24
BATCH_ITEMS = 5

PAUSE_SECONDS = 0.35
"""Seconds between two strikes at the most."""

DRAIN_SECONDS = 120.0
"""Seconds until all is settled at the end. A busy machine needs some; a range that nobody reads needs for ever."""

STRIKES = {"kill": 8, "stop": 8, "leave": 2, "broker": 1}
"""How often each kind of strike is chosen, in relation."""


class StruckPrograms:
    """The programs of the reader, each with a file of what it was given.

    Args:
        broker: what they read from.
        folder: for their files.
    """

    def __init__(self, broker: Daemon, folder: Path) -> None:
        self._broker = broker
        self._folder = folder
        self._started = 0
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([reading_program.__name__])
        self._running: dict[int, ForkServerProcess] = {}
        self.stopped: set[int] = set()
        """The numbers of those that are stopped now."""

    @property
    def awake(self) -> list[int]:
        """The numbers of those that run, and are not stopped."""
        ended = {number: each.exitcode for number, each in self._running.items() if each.exitcode is not None}
        assert not ended, f"programs ended by themselves: {ended}"
        return sorted(self._running.keys() - self.stopped)

    @property
    def count(self) -> int:
        return len(self._running)

    def start(self) -> None:
        """Start one more."""
        self._started += 1
        arguments = (self._broker.back, f"{READER}_1", str(self._file(self._started)))
        process = self._context.Process(target=reading_program.main, args=arguments, daemon=True)
        process.start()
        self._running[self._started] = process

    def end(self, number: int, how: signal.Signals) -> None:
        """End one for good: by SIGKILL, or in order by SIGTERM."""
        process = self._running.pop(number)
        self.signal(process, how)
        process.join(60)
        assert process.exitcode is not None, f"program {number} did not end"

    async def stop(self, number: int, seconds: float) -> None:
        """Stop one for a while."""
        process = self._running[number]
        self.stopped.add(number)
        self.signal(process, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.signal(process, signal.SIGCONT)
            self.stopped.discard(number)

    def end_all(self) -> None:
        """End all that still run."""
        for process in self._running.values():
            process.kill()
            process.join()
        self._running.clear()

    def handed(self) -> Iterator[Handed]:
        """What each was given, over all that ever ran."""
        for number in range(1, self._started + 1):
            yield from read_handed(number, lines(self._file(number)))

    def _file(self, number: int) -> Path:
        return self._folder / f"program_{number}.jsonl"

    @staticmethod
    def signal(process: ForkServerProcess, number: signal.Signals) -> None:
        assert process.pid is not None
        os.kill(process.pid, number)


class ReaderTrial:
    """One trial.

    Args:
        broker: runs, with the reader.
        folder: for the files of the programs.
        seed: of what is struck when.

    Attributes:
        struck: how often, by kind.
        sent: the positions of each key.
    """

    def __init__(self, broker: Daemon, folder: Path, seed: int) -> None:
        self._broker = broker
        self._chance, self._chance_to_send = random.Random(seed), random.Random(seed)
        self._programs = StruckPrograms(broker, folder)
        self._is_over = False
        self.struck: Counter[str] = Counter()
        self.sent: dict[str, list[int]] = {}

    async def run(self, strikes: int) -> Ruling:
        """Strike so often, let all be read, and judge.

        Raises:
            AssertionError: a program ended by itself, or not all was read in time.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._send())
                for _ in range(3):
                    self._programs.start()
                for _ in range(strikes):
                    await asyncio.sleep(self._chance.uniform(0, PAUSE_SECONDS))
                    await self._strike(tasks)
                self._is_over = True
            while self._programs.count < FEWEST:
                self._programs.start()
            async with asyncio.timeout(DRAIN_SECONDS):
                while not await asyncio.to_thread(self._is_all_settled):
                    await asyncio.sleep(0.2)
            for number in self._programs.awake:
                await asyncio.to_thread(self._programs.end, number, signal.SIGTERM)
        finally:
            self._programs.end_all()
        handed = [*self._programs.handed()]
        ruling = judge(ReaderHistory(self.sent, handed, self._settled()))
        with connected_to_states(self._broker.url) as connection:
            ruling.violations += [fault.cause for fault in check_readers(connection, lambda rows: None)]
        return ruling

    async def _send(self) -> None:
        """Send events with keys, more than one at a time now and then, until the strikes are over."""
        async with AsyncEmitter(self._broker.front, "emitter_1", PASSWORD, retry_seconds=120) as emitter:
            while not self._is_over:
                key = f"client {self._chance_to_send.randrange(KEYS)}"
                receipt = await emitter.put(TYPE, ["x"], partition_key=key)
                self.sent.setdefault(key, []).append(receipt.position)
                await asyncio.sleep(self._chance_to_send.choice((0, 0, 0.02, 0.1)))

    async def _strike(self, tasks: asyncio.TaskGroup) -> None:
        awake = self._programs.awake
        kind = self._chance.choices([*STRIKES], [*STRIKES.values()])[0]
        if kind == "broker":
            await asyncio.to_thread(self._broker.crash)
            await asyncio.to_thread(self._broker.start)
        elif awake:
            number = self._chance.choice(awake)
            if kind == "stop":
                # Nearly all are longer than the lease; a shorter one must not matter.
                tasks.create_task(self._programs.stop(number, LEASE * self._chance.choice((0.5, 1.6, 2.0, 2.5))))
            else:
                how = signal.SIGKILL if kind == "kill" else signal.SIGTERM
                await asyncio.to_thread(self._programs.end, number, how)
        else:
            kind = "start"
        self.struck[kind] += 1
        while self._programs.count < FEWEST or (self._programs.count < MOST and self._chance.random() < 0.5):
            self._programs.start()
        if self._chance.random() < 0.3:
            await asyncio.to_thread(self._rearrange)

    def _rearrange(self) -> None:
        decision = RepairDecision("trial", "to try it", SystemClock().now())
        with reading(self._broker.url) as connection:
            ranges = read_ranges(connection)
        kind = "split" if len(ranges) <= FEWEST_RANGES else self._chance.choice(("split", "merge"))
        kind = "merge" if len(ranges) >= MOST_RANGES else kind
        with writing(self._broker.url) as connection:
            if kind == "split":
                people.split(connection, READER, self._chance.choice(ranges).id, decision)
            else:
                first = self._chance.randrange(len(ranges) - 1)
                people.merge(connection, READER, [each.id for each in ranges[first : first + 2]], decision)
        self.struck[kind] += 1

    def _is_all_settled(self) -> bool:
        with reading(self._broker.url) as connection:
            stretches = [stretch for each in read_ranges(connection) for stretch in each.stretches]
        return not any(
            stretch.position <= Place(positions[-1])
            for key, positions in self.sent.items()
            for stretch in stretches
            if key_hash(key) in stretch
        )

    def _settled(self) -> Mapping[int, int]:
        """How often the journal says that each position was settled."""
        row = model.reader_move.c
        with reading(self._broker.url) as connection:
            moves = connection.execute(sa.select(model.reader_move).where(row.kind == "checkpoint")).all()
        spans = [
            (
                int(each.first, 16),
                int(each.last, 16),
                Place(each.from_position, each.from_event, each.from_item),
                Place(each.to_position, each.to_event, each.to_item),
            )
            for each in moves
        ]
        found: Counter[int] = Counter()
        for key, positions in self.sent.items():
            own = [(begin, end) for first, last, begin, end in spans if first <= key_hash(key) <= last]
            found.update(position for position in positions for begin, end in own if begin <= Place(position) < end)
        return found


def set_up(url: str) -> None:
    """Make the bus of a trial in a database with a schema."""
    add_bus(url, {TYPE: {"store": []}})
    add_reader(url, READER, TYPE, ranges=4, lease=LEASE, batch_items=BATCH_ITEMS)
