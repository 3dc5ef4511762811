"""Strikes the broker that leads, measures how long the other one takes, and looks whether all came once."""

import asyncio
import contextlib
import json
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from tests.fault.leading.judge import MEASURES, StandbyBooks, Taken
from tests.fault.leading.program import LANES
from tests.support.bus import add_bus, apply_text
from tests.support.processes import module
from tests.support.waiting import eventually
from tests.torture.brokers import Brokers
from tests.torture.database import Database
from tests.torture.history import Log
from tests.torture.program import Program
from xbus import model
from xbus.broker.journal.database.engine import create_engine, journal_errors
from xbus.broker.journal.leadership import read_brokers
from xbus.errors import JournalUnavailable

ORDERED = """
[[role]]
login = "store_1"
service = "store"
ordered = true
"""

MOST_TOLD = 20
"""The broken promises of a strike that are written down."""

CLOCKS_SECONDS = 3600
"""Seconds by which the clock of one broker is ahead, and that of the other one is behind; both must not matter."""

CALM_SECONDS = 1.0
"""Seconds between two strikes at the most, while both brokers are there."""

FLOOD_SECONDS = 0.3
"""Seconds before a strike from which on all calls are in flight."""

DELIVER_SECONDS = 90.0
"""Seconds until a broker that leads delivers, and until all that was acknowledged has come; then it is lost."""


class Said:
    """The lines of JSON of a program that came since it was asked last.

    Args:
        program: whose output has other lines, too.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._read = 0

    def more(self) -> Iterator[dict[str, Any]]:
        """Give them."""
        with self._program.output.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._read += len(line)
                if line.startswith(b"{"):
                    yield json.loads(line)


class StandbyTrial:
    """One trial.

    Args:
        folder: for all files.
        database: a PostgreSQL.
        log: of the strikes; a line for each that was judged.
        seed: of the moments.
    """

    def __init__(self, folder: Path, database: Database, log: Log, seed: str) -> None:
        add_bus(database.own_url, {"orders": {"store": []}})
        apply_text(database.own_url, ORDERED)
        self._brokers = Brokers(folder, database, {}, CLOCKS_SECONDS)
        self._log = log
        self._chance = random.Random(seed)
        self._engine = create_engine(database.own_url)
        self._emitter, self._consumer = (
            Program(kind, [*module("tests.fault.leading.program"), kind, self._brokers.addresses(part)], folder)
            for kind, part in (("emit", "front"), ("take", "back"))
        )
        self._receipts, self._commits = Said(self._emitter), Said(self._consumer)
        self._books = StandbyBooks(LANES)
        self._acknowledged: dict[int, int] = {}
        self._taken: list[Taken] = []
        self._numbers: set[int] = set()
        self._taken_at = 0.0
        """When the last envelope was taken, also if it was not new."""

    async def run(self, kinds: list[str]) -> None:
        """Strike the leader in these ways, one after the other; ends with the first that breaks a promise."""
        try:
            await self._brokers.start()
            for program in (self._emitter, self._consumer):
                await program.start()
            await eventually(lambda: self._read() and self._taken, "the first envelopes come")
            for kind in kinds:
                await asyncio.sleep(self._chance.uniform(0, CALM_SECONDS))
                measured, violations = {}, []
                try:
                    measured = dict(zip(MEASURES, await self._strike(kind), strict=True))
                    violations = await self._judge()
                except (AssertionError, TimeoutError) as error:
                    violations = [f"{kind}: {error}", *self._ended()]
                self._log.write(kind=kind, **measured, violations=violations[:MOST_TOLD])
                if violations:
                    return
        finally:
            for each in (*self._brokers, self._emitter, self._consumer):
                each.kill()
            self._engine.dispose()

    async def _strike(self, kind: str) -> tuple[float, float]:
        """Seconds until another broker led, and then until it delivered."""
        self._emitter.signal(signal.SIGUSR1)
        await asyncio.sleep(FLOOD_SECONDS)
        since = time.monotonic()
        async with self._brokers.struck(kind) as leader:
            # Those that are in flight by now wait for the next broker.
            self._emitter.signal(signal.SIGUSR1)
            await eventually(lambda: self._leading() not in (None, leader.name), "another broker leads")
            led = time.monotonic()
            await eventually(lambda: self._read() > led, "it delivers", DELIVER_SECONDS)
            delivered = self._taken_at
        return round(led - since, 3), round(delivered - led, 3)

    async def _judge(self) -> list[str]:
        """Wait until all has come that was acknowledged so far, and look at it."""
        self._read()
        acknowledged, self._acknowledged = self._acknowledged, {}
        with contextlib.suppress(AssertionError):  # what is lost is told by its number
            await eventually(
                lambda: self._read() and acknowledged.keys() <= self._numbers, "all comes", DELIVER_SECONDS
            )
        taken, self._taken = self._taken, []
        problems, self._brokers.problems[:] = [*self._brokers.problems], []
        return [*self._books.look(acknowledged, taken, self._journal()), *self._ended(), *problems]

    def _ended(self) -> list[str]:
        return [f"{each.name} ended by itself" for each in (self._emitter, self._consumer) if not each.runs]

    def _read(self) -> float:
        """Read what the programs have said since, and give the moment at which an envelope was taken last."""
        self._acknowledged |= {line["number"]: line["position"] for line in self._receipts.more()}
        for line in self._commits.more():
            self._taken_at = line["at"]
            if line["new"]:
                self._numbers.add(line["number"])
                self._taken.append(Taken(line["id"], line["number"], line["position"]))
        return self._taken_at

    def _leading(self) -> str | None:
        try:
            with journal_errors(), self._engine.connect() as connection:
                return next((each.place.name for each in read_brokers(connection) if each.leads), None)
        except JournalUnavailable:
            return None

    def _journal(self) -> list[tuple[int, str]]:
        """The envelopes that came since the last look."""
        row = model.envelope.c
        statement = sa.select(row.position, row.id).where(row.position > len(self._books.positions))
        with self._engine.connect() as connection:
            return [(position, str(id)) for position, id in connection.execute(statement.order_by(row.position))]
