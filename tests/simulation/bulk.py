"""A bulk worker in virtual time: the SDK's real jobs, which read and write the database past the broker."""

import asyncio
import hashlib
import random
import sqlite3
from collections.abc import Callable
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from tests.simulation.recipients import Mood, Stamp
from tests.simulation.timing import WAY_SECONDS
from xbus import model
from xbus.broker.answers import on_wire
from xbus.broker.journal.bulk.outputs import read_output
from xbus.broker.journal.log.reading import read_segments
from xbus.errors import ConnectionLost, Failed, JournalUnavailable, TimedOut, XbusError
from xbus.recipient.bulk import BulkWorker, Handover, Made
from xbus.recipient.refusal import Refusal
from xbus.rpc.codec import Value, pack_items, unpack_items
from xbus.testing.broker import VirtualBroker
from xbus.testing.journal import Database

JOB_SECONDS = (0.0, 0.05, 1.0, 15.0)
"""How long half of a job takes: longer than a lease, too."""

MOST_BYTES = 1_000_000


class BulkStamp(Stamp, BulkWorker):
    """Marks the items of a large event all at once; what it refuses is what ``Stamp`` refuses."""

    min_bulk_items = 2

    def __init__(self, choices: random.Random, mood: Mood, database: Database) -> None:
        super().__init__(choices, mood)
        self._database = database

    async def make_output(self, handover: Handover, progress: Callable[[float], None]) -> Made:
        await asyncio.sleep(self.choices.choice(JOB_SECONDS))
        name = str(handover.envelope_id)
        if name in self.mood.refuses:
            raise Refusal("never")
        if self.mood.failing and self.choices.random() < self.mood.failing:
            raise Failed("not now", code="not_now")
        items = self._when_there(_read_output if handover.is_output else _read_event, handover.source)
        bad = [index for envelope_id, index in sorted(self.mood.bad_items) if envelope_id == name]
        if bad:
            raise Refusal("bad", bad)
        progress(0.5)
        await asyncio.sleep(self.choices.choice(JOB_SECONDS))
        data = pack_items([item + b"*" for item in items])
        digest = hashlib.sha256(data).digest()
        if not self._when_there(_write_output, handover.attempt_id, len(items), data, digest):
            raise Failed("the attempt is over", code="attempt_not_building")
        return Made(len(items), len(data), hashlib.sha256(digest).digest())

    def _when_there(self, statement: Callable[..., Any], *args: Any) -> Any:
        try:
            return self._database.read(statement, *args)
        except (sqlite3.OperationalError, sa.exc.OperationalError) as error:
            raise JournalUnavailable("the database is away") from error


def _read_event(connection: sa.Connection, event_id: UUID) -> list[bytes]:
    items: list[bytes] = []
    while segments := read_segments(connection, event_id, len(items), MOST_BYTES):
        items += [item for segment in segments for item in unpack_items(segment.data, segment.items)]
    return items


def _read_output(connection: sa.Connection, attempt_id: UUID) -> list[bytes]:
    segments = read_output(connection, attempt_id, max_bytes=MOST_BYTES)
    return [item for segment in segments for item in unpack_items(segment.data, segment.items)]


def _write_output(connection: sa.Connection, attempt_id: UUID, items: int, data: bytes, digest: bytes) -> bool:
    """As ``open_part`` does in one transaction; false where the attempt is over."""
    state = sa.select(model.bulk_attempt.c.state).where(model.bulk_attempt.c.id == attempt_id)
    if connection.execute(state).scalar_one_or_none() != "building":
        return False
    connection.execute(
        sa.insert(model.bulk_segment).values(
            attempt_id=attempt_id, part=0, number=0, items=items, data=data, hash=digest, first_index=0
        )
    )
    return True


class ReportLine:
    """Brings what jobs tell to the broker that runs then; calls and answers may get lost.

    Args:
        role_id: whose jobs they are.
        broker: the one that runs now, or None.
        choices: gives the times that things take.
        is_stopped: whether the worker does nothing at all.
    """

    def __init__(
        self,
        role_id: int,
        broker: Callable[[], VirtualBroker | None],
        choices: random.Random,
        is_stopped: Callable[[], bool],
    ) -> None:
        self._role_id = role_id
        self._broker = broker
        self._choices = choices
        self._is_stopped = is_stopped

    async def call(self, verb: str, attempt_id: str, told: Any) -> Value:
        """As ``Registration.call``."""
        await asyncio.sleep(self._choices.choice(WAY_SECONDS))
        while self._is_stopped():
            await asyncio.sleep(1)
        broker = self._broker()
        if broker is None or not broker.serves:
            raise ConnectionLost("nobody is there")
        answer = await self._carried_out(broker, verb, attempt_id, told)
        await asyncio.sleep(self._choices.choice(WAY_SECONDS))
        if self._choices.random() < 0.1:
            raise TimedOut("the answer was lost")
        return answer

    async def _carried_out(self, broker: VirtualBroker, verb: str, attempt_id: str, told: Any) -> Value:
        reports = broker.back.reports
        if verb == "xbus.renew_output":
            return {"wanted": reports.renew(self._role_id, attempt_id, told)}
        report = reports.ready if verb == "xbus.output_ready" else reports.failed
        work = asyncio.ensure_future(report(self._role_id, attempt_id, told))
        # The worker may be killed while it waits here; then nobody asks for the answer.
        work.add_done_callback(lambda done: done.cancelled() or done.exception())
        death = asyncio.ensure_future(broker.is_dead.wait())
        await asyncio.wait([work, death], return_when=asyncio.FIRST_COMPLETED)
        death.cancel()
        if not work.done():
            work.cancel()
            raise ConnectionLost("the broker died")
        try:
            return {"accepted": work.result()}
        except XbusError as error:
            raise on_wire(error) from error
