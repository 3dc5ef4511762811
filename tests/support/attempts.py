"""Attempts of bulk workers for tests: begun, written, ended and looked at."""

import asyncio
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from tests.support.journal import NOW, Scribe
from xbus import model
from xbus.broker.journal.bulk.outputs import BEGINNING, Totals, read_output, read_totals
from xbus.broker.journal.bulk.part_writer import Adoption, PartSummary, open_part
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.repeats import read_event_id
from xbus.broker.journal.writes import SealReceipt
from xbus.broker.journal.writes.bulk import BeginAttempt, EndAttempt
from xbus.rpc.codec import pack_items, unpack_items
from xbus.states import AttemptState


@dataclass(frozen=True, slots=True)
class StoredAttempt:
    """A row of ``model.bulk_attempt``."""

    attempt_id: uuid.UUID
    event_id: uuid.UUID
    node_id: int
    role_id: int
    state: AttemptState
    started_at: datetime
    lease_until: datetime
    progress: float
    ended_at: datetime | None
    code: str | None
    cause: str | None
    items: int | None
    data_bytes: int | None
    hash: bytes | None


def read_attempt(connection: sa.Connection, attempt_id: uuid.UUID) -> StoredAttempt | None:
    """Read one attempt; None if no attempt has this id."""
    row = connection.execute(_ATTEMPTS.where(model.bulk_attempt.c.id == attempt_id)).one_or_none()
    return None if row is None else _attempt(row)


def read_attempts(
    connection: sa.Connection,
    *,
    event_ids: Collection[uuid.UUID] | None = None,
    states: Collection[AttemptState] | None = None,
) -> list[StoredAttempt]:
    """Read attempts, the oldest first.

    Args:
        event_ids: only those for these events.
        states: only those in these states.
    """
    statement = _ATTEMPTS.order_by(model.bulk_attempt.c.started_at, model.bulk_attempt.c.id)
    if event_ids is not None:
        statement = statement.where(model.bulk_attempt.c.event_id.in_(event_ids))
    if states is not None:
        statement = statement.where(model.bulk_attempt.c.state.in_([state.value for state in states]))
    return [_attempt(row) for row in connection.execute(statement)]


_ATTEMPTS = sa.select(model.bulk_attempt)


def _attempt(row: Any) -> StoredAttempt:
    found = row._mapping
    return StoredAttempt(
        found["id"],
        found["event_id"],
        found["node_id"],
        found["role_id"],
        AttemptState(found["state"]),
        found["started_at"],
        found["lease_until"],
        found["progress"],
        found["ended_at"],
        found["code"],
        found["cause"],
        found["items"],
        found["bytes"],
        None if found["hash"] is None else bytes(found["hash"]),
    )


async def event_of(journal: Journal, receipt: SealReceipt, number: int = 1) -> uuid.UUID:
    """The id of an event of an envelope."""
    return await journal.read(read_event_id, receipt.envelope_id, number)


async def begin(journal: Journal, scribe: Scribe, event_id: uuid.UUID) -> uuid.UUID | None:
    """Begin an attempt of ``names`` for an event of a type that goes through it; None where another one counts."""
    nodes = (
        sa.select(model.node.c.id)
        .join(model.event, model.event.c.graph_id == model.node.c.graph_id)
        .join(model.service, model.service.c.id == model.node.c.service_id)
        .where(model.event.c.id == event_id, model.service.c.name == "names")
    )
    node_id: int = await journal.read(lambda connection: connection.execute(nodes).scalar_one())
    attempt_id = uuid.uuid4()
    until = NOW + timedelta(seconds=30)
    begun = await journal.write(BeginAttempt(attempt_id, event_id, node_id, scribe.role_id("names_1"), NOW, until))
    return attempt_id if begun else None


def write_part(
    url: str,
    attempt_id: uuid.UUID,
    part: int,
    segments: Sequence[Sequence[bytes]],
    first_index: int = 0,
    **options: int,
) -> PartSummary:
    """Write a part of these segments, whose items were made of those from ``first_index`` on."""
    with open_part(url, attempt_id, part, **options) as writer:
        for items in segments:
            writer.write(len(items), pack_items(items), first_index, None)
            first_index += len(items)
    return writer.written


async def adopt(journal: Journal, attempt_id: uuid.UUID, **options: int) -> int:
    """Take over the side files, if there are any; in how many steps."""
    adoption = Adoption(attempt_id, **options)
    steps = 0
    while await journal.run(adoption.step):
        steps += 1
    return steps


async def end(
    journal: Journal, attempt_id: uuid.UUID, state: AttemptState = AttemptState.READY, at: datetime = NOW
) -> bool:
    """End an attempt; where it is ready, with all that is there."""
    found: Totals | None = None
    if state is AttemptState.READY:
        found = await journal.read(read_totals, attempt_id)
    ended: bool = await journal.write(
        EndAttempt(
            attempt_id,
            state,
            at,
            code=None if found else "no",
            cause=None if found else "it did not work",
            items=found.items if found else None,
            data_bytes=found.data_bytes if found else None,
            hash=found.hash if found else None,
        )
    )
    return ended


async def make_output(
    journal: Journal, scribe: Scribe, url: str, event_id: uuid.UUID, *parts: Sequence[Sequence[bytes]]
) -> uuid.UUID:
    """A whole output, ready; for each part its segments."""
    attempt_id = await begin(journal, scribe, event_id)
    assert attempt_id is not None
    for part, segments in enumerate(parts):
        await asyncio.to_thread(write_part, url, attempt_id, part, segments)
    await adopt(journal, attempt_id)
    assert await end(journal, attempt_id)
    return attempt_id


async def items_of(journal: Journal, attempt_id: uuid.UUID, max_bytes: int = 1 << 20) -> list[bytes]:
    """What an attempt has written so far, read page by page."""
    found: list[bytes] = []
    after = BEGINNING
    while page := await journal.read(read_output, attempt_id, after, max_bytes):
        found += [item for segment in page for item in unpack_items(segment.data, segment.items)]
        after = page[-1].place
    return found


def attempts(url: str) -> list[tuple[str, str | None]]:
    """State and code of all attempts, the oldest first."""
    attempt = model.bulk_attempt.c
    with reading(url) as connection:
        rows = connection.execute(sa.select(attempt.state, attempt.code).order_by(attempt.started_at))
        return [(row.state, row.code) for row in rows]
