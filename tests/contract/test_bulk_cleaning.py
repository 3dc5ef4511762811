"""What bulk workers wrote goes when nobody needs it any more, and is counted right all the time."""

import asyncio
import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest
import sqlalchemy as sa

from tests.support.attempts import adopt, begin, end, event_of, make_output, read_attempt, read_attempts, write_part
from tests.support.journal import NOW, Scribe
from xbus import model
from xbus.broker.housekeeping.outputs import ROW_SECONDS, OutputCleaner
from xbus.broker.housekeeping.pruning import Pruner
from xbus.broker.journal.bulk import cleaning as bulk_cleaning
from xbus.broker.journal.bulk.side_files import attempts_with_files, folder_of
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.deliveries import read_cursors
from xbus.broker.journal.retention.pruning import read_stored_bytes
from xbus.broker.journal.writes import ProgressUpdate, SealReceipt
from xbus.clock import SystemClock
from xbus.states import AttemptState

STEP_BYTES = 60
"""Two segments of the parts are one step."""

PARTS = [[[b"a" * 50], [b"b" * 50]], [[b"c" * 50]]]


class At(SystemClock):
    def __init__(self, moment: datetime) -> None:
        self._moment = moment

    def now(self) -> datetime:
        return self._moment


def cleaner(journal: Journal, at: datetime) -> OutputCleaner:
    return OutputCleaner(journal, At(at), step_bytes=STEP_BYTES)


async def settle(journal: Journal, scribe: Scribe, upto: int) -> None:
    cursors = await journal.read(read_cursors)
    for role in ("store_1", "store_2"):
        cursors[scribe.role_id(role)].settle_range(1, upto)
    await journal.write(ProgressUpdate(NOW, list(cursors.values())))


async def count(journal: Journal, table: sa.Table) -> int:
    statement = sa.select(sa.func.count()).select_from(table)
    found: int = await journal.read(lambda connection: connection.execute(statement).scalar_one())
    return found


async def held(journal: Journal) -> int:
    """What the segments take that count."""
    size = sa.func.coalesce(sa.func.sum(sa.func.length(sa.column("data"))), 0)

    def read(connection: sa.Connection) -> int:
        of_events = connection.execute(sa.select(size).select_from(model.log_segment)).scalar_one()
        of_outputs = connection.execute(
            sa.select(size)
            .select_from(model.bulk_segment)
            .join(model.bulk_attempt)
            .where(model.bulk_attempt.c.state == AttemptState.READY.value)
        ).scalar_one()
        return int(of_events) + int(of_outputs)

    return await journal.read(read)


async def put(journal: Journal, scribe: Scribe, *events: Sequence[bytes]) -> tuple[SealReceipt, uuid.UUID]:
    receipt = await scribe.put(*events, type_name="flights")
    return receipt, await event_of(journal, receipt)


async def test_what_came_to_nothing_goes(shared_url: str, shared_journal: Journal, shared_scribe: Scribe) -> None:
    _, event_id = await put(shared_journal, shared_scribe, [b"x"])
    attempts = []
    for state in (AttemptState.FAILED, AttemptState.ABANDONED):
        attempt_id = await begin(shared_journal, shared_scribe, event_id)
        assert attempt_id is not None
        await asyncio.to_thread(write_part, shared_url, attempt_id, 0, PARTS[0])
        await adopt(shared_journal, attempt_id)
        assert await end(shared_journal, attempt_id, state)
        attempts.append(attempt_id)
    ready = await make_output(shared_journal, shared_scribe, shared_url, event_id, *PARTS)
    assert await count(shared_journal, model.bulk_segment) == 7
    await cleaner(shared_journal, NOW + timedelta(seconds=ROW_SECONDS - 1)).clean()
    assert await count(shared_journal, model.bulk_segment) == 3
    assert await count(shared_journal, model.bulk_attempt) == 3
    await cleaner(shared_journal, NOW + timedelta(seconds=ROW_SECONDS + 1)).clean()
    (left,) = await shared_journal.read(read_attempts)
    assert left.attempt_id == ready
    assert await shared_journal.read(read_stored_bytes) == await held(shared_journal)


async def test_what_is_being_built_stays(shared_url: str, shared_journal: Journal, shared_scribe: Scribe) -> None:
    _, event_id = await put(shared_journal, shared_scribe, [b"x"])
    attempt_id = await begin(shared_journal, shared_scribe, event_id)
    assert attempt_id is not None
    await asyncio.to_thread(write_part, shared_url, attempt_id, 0, PARTS[0])
    await cleaner(shared_journal, NOW + timedelta(days=9)).clean()
    await adopt(shared_journal, attempt_id)
    assert await end(shared_journal, attempt_id)
    assert await count(shared_journal, model.bulk_segment) == 2


@pytest.mark.parametrize("shared_url", ["sqlite"], indirect=True)
async def test_side_files_go_that_nobody_waits_for(
    shared_url: str, shared_journal: Journal, shared_scribe: Scribe
) -> None:
    folder = folder_of(sa.make_url(shared_url))
    assert folder is not None
    events = [(await put(shared_journal, shared_scribe, [b"x"]))[1] for _ in range(3)]
    ready = await make_output(shared_journal, shared_scribe, shared_url, events[0], *PARTS)
    building, failed = [await begin(shared_journal, shared_scribe, event_id) for event_id in events[1:]]
    assert building is not None
    assert failed is not None
    for attempt_id in (building, failed):
        write_part(shared_url, attempt_id, 0, PARTS[0])
    (folder / str(failed) / "1.segments.00ff.unfinished").write_bytes(b"of one that was killed")
    await end(shared_journal, failed, AttemptState.FAILED)
    nobodys = folder / str(uuid.uuid4())
    nobodys.mkdir()
    (folder / "README").write_text("a person's")
    assert {ready, building, failed} < set(attempts_with_files(folder))
    await cleaner(shared_journal, NOW).clean()
    assert attempts_with_files(folder) == [building]
    assert {path.name for path in folder.iterdir()} == {str(building), "README"}


async def prune(journal: Journal, keep_days: float = 1) -> None:
    now = At(NOW + timedelta(days=2))
    await Pruner(journal, now, keep_days=keep_days, max_bytes=0, step_bytes=STEP_BYTES).prune_old()


async def test_outputs_go_with_their_envelope(shared_url: str, shared_journal: Journal, shared_scribe: Scribe) -> None:
    before, _ = await put(shared_journal, shared_scribe, [b"before"])
    receipt, event_id = await put(shared_journal, shared_scribe, [b"x" * 40], [b"y"])
    other, other_event = await put(shared_journal, shared_scribe, [b"z"])
    failed = await begin(shared_journal, shared_scribe, event_id)
    assert failed is not None
    await end(shared_journal, failed, AttemptState.FAILED)
    for number in (1, 2):
        of_number = await event_of(shared_journal, receipt, number)
        await make_output(shared_journal, shared_scribe, shared_url, of_number, *PARTS)
    kept = await make_output(shared_journal, shared_scribe, shared_url, other_event, *PARTS)
    building = await begin(shared_journal, shared_scribe, await event_of(shared_journal, before))
    assert building is not None
    await settle(shared_journal, shared_scribe, receipt.position)
    await prune(shared_journal)
    assert await count(shared_journal, model.envelope) == 1
    assert await count(shared_journal, model.bulk_segment) == 3
    (left,) = await shared_journal.read(read_attempts)
    assert left.attempt_id == kept
    assert await shared_journal.read(read_stored_bytes) == await held(shared_journal)
    assert left.data_bytes is not None
    assert await shared_journal.read(read_stored_bytes) == other.data_bytes + left.data_bytes


async def test_what_is_half_removed_serves_nobody(
    shared_url: str, shared_journal: Journal, shared_scribe: Scribe
) -> None:
    receipt, event_id = await put(shared_journal, shared_scribe, [b"x"])
    attempt_id = await make_output(shared_journal, shared_scribe, shared_url, event_id, *PARTS)
    await shared_journal.run(
        bulk_cleaning.discard_outputs, shared_journal.name, [receipt.envelope_id], NOW + timedelta(days=1)
    )
    assert await shared_journal.run(bulk_cleaning.remove_outputs, receipt.envelope_id, STEP_BYTES)
    attempt = await shared_journal.read(read_attempt, attempt_id)
    assert attempt is not None
    assert (attempt.state, attempt.code) == (AttemptState.ABANDONED, bulk_cleaning.NOT_NEEDED)
    assert await count(shared_journal, model.bulk_segment) == 1
    assert await shared_journal.read(read_stored_bytes) == await held(shared_journal) == receipt.data_bytes
    while await shared_journal.run(bulk_cleaning.remove_outputs, receipt.envelope_id, STEP_BYTES):
        pass
    assert await count(shared_journal, model.bulk_attempt) == 0
    assert await begin(shared_journal, shared_scribe, event_id) is not None
