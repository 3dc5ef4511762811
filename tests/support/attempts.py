"""Attempts of bulk workers for tests: begun, written, ended and looked at."""

import asyncio
import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta

import sqlalchemy as sa

from tests.support.journal import NOW, Scribe
from xbus import model
from xbus.broker.journal.bulk.adoption import Adoption
from xbus.broker.journal.bulk.attempts import BEGINNING, Totals, check_output, read_output
from xbus.broker.journal.bulk.part_writer import PartSummary, open_part
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.repeats import read_event_id
from xbus.broker.journal.writes import BeginAttempt, EndAttempt, SealReceipt
from xbus.rpc.codec import pack_items, unpack_items
from xbus.states import AttemptState


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
        found = await journal.read(check_output, attempt_id)
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
