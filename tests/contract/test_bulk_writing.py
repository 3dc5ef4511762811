"""Outputs written side by side, past the broker: only what is whole counts, and nothing once the attempt is over."""

import asyncio
import hashlib
import threading
import uuid
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.support.attempts import adopt, begin, end, items_of, make_output, read_attempt, read_attempts, write_part
from tests.support.journal import NOW, Scribe
from tests.support.waiting import DEADLINE_SECONDS
from xbus.broker.journal.bulk import part_writer, side_files
from xbus.broker.journal.bulk.cleaning import find_stray_files
from xbus.broker.journal.bulk.outputs import MISMATCH, read_output, read_totals
from xbus.broker.journal.bulk.part_writer import NOT_BUILDING, PartSummary, open_part, output_hash
from xbus.broker.journal.bulk.side_files import folder_of
from xbus.broker.journal.database.binary_copy import END, HEADER, pack_row, read_row
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.retention.pruning import read_stored_bytes
from xbus.broker.journal.writes.bulk import EndAttempt, RenewAttempt
from xbus.errors import JournalError, JournalUnavailable
from xbus.rpc.codec import pack_items
from xbus.states import AttemptState, IllegalMove

PARTS = [[[b"a", b"b"], [b"c"]], [], [[b"d" * 1000]]]


async def write(
    url: str, attempt_id: uuid.UUID, *parts: Sequence[Sequence[bytes]], **options: int
) -> list[PartSummary]:
    return [
        await asyncio.to_thread(write_part, url, attempt_id, part, segments, **options)
        for part, segments in enumerate(parts)
    ]


def side_folder(url: str) -> Path | None:
    return folder_of(sa.make_url(url))


async def test_an_output_is_what_its_parts_are(shared_url: str, shared_journal: Journal, attempt_id: uuid.UUID) -> None:
    before = await shared_journal.read(read_stored_bytes)
    summaries = await write(shared_url, attempt_id, *PARTS)
    await adopt(shared_journal, attempt_id)
    found = await shared_journal.read(read_totals, attempt_id)
    assert (found.items, found.data_bytes) == (4, sum(summary.data_bytes for summary in summaries))
    assert found.hash == output_hash(reversed(summaries))
    assert await end(shared_journal, attempt_id)
    attempt = await shared_journal.read(read_attempt, attempt_id)
    assert attempt is not None
    assert (attempt.state, attempt.items, attempt.data_bytes, attempt.hash, attempt.ended_at) == (
        *(AttemptState.READY, 4, found.data_bytes, found.hash, NOW),
    )
    assert await shared_journal.read(read_stored_bytes) == before + found.data_bytes
    for max_bytes in (1, 5, 1 << 20):
        assert await items_of(shared_journal, attempt_id, max_bytes) == [b"a", b"b", b"c", b"d" * 1000]


async def test_one_attempt_counts(shared_journal: Journal, shared_scribe: Scribe, event_id: uuid.UUID) -> None:
    first = await begin(shared_journal, shared_scribe, event_id)
    assert first is not None
    assert await begin(shared_journal, shared_scribe, event_id) is None
    assert await end(shared_journal, first, AttemptState.FAILED)
    second = await begin(shared_journal, shared_scribe, event_id)
    assert second is not None
    assert await end(shared_journal, second)
    assert await begin(shared_journal, shared_scribe, event_id) is None
    found = await shared_journal.read(read_attempts, event_ids=[event_id])
    assert {(attempt.attempt_id, attempt.state) for attempt in found} == {
        *((first, AttemptState.FAILED), (second, AttemptState.READY)),
    }
    assert await shared_journal.read(read_attempts, states=[AttemptState.BUILDING]) == []


async def test_two_attempts_at_the_same_moment(
    shared_journal: Journal, shared_scribe: Scribe, event_id: uuid.UUID
) -> None:
    begun = await asyncio.gather(*(begin(shared_journal, shared_scribe, event_id) for _ in range(5)))
    assert len([attempt_id for attempt_id in begun if attempt_id is not None]) == 1


async def test_a_lease_is_renewed_while_it_builds(shared_journal: Journal, attempt_id: uuid.UUID) -> None:
    until = NOW + timedelta(minutes=5)
    assert await shared_journal.write(RenewAttempt(attempt_id, until, 0.25)) is True
    attempt = await shared_journal.read(read_attempt, attempt_id)
    assert attempt is not None
    assert (attempt.lease_until, attempt.progress) == (until, 0.25)
    assert await end(shared_journal, attempt_id, AttemptState.ABANDONED)
    assert await shared_journal.write(RenewAttempt(attempt_id, until, 0.5)) is False
    assert await shared_journal.write(RenewAttempt(uuid.uuid4(), until, 0.5)) is False


async def test_what_is_over_stays_so(shared_journal: Journal, attempt_id: uuid.UUID) -> None:
    assert await end(shared_journal, attempt_id, AttemptState.FAILED)
    for state in (AttemptState.READY, AttemptState.ABANDONED, AttemptState.FAILED):
        assert not await end(shared_journal, attempt_id, state)
    attempt = await shared_journal.read(read_attempt, attempt_id)
    assert attempt is not None
    assert (attempt.state, attempt.code, attempt.cause) == (AttemptState.FAILED, "no", "it did not work")


async def test_a_ready_output_is_not_given_up_by_the_way(
    shared_url: str, shared_journal: Journal, attempt_id: uuid.UUID
) -> None:
    await write(shared_url, attempt_id, *PARTS)
    await adopt(shared_journal, attempt_id)
    assert await end(shared_journal, attempt_id)
    assert not await end(shared_journal, attempt_id, AttemptState.ABANDONED)


async def test_what_is_not_as_announced_is_not_ready(
    shared_url: str, shared_journal: Journal, attempt_id: uuid.UUID
) -> None:
    before = await shared_journal.read(read_stored_bytes)
    await write(shared_url, attempt_id, *PARTS)
    await adopt(shared_journal, attempt_id)
    found = await shared_journal.read(read_totals, attempt_id)
    wrong = EndAttempt(
        *(attempt_id, AttemptState.READY, NOW, None, None, found.items, found.data_bytes, hashlib.sha256().digest()),
    )
    with pytest.raises(JournalError) as told:
        await shared_journal.write(wrong)
    assert told.value.code == MISMATCH
    attempt = await shared_journal.read(read_attempt, attempt_id)
    assert attempt is not None
    assert attempt.state is AttemptState.BUILDING
    assert await shared_journal.read(read_stored_bytes) == before


async def test_a_part_takes_the_place_of_an_earlier_one(
    shared_url: str, shared_journal: Journal, attempt_id: uuid.UUID
) -> None:
    await write(shared_url, attempt_id, [[b"old"], [b"older"]], [[b"kept"]])
    await write(shared_url, attempt_id, [[b"new"]])
    await adopt(shared_journal, attempt_id)
    assert await items_of(shared_journal, attempt_id) == [b"new", b"kept"]


async def test_a_part_that_is_broken_off_leaves_nothing(
    shared_url: str, shared_journal: Journal, attempt_id: uuid.UUID
) -> None:
    await write(shared_url, attempt_id, [[b"first"]])
    for raised in (ValueError("the transform's own"), OSError("likewise"), KeyboardInterrupt()):
        with pytest.raises(type(raised)) as told:
            with open_part(shared_url, attempt_id, 0) as writer:
                writer.write(1, pack_items([b"torn"]), 0, None)
                raise raised
        assert told.value is raised
    await adopt(shared_journal, attempt_id)
    assert await items_of(shared_journal, attempt_id) == [b"first"]
    folder = side_folder(shared_url)
    assert folder is None or [path.name for path in (folder / str(attempt_id)).iterdir()] == ["0.segments"]


@pytest.mark.parametrize("state", [AttemptState.READY, AttemptState.FAILED, AttemptState.ABANDONED])
async def test_nobody_writes_for_an_attempt_that_is_over(
    shared_url: str, shared_journal: Journal, attempt_id: uuid.UUID, state: AttemptState
) -> None:
    with pytest.raises(JournalError) as told:
        with open_part(shared_url, attempt_id, 0) as late:
            late.write(1, pack_items([b"late"]), 0, None)
            assert await end(shared_journal, attempt_id, state)
    assert told.value.code == NOT_BUILDING
    for unwanted in (attempt_id, uuid.uuid4()):
        with pytest.raises(JournalError) as told:
            await write(shared_url, unwanted, [[b"later"]])
        assert told.value.code == NOT_BUILDING
    assert await items_of(shared_journal, attempt_id) == []


async def test_two_who_write_the_same_part_come_one_after_the_other(
    shared_url: str, shared_journal: Journal, attempt_id: uuid.UUID
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        with open_part(shared_url, attempt_id, 0) as writer:
            writer.write(1, pack_items([b"slow"]), 0, None)
            begun.set()
            assert go_on.wait(DEADLINE_SECONDS)

    first = asyncio.create_task(asyncio.to_thread(slow))
    assert await asyncio.to_thread(begun.wait, DEADLINE_SECONDS)
    second = asyncio.create_task(write(shared_url, attempt_id, [[b"second"]]))
    go_on.set()
    await asyncio.gather(first, second)
    await adopt(shared_journal, attempt_id)
    assert await items_of(shared_journal, attempt_id) in ([b"slow"], [b"second"])


async def test_sources_are_kept(shared_url: str, shared_journal: Journal, attempt_id: uuid.UUID) -> None:
    sources = b"".join(index.to_bytes(8, "little", signed=True) for index in (7, -1, 3))
    with open_part(shared_url, attempt_id, 0) as writer:
        writer.write(3, pack_items([b"a", b"b", b"c"]), 5, sources)
        writer.write(1, pack_items([b"d"]), 9, None)
        with pytest.raises(ValueError, match="sources"):
            writer.write(2, pack_items([b"a", b"b"]), 0, sources)
    await adopt(shared_journal, attempt_id)
    found = await shared_journal.read(read_output, attempt_id)
    assert [(segment.first_index, segment.sources) for segment in found] == [(0, sources), (9, None)]


async def test_a_large_part_goes_in_several_copies(
    shared_url: str, shared_journal: Journal, attempt_id: uuid.UUID
) -> None:
    segments = [[b"%05d" % number] * 30 for number in range(40)]
    await write(shared_url, attempt_id, segments, segments[:3], copy_bytes=1_000)
    steps = await adopt(shared_journal, attempt_id, step_bytes=1_000)
    assert (steps > 5) is (side_folder(shared_url) is not None)
    whole = [item for items in (*segments, *segments[:3]) for item in items]
    assert await items_of(shared_journal, attempt_id, 700) == whole


async def test_adoption_goes_on_where_it_was_broken_off(
    shared_url: str, shared_journal: Journal, attempt_id: uuid.UUID
) -> None:
    await write(shared_url, attempt_id, *[[[b"%d-%d" % (part, n)] for n in range(3)] for part in range(3)])
    for _ in range(12):
        # Each by another one, as after a restart; every other one fails in its COMMIT.
        step = part_writer.Adoption(attempt_id, step_rows=2)
        with pytest.raises(JournalUnavailable):
            await shared_journal.run(_failing, step)
        await shared_journal.run(step.step)
    assert await items_of(shared_journal, attempt_id) == [b"%d-%d" % (part, n) for part in range(3) for n in range(3)]


def _failing(connection: sa.Connection, step: part_writer.Adoption) -> None:
    step.step(connection)
    raise JournalUnavailable("the disk is full")


@pytest.mark.parametrize("shared_url", ["sqlite"], indirect=True)
async def test_a_damaged_side_file_is_told(shared_url: str, shared_journal: Journal, attempt_id: uuid.UUID) -> None:
    folder = side_folder(shared_url)
    assert folder is not None
    await write(shared_url, attempt_id, [[b"a" * 100], [b"b" * 100]])
    path = side_files.path_of(folder, attempt_id, 0)
    path.write_bytes(path.read_bytes()[:-60])
    with pytest.raises(JournalError, match="broken off"):
        await adopt(shared_journal, attempt_id)
    assert await items_of(shared_journal, attempt_id) == []


@pytest.mark.parametrize("shared_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(("field", "value"), [(0, b"short"), (3, b""), (4, None), (4, b"\xc4\x01b"), (6, b"short")])
async def test_a_side_file_of_other_rows_is_told(
    shared_url: str, shared_journal: Journal, attempt_id: uuid.UUID, field: int, value: bytes | None
) -> None:
    folder = side_folder(shared_url)
    assert folder is not None
    await write(shared_url, attempt_id, [[b"a"]])
    path = side_files.path_of(folder, attempt_id, 0)
    with path.open("rb") as file:
        file.seek(len(HEADER))
        fields = read_row(file)
    assert fields is not None
    fields[field] = value
    path.write_bytes(b"".join([HEADER, *pack_row(fields), END]))
    with pytest.raises(JournalError, match="broken off"):
        await adopt(shared_journal, attempt_id)
    assert await items_of(shared_journal, attempt_id) == []


@pytest.mark.parametrize("shared_url", ["sqlite"], indirect=True)
async def test_side_files_that_the_broker_may_not_see_are_told(
    shared_url: str, shared_journal: Journal, attempt_id: uuid.UUID
) -> None:
    folder = side_folder(shared_url)
    assert folder is not None
    folder.mkdir()
    (folder / str(attempt_id)).write_text("no folder")
    with pytest.raises(JournalUnavailable, match="side file"):
        await adopt(shared_journal, attempt_id)
    (folder / str(attempt_id)).unlink()
    folder.rmdir()
    folder.write_text("no folder")
    with pytest.raises(JournalUnavailable, match="side file"):
        await shared_journal.read(find_stray_files)


@pytest.mark.parametrize("shared_url", ["sqlite"], indirect=True)
async def test_a_full_disk_is_told_and_leaves_nothing(
    shared_url: str, shared_journal: Journal, attempt_id: uuid.UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = side_folder(shared_url)
    assert folder is not None

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(JournalUnavailable, match="No space left"):
        write_part(shared_url, attempt_id, 0, [[b"a"]])
    assert list((folder / str(attempt_id)).iterdir()) == []


async def test_an_attempt_ends_in_an_end(shared_journal: Journal, attempt_id: uuid.UUID) -> None:
    with pytest.raises(JournalError, match=IllegalMove.__name__):
        await shared_journal.write(EndAttempt(attempt_id, AttemptState.BUILDING, NOW))


async def test_outputs_of_a_whole_event_are_ready_at_once(
    shared_url: str, shared_journal: Journal, shared_scribe: Scribe, event_id: uuid.UUID
) -> None:
    attempt_id = await make_output(shared_journal, shared_scribe, shared_url, event_id, *PARTS)
    (attempt,) = await shared_journal.read(read_attempts, states=[AttemptState.READY])
    assert attempt.attempt_id == attempt_id
