"""Data of large segments in an object store: nobody outside the journal tells it from other data."""

import asyncio
import hashlib
import os
import shutil
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
import sqlalchemy as sa

from tests.contract.test_put import whole
from tests.support.clock import StandingClock
from tests.support.faults import Faults
from tests.support.fsck import examined
from tests.support.journal import NOW, Scribe
from tests.support.slices import whole_ring
from xbus import model
from xbus.broker.housekeeping import objects
from xbus.broker.housekeeping.objects import LOOK_SECONDS, SWEEP_AGAIN_SECONDS, SWEEP_SECONDS, ObjectRemover
from xbus.broker.journal.archive.records import read_rows
from xbus.broker.journal.bulk.segment_reader import open_reader
from xbus.broker.journal.database.compression import DAMAGED
from xbus.broker.journal.database.engine import create_engine
from xbus.broker.journal.fsck.faults import FaultCode
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.planning import cut_event
from xbus.broker.journal.log.reading import read_segments
from xbus.broker.journal.log.segments import Segment
from xbus.broker.journal.log.slices.items import read_slice
from xbus.broker.journal.log.slices.values import Place, SliceBounds
from xbus.broker.journal.objects.opening import open_store
from xbus.broker.journal.objects.removal import FORGET_SECONDS, doom, read_doomed
from xbus.broker.journal.objects.stores import MARK, MISSING, UNAVAILABLE, FolderStore, ObjectStore
from xbus.broker.journal.objects.stowing import ObjectPlace, Order
from xbus.broker.journal.retention.needed import Candidate
from xbus.broker.journal.retention.pruning import remove_segments
from xbus.broker.journal.writes import Append, EndEvent, Seal, SealReceipt
from xbus.errors import JournalError, JournalUnavailable
from xbus.rpc.codec import pack_items
from xbus.supervision.health import Health

LARGE = [b"x" * 40_000, b"y" * 40_000]
SMALL = [b"invoice 7"]
DATA = pack_items(LARGE)
PLACE_BYTES = 64 * 1024


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "objects"


@pytest.fixture
async def journal(shared_url: str, folder: Path) -> AsyncIterator[Journal]:
    objects = ObjectPlace(str(folder), PLACE_BYTES)
    async with Journal(create_engine(shared_url), "broker", objects=objects) as journal:
        yield journal


@pytest.fixture
async def scribe(journal: Journal) -> Scribe:
    return await Scribe.of(journal)


@pytest.fixture
def clock() -> StandingClock:
    return StandingClock()


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("??/*"))


async def stored(journal: Journal) -> list[tuple[int, bool]]:
    """The bytes of each segment in the database, and whether its data is elsewhere."""
    segment = model.log_segment.c
    statement = sa.select(sa.func.length(segment.data), segment.store_id.is_not(None)).order_by(segment.first_index)
    return [
        (size, bool(out)) for size, out in await journal.run(lambda connection: connection.execute(statement).all())
    ]


async def test_large_data_lies_outside_and_reads_the_same(
    journal: Journal, scribe: Scribe, folder: Path, shared_url: str
) -> None:
    put = whole(scribe, LARGE, SMALL)
    receipt = await journal.write(put, order=Order(put.emitter_id))
    assert sorted(await stored(journal)) == [(len(pack_items(SMALL)), False), (32, True)]
    (file,) = files(folder)
    assert file.read_bytes() == DATA
    assert file.name == hashlib.sha256(DATA).hexdigest()
    assert receipt.data_bytes == len(DATA) + len(pack_items(SMALL))
    event_id = put.events[0].event_id
    assert await journal.read(read_segments, event_id, 0, 10**6) == [Segment(0, 2, DATA)]
    (row,) = await journal.read(read_rows, event_id, 0, 10**6)
    assert (row.data, row.plain_bytes, row.store_id) == (DATA, None, None)
    type_id = scribe.catalog.event_types["notes"].id
    part = await journal.read(read_slice, frozenset({type_id}), [whole_ring(Place(0))], SliceBounds(1, 10**6))
    assert [event.data for event in part.events] == [pack_items(LARGE[:1])]
    (wanted,) = await journal.read(cut_event, event_id, 1)
    with open_reader(shared_url) as reader:
        assert [segment.data for segment in reader.segments(wanted)] == [DATA]
        assert [segment.data for segment in reader.log(type_id, 0, receipt.position)] == [DATA, pack_items(SMALL)]
    assert examined(shared_url) == []


async def test_parts_of_an_event_keep_their_order(journal: Journal, scribe: Scribe, folder: Path) -> None:
    envelope_id, _ = scribe.start_envelope()
    event_id, _ = scribe.start_event(envelope_id)
    lane = Order("north")
    appends = [(0, SMALL), (1, LARGE), (3, SMALL), (4, SMALL), (5, LARGE), (7, LARGE)]
    writes = [Append(envelope_id, event_id, index, len(items), pack_items(items)) for index, items in appends]
    answers = [journal.write(write, order=lane) for write in writes]
    answers.append(journal.write(EndEvent(envelope_id, event_id, 9), order=lane))
    receipt = await journal.write(Seal(envelope_id, 1, 9, NOW), order=lane)
    await asyncio.gather(*answers)
    assert receipt.items == 9
    assert len(files(folder)) == 1
    assert [out for _, out in await stored(journal)] == [False, True, False, True, True]
    found = await journal.read(read_segments, event_id, 0, 10**6)
    assert b"".join(segment.data for segment in found) == b"".join(write.data for write in writes)


async def test_others_go_on_while_a_large_write_is_stored(
    journal: Journal, scribe: Scribe, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go = threading.Event()
    put_here = FolderStore.put

    def slow(store: FolderStore, digest: bytes, data: bytes) -> None:
        assert may_go.wait(20)
        put_here(store, digest, data)

    monkeypatch.setattr(FolderStore, "put", slow)
    large = journal.write(whole(scribe, LARGE), order=Order("north"))
    behind = journal.write(whole(scribe, SMALL), order=Order("north"))
    assert (await journal.write(whole(scribe, SMALL), order=Order("south"))).position == 1
    assert not large.done()
    assert journal.pending_bytes > len(DATA)
    may_go.set()
    assert [(await large).position, (await behind).position] == [2, 3]
    assert journal.pending_bytes == 0


async def test_a_write_that_was_not_stored_takes_those_behind_it_along(
    journal: Journal, scribe: Scribe, folder: Path
) -> None:
    envelope_id, _ = scribe.start_envelope()
    event_id, started = scribe.start_event(envelope_id)
    await started
    (folder / hashlib.sha256(DATA).hexdigest()[:2]).write_text("in the way")
    append = journal.write(Append(envelope_id, event_id, 0, 2, DATA), order=Order("north"))
    end = journal.write(EndEvent(envelope_id, event_id, 2), order=Order("north", append))
    for answer in (append, end):
        with pytest.raises(JournalUnavailable) as caught:
            await answer
        assert caught.value.code in (UNAVAILABLE, "journal_unavailable")
    late = journal.write(Seal(envelope_id, 1, 2, NOW), order=Order("north", end))
    with pytest.raises(JournalUnavailable):
        await late
    assert await stored(journal) == []
    assert journal.pending_bytes == 0


async def test_a_folder_that_is_unmounted_takes_nothing(journal: Journal, scribe: Scribe, folder: Path) -> None:
    """Whatever lay in the empty folder below would be out of sight when the right one is mounted again."""
    mounted = folder.rename(folder.with_name("mounted elsewhere"))
    folder.mkdir()
    put = whole(scribe, LARGE)
    with pytest.raises(JournalUnavailable) as caught:
        await journal.write(put)
    assert caught.value.code == UNAVAILABLE
    shutil.rmtree(folder)
    mounted.rename(folder)
    assert (await journal.write(put)).position == 1
    assert len(files(folder)) == 1


async def test_the_same_content_is_kept_once_and_a_damaged_one_is_mended(
    journal: Journal, scribe: Scribe, folder: Path
) -> None:
    await journal.write(whole(scribe, LARGE))
    (file,) = files(folder)
    file.write_bytes(b"z" * len(DATA))
    second = whole(scribe, LARGE)
    await journal.write(second)
    assert [path.read_bytes() for path in files(folder)] == [DATA]
    assert await journal.read(read_segments, second.events[0].event_id, 0, 10**6) == [Segment(0, 2, DATA)]


@pytest.mark.parametrize(("content", "code"), [(None, MISSING), (b"y" * len(DATA), DAMAGED), (b"", DAMAGED)])
async def test_a_missing_or_damaged_object_is_an_error_and_a_fault(
    journal: Journal, scribe: Scribe, folder: Path, shared_url: str, content: bytes | None, code: str
) -> None:
    put = whole(scribe, LARGE)
    await journal.write(put)
    (file,) = files(folder)
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    with pytest.raises(JournalError) as caught:
        await journal.read(read_segments, put.events[0].event_id, 0, 10**6)
    assert caught.value.code == code
    assert str(folder) in caught.value.cause
    (fault,) = examined(shared_url)
    assert (fault.code, str(folder) in fault.cause) == (FaultCode.SEGMENT_CHANGED, True)


async def test_nothing_refers_to_a_doomed_object(journal: Journal, scribe: Scribe, folder: Path) -> None:
    digest = hashlib.sha256(DATA).digest()
    await journal.run(doom, [(1, digest)])
    put = whole(scribe, LARGE)
    await journal.write(put)
    assert await stored(journal) == [(len(DATA), False)]
    envelope_id, _ = scribe.start_envelope()
    event_id, _ = scribe.start_event(envelope_id)
    await journal.write(Append(envelope_id, event_id, 0, 2, DATA))
    assert [out for _, out in await stored(journal)] == [False, False]


async def prune(journal: Journal, *receipts: SealReceipt) -> None:
    """Remove envelopes as retention does."""
    found = [Candidate(each.envelope_id, each.position, NOW, each.data_bytes, keeps_row=False) for each in receipts]
    await journal.run(lambda connection: remove_segments(connection, "broker", found))


async def test_retention_removes_what_nothing_refers_to(
    journal: Journal, scribe: Scribe, folder: Path, clock: StandingClock
) -> None:
    remover = ObjectRemover(journal, clock, Health("broker", clock))
    twice, again, other = whole(scribe, LARGE), whole(scribe, LARGE), whole(scribe, LARGE * 2)
    receipts = [await journal.write(put) for put in (twice, again, other)]
    await prune(journal, receipts[0])
    await remover.look()
    assert len(files(folder)) == 2
    await prune(journal, receipts[1], receipts[2])
    # Whoever sends the same meanwhile can't rely on what is about to go.
    late = whole(scribe, LARGE)
    await journal.write(late)
    await remover.look()
    assert files(folder) == []
    assert await journal.read(read_segments, late.events[0].event_id, 0, 10**6) == [Segment(0, 2, DATA)]
    clock.go_on(FORGET_SECONDS + 1)
    await remover.look()
    await journal.write(whole(scribe, LARGE))
    assert len(files(folder)) == 1


async def test_a_part_of_a_large_envelope_is_removed_at_a_time(
    journal: Journal, scribe: Scribe, folder: Path, clock: StandingClock
) -> None:
    receipt = await journal.write(whole(scribe, LARGE, LARGE * 2, SMALL))
    found = Candidate(receipt.envelope_id, receipt.position, NOW, None, keeps_row=False)
    remover = ObjectRemover(journal, clock, Health("broker", clock))
    left = []
    for _ in range(3):
        await journal.run(lambda connection: remove_segments(connection, "broker", [found], 1))
        await remover.look()
        left.append(len(files(folder)))
    assert sorted(left, reverse=True) == left
    assert left[-1] == 0


async def test_what_a_crash_left_is_swept(journal: Journal, scribe: Scribe, folder: Path, clock: StandingClock) -> None:
    clock.go_on((datetime.now(UTC) + timedelta(days=2) - clock.now()).total_seconds())
    left = hashlib.sha256(b"left").digest()
    FolderStore(folder).put(left, b"left")
    part = folder / "parts" / "left"
    part.write_bytes(b"half")
    os.utime(part, (0, 0))
    await journal.write(whole(scribe, LARGE))
    remover = ObjectRemover(journal, clock, Health("broker", clock))
    clock.go_on(LOOK_SECONDS)
    await remover.look()
    assert [path.read_bytes() for path in files(folder)] == [DATA]
    assert not part.exists()


async def test_a_sweep_that_fails_begins_anew_an_hour_later(
    journal: Journal, folder: Path, clock: StandingClock
) -> None:
    remover = ObjectRemover(journal, clock, Health("broker", clock))
    clock.go_on((datetime.now(UTC) + timedelta(days=2) - clock.now()).total_seconds())
    FolderStore(folder).put(hashlib.sha256(b"left").digest(), b"left")
    with Faults(journal._engine).before_commit(skipped=2) as happened:
        await remover.look()
    assert happened.is_set()
    for _ in range(2):
        await remover.look()
        assert len(files(folder)) == 1
    clock.go_on(SWEEP_AGAIN_SECONDS)
    await remover.look()
    assert files(folder) == []


async def test_an_object_that_cannot_be_removed_keeps_no_sweep_away(
    journal: Journal, folder: Path, clock: StandingClock
) -> None:
    remover = ObjectRemover(journal, clock, Health("broker", clock))
    clock.go_on((datetime.now(UTC) + timedelta(days=2) - clock.now()).total_seconds())
    name = hashlib.sha256(b"a folder").hexdigest()
    (folder / name[:2] / name).mkdir(parents=True)
    for _ in range(2):
        await remover.look()
    left = hashlib.sha256(b"left").digest()
    FolderStore(folder).put(left, b"left")
    clock.go_on(SWEEP_SECONDS)
    await remover.look()
    assert left in await journal.read(read_doomed, 1, 10)


async def test_a_fresh_object_may_belong_to_a_commit_under_way(
    journal: Journal, folder: Path, clock: StandingClock
) -> None:
    FolderStore(folder).put(hashlib.sha256(b"under way").digest(), b"under way")
    remover = ObjectRemover(journal, clock, Health("broker", clock))
    clock.go_on((datetime.now(UTC) - clock.now()).total_seconds())
    await remover.look()
    assert len(files(folder)) == 1


async def test_a_store_that_is_away_keeps_nothing_in_others(
    journal: Journal, folder: Path, clock: StandingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = {"id": 0, "place": "s3://away/objects", "mark": uuid4(), "marked_at": NOW}
    await journal.run(lambda connection: connection.execute(sa.insert(model.object_store).values(away)))

    def open_or_fail(place: str) -> ObjectStore:
        if place == away["place"]:
            raise JournalUnavailable("the object store does not answer", code=UNAVAILABLE)
        return open_store(place)

    monkeypatch.setattr(objects, "open_store", open_or_fail)
    health = Health("broker", clock)
    remover = ObjectRemover(journal, clock, health)
    clock.go_on((datetime.now(UTC) + timedelta(days=2) - clock.now()).total_seconds())
    FolderStore(folder).put(hashlib.sha256(b"left").digest(), b"left")
    await remover.look()
    assert files(folder) == []
    assert [problem.code for problem in health.problems] == [UNAVAILABLE]


async def test_a_copy_of_the_journal_removes_nothing(
    journal: Journal, scribe: Scribe, folder: Path, clock: StandingClock
) -> None:
    receipt = await journal.write(whole(scribe, LARGE))
    await prune(journal, receipt)
    mark = folder / MARK
    mark.write_bytes(mark.read_bytes().replace(b"xbus", b"original"))
    await ObjectRemover(journal, clock, Health("broker", clock)).look()
    assert len(files(folder)) == 1
