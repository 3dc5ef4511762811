"""Items are moved into files and back, and at each moment count in exactly one place: the same on every database."""

import os
import signal
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from hashlib import sha256
from multiprocessing import get_context, set_forkserver_preload
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from spark_worker.archive import storage
from spark_worker.archive.archiver import STEPS, Archiver, Copy, FilePlanner, Report
from spark_worker.archive.copying import CopyFailed, copy_file, read_segments
from spark_worker.archive.reading import read_items
from spark_worker.archive.restoring import restore
from spark_worker.archive.run import begun
from spark_worker.source.journal import TypeLog
from spark_worker.source.options import SourceOptions
from spark_worker.source.reading import Wanted, read_range
from tests.support.attempts import event_of, make_output
from tests.support.clock import StandingClock
from tests.support.journal import NOW, Scribe, looking, settle_all
from tests.support.waiting import wait_until
from xbus import model
from xbus.admin.why.deliveries import Surroundings, explain_envelope
from xbus.admin.why.findings import Code
from xbus.broker.journal.archive.plans import FilePlan, Round
from xbus.broker.journal.archive.reading import ArchivedFile, archived_files, read_whereabouts
from xbus.broker.journal.archive.records import FileWritten
from xbus.broker.journal.audit import RepairDecision
from xbus.broker.journal.bulk.outputs import OutputSummary, list_outputs
from xbus.broker.journal.commit.statements.repeating import repeat
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.overlays import read_overlays
from xbus.broker.journal.log.planning import GONE, LogRange, read_type_id
from xbus.broker.journal.log.reading import read_log
from xbus.broker.journal.operations.corrections import add_correction
from xbus.broker.journal.operations.why.envelopes import AskedPart, read_envelope_facts
from xbus.broker.journal.retention.pruning import PruningStep, prune_settled, read_stored_bytes
from xbus.broker.journal.retention.rules import Rule, Rules, Scan, sealed_before
from xbus.broker.journal.writes import SealReceipt
from xbus.errors import Failed, JournalError, Refused
from xbus.ids import Ids
from xbus.rpc.codec import unpack_items

OLD = NOW + timedelta(seconds=1)
"""What the tests write is sealed just before."""

SMALL = Round(envelopes=3, data_bytes=3000, file_bytes=1500)

Row = tuple[int, int, int, bytes]
"""Position, event number, index, item."""


class Bus:
    """A journal with settled envelopes of two types, some of them of many segments, and an archive beside it."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.clock = StandingClock()

    async def fill(self) -> list[SealReceipt]:
        async with Journal.open(self.url, "broker", max_segment_bytes=400) as journal:
            scribe = await Scribe.of(journal)
            receipts = [
                await _put(scribe, [b"%d.%d" % (n, i) * 9 for i in range(n * 7)], [b"last"], []) for n in range(1, 6)
            ]
            receipts.append(await scribe.put([b"f" * 300] * 5, type_name="flights"))
            flights = await event_of(journal, receipts[-1])
            await make_output(journal, scribe, self.url, flights, [[b"made of it"] * 3])
            repeat = await scribe.again(receipts[1].envelope_id)
            receipts += [await journal.write(repeat), await scribe.put([], type_name="notes")]
            await settle_all(journal, len(receipts))
        return receipts

    def archive(
        self,
        copy: Copy | None = None,
        on_step: Callable[[str], None] = lambda _: None,
        tell: Callable[[int], None] = lambda _: None,
    ) -> Report:
        ids = Ids()
        with begun(self.url, self.clock, ids) as run:
            archiver = Archiver(
                run, FilePlanner(str(self.folder), ids), copy or self.copy, self.clock,
                wanted=SMALL, on_step=on_step, pause=lambda _: None,
            )  # fmt: skip
            return archiver.archive(sealed_before(OLD), tell)

    def copy(self, plans: Sequence[FilePlan], wrote: Callable[[int], None]) -> list[FileWritten | CopyFailed]:
        return [copy_file(self.url, plan, wrote) for plan in plans]

    def restore(self, envelope_id: uuid.UUID, on_step: Callable[[str], None] = lambda _: None) -> list[uuid.UUID]:
        with begun(self.url, self.clock, Ids()) as run:
            return restore(self.url, run, envelope_id, self.clock, step_bytes=100, on_step=on_step)

    def files(self) -> list[Path]:
        return sorted(path for path in self.folder.rglob("*") if path.is_file())

    def carried(self) -> list[Row]:
        """All items, each from the place that counts."""
        with reading(self.url) as connection:
            return sorted(self._live(connection) + self._archived(connection))

    def live(self) -> list[Row]:
        with reading(self.url) as connection:
            return sorted(self._live(connection))

    def _live(self, connection: sa.Connection) -> list[Row]:
        event, segment = model.event.c, model.log_segment.c
        rows = connection.execute(
            sa.select(model.envelope.c.position, event.number, segment.first_index, segment["items"], segment.data)
            .join(model.event, event.envelope_id == model.envelope.c.id)
            .join(model.log_segment, segment.event_id == sa.func.coalesce(event.origin_id, event.id))
            .where(model.envelope.c.pruned_at.is_(None))
        )
        return [
            (position, number, first + offset, item)
            for position, number, first, items, data in rows
            for offset, item in enumerate(unpack_items(bytes(data), items))
        ]

    def _archived(self, connection: sa.Connection) -> list[Row]:
        numbers = {row[0]: row[1] for row in connection.execute(sa.select(model.event.c.id, model.event.c.number))}
        types = connection.execute(sa.select(model.event_type.c.id)).scalars().all()
        found: list[Row] = []
        for file in [file for type_id in types for file in archived_files(connection, type_id, 0, 1000)]:
            rows = pq.ParquetFile(file.location).read().to_pylist()
            wanted = [
                (row["position"], numbers[uuid.UUID(row["event_id"])], row["index"], row["data"])
                for row in rows
                if row["position"] in file.positions
            ]
            assert len(wanted) == file.items
            found += wanted
        return found

    def segments(self) -> list[tuple[uuid.UUID, int, int, bytes, bytes]]:
        """The rows of the journal's segments, to the last byte."""
        segment = model.log_segment.c
        wanted = sa.select(segment.event_id, segment.first_index, segment["items"], segment.data, segment.hash)
        with reading(self.url) as connection:
            rows = connection.execute(wanted.order_by(segment.event_id, segment.first_index))
            return [(row[0], row[1], row[2], bytes(row[3]), bytes(row[4])) for row in rows]

    def stored_bytes(self) -> int:
        with reading(self.url) as connection:
            return read_stored_bytes(connection)


async def _put(scribe: Scribe, *events: Sequence[bytes]) -> SealReceipt:
    """An envelope whose events have many segments, a few items each."""
    envelope_id, _ = scribe.start_envelope()
    for number, items in enumerate(events, start=1):
        event_id, _ = scribe.start_event(envelope_id, number)
        for first in range(0, len(items), 3):
            await scribe.append(envelope_id, event_id, first, items[first : first + 3])
        await scribe.end_event(envelope_id, event_id, len(items))
    return await scribe.seal(envelope_id, len(events), sum(map(len, events)))


@pytest.fixture
async def bus(shared_url: str, tmp_path: Path) -> Bus:
    bus = Bus(shared_url, tmp_path / "archive")
    await bus.fill()
    return bus


def test_what_is_settled_goes_into_files_by_type_and_day(bus: Bus) -> None:
    before = bus.carried()

    report = bus.archive()

    assert bus.carried() == before
    assert (report.envelopes, report.items) == (7, len(before))
    assert (bus.live(), bus.segments(), bus.stored_bytes()) == ([], [], 0)
    folders = {str(path.parent.relative_to(bus.folder)) for path in bus.files()}
    assert folders == {"event_type=notes/day=2020-02-29", "event_type=flights/day=2020-02-29"}
    assert report.files == len(bus.files()) > 2
    assert sum(pq.ParquetFile(path).metadata.num_rows for path in bus.files()) == len(before)


def test_an_output_tells_that_its_event_was_archived(bus: Bus) -> None:
    """It was not given up: it was ready, served its runs, and went with the items that it was made of."""
    (made,) = _outputs(bus)
    bus.archive()
    (output,) = _outputs(bus)

    assert (made.state, output.state, output.code) == ("ready", "archived", "archived")
    assert (output.progress, output.items, output.bytes) == (1.0, made.items, made.bytes)
    assert output.cause == "its event was archived: it is made anew when somebody needs it"


def _outputs(bus: Bus) -> list[OutputSummary]:
    with reading(bus.url) as connection:
        envelopes = connection.execute(sa.select(model.envelope.c.id)).scalars().all()
        return [output for envelope_id in envelopes for output in list_outputs(connection, envelope_id, 10)]


def test_why_says_where_the_items_of_an_envelope_went(bus: Bus) -> None:
    bus.archive()
    with reading(bus.url) as connection:
        envelope_id = connection.execute(sa.select(model.archived_envelope.c.envelope_id).limit(1)).scalar_one()

    assert {Code.DELIVERED, Code.ARCHIVED} == _why(bus, envelope_id)
    bus.restore(envelope_id)
    assert {Code.DELIVERED} == _why(bus, envelope_id)


def _why(bus: Bus, envelope_id: uuid.UUID) -> set[Code]:
    with reading(bus.url) as connection:
        facts = read_envelope_facts(connection, envelope_id, AskedPart())
    assert facts is not None
    return {finding.code for finding in explain_envelope(facts, Surroundings(None, NOW))}


def test_a_second_run_finds_nothing(bus: Bus) -> None:
    bus.archive()
    assert bus.archive() == Report()


def test_what_was_restored_is_the_same_to_the_last_byte(bus: Bus) -> None:
    before, segments = bus.carried(), bus.segments()
    bus.archive()
    with reading(bus.url) as connection:
        ids = connection.execute(sa.select(model.archived_envelope.c.envelope_id)).scalars().all()
        shown = read_whereabouts(connection, ids[0])
    assert shown is not None
    assert shown.restored_at is None
    assert all(Path(file).is_file() for file in shown.files)
    for envelope_id in ids:
        try:
            bus.restore(envelope_id)
        except Refused as error:  # it came back as the origin of another
            assert error.code == "not_archived"

    assert (bus.live(), bus.segments()) == (before, segments)
    # What a bulk worker made is gone for good.
    assert bus.stored_bytes() == sum(len(data) for _, _, _, data, _ in segments)
    with reading(bus.url) as connection:
        assert [len(envelope.events) for envelope in read_log(connection, 0, 100)] == [3, 3, 3, 3, 3, 1, 3, 1]
        types = connection.execute(sa.select(model.event_type.c.id)).scalars().all()
        assert [archived_files(connection, type_id, 0, 100) for type_id in types] == [[]] * len(types)


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_a_reader_in_whose_midst_something_is_archived_says_so(bus: Bus, fail_on_data_loss: bool) -> None:
    [wanted] = plan(bus, fail_on_data_loss)
    bus.archive()
    with pytest.raises(JournalError, match="22 items above position 2 were removed") as caught:
        read_part(wanted)
    assert caught.value.code == GONE
    [again] = plan(bus, fail_on_data_loss)
    assert isinstance(again.part, ArchivedFile)


def test_a_reader_in_whose_midst_something_is_restored_does_not_give_it_twice(bus: Bus) -> None:
    bus.archive()
    bus.restore(envelope_at(bus, 2))
    bus.restore(envelope_at(bus, 4))
    archived, wanted = plan(bus, False, after=1, until=4)
    assert isinstance(archived.part, ArchivedFile)
    assert archived.part.positions == (3,)
    assert read_part(wanted) == wanted.part.items
    bus.restore(envelope_at(bus, 3))
    with pytest.raises(JournalError, match="22 items above position 1 were restored") as caught:
        read_part(wanted)
    assert caught.value.code == GONE


def envelope_at(bus: Bus, position: int) -> uuid.UUID:
    wanted = sa.select(model.envelope.c.id).where(model.envelope.c.position == position)
    with reading(bus.url) as connection:
        found: uuid.UUID = connection.execute(wanted).scalar_one()
        return found


def plan(bus: Bus, fail_on_data_loss: bool, after: int = 2, until: int = 3) -> list[Wanted]:
    """The parts in which the notes of some positions are read."""
    options = SourceOptions(bus.url, "notes", ("data",), 1, 60.0, fail_on_data_loss)
    return TypeLog(options).plan(after, until, 1)


def read_part(wanted: Wanted) -> int:
    """How many items a part of the journal gives."""
    assert isinstance(wanted.part, LogRange)
    return sum(segment.items for segment in read_range(wanted, wanted.part))


def test_a_repeat_brings_what_it_repeats_and_its_corrections(bus: Bus) -> None:
    with writing(bus.url) as connection:
        wanted = sa.select(model.envelope.c.id, model.envelope.c.origin_id)
        repeat, origin = connection.execute(wanted.where(model.envelope.c.origin_id.is_not(None))).one()
        first = sa.select(model.event.c.id).where(model.event.c.envelope_id == origin, model.event.c.number == 1)
        event_id = connection.execute(first).scalar_one()
        add_correction(connection, None, event_id, 2, b"as sent", b"corrected", RepairDecision("ada", "a name", NOW))
    sent = bus.carried()
    bus.archive()
    assert bus.carried() == sent, "files hold what was sent"

    assert bus.restore(repeat) == [origin, repeat]

    with reading(bus.url) as connection:
        for envelope_id in (repeat, origin):
            (overlay,) = read_overlays(connection, None, envelope_id).values()
            assert overlay.corrected == {2: b"corrected"}
    assert bus.carried() == sent


def test_what_was_restored_goes_again_later_without_being_written_again(bus: Bus) -> None:
    before = bus.carried()
    bus.archive()
    files = bus.files()
    with reading(bus.url) as connection:
        envelope_id = connection.execute(sa.select(model.envelope.c.id).where(model.envelope.c.position == 3)).scalar()
    assert envelope_id is not None
    bus.restore(envelope_id)
    assert len(bus.live()) == 22

    bus.archive()

    assert (bus.carried(), bus.live(), bus.files()) == (before, [], files)


def test_a_repeat_that_was_restored_goes_again_with_what_it_repeats(bus: Bus) -> None:
    before = bus.carried()
    bus.archive()
    files = bus.files()
    assert len(bus.restore(envelope_at(bus, 7))) == 2

    bus.archive()

    assert (bus.carried(), bus.live(), bus.segments(), bus.files()) == (before, [], [], files)


async def test_what_somebody_needs_stays_where_it_is(bus: Bus) -> None:
    with looking(bus.url) as connection:
        connection.execute(sa.update(model.cursor).values(position=3))
    before = bus.carried()

    assert bus.archive().envelopes == 2  # the second is repeated by one that is needed

    assert bus.carried() == before
    assert {row[0] for row in bus.live()} == {2, 4, 5, 6, 7}


async def test_what_is_needed_again_while_it_is_written_stays_with_all_that_lies_in_its_files(bus: Bus) -> None:
    before = bus.carried()

    def copy(plans: Sequence[FilePlan], wrote: Callable[[int], None]) -> Sequence[FileWritten | CopyFailed]:
        written = bus.copy(plans, wrote)
        with looking(bus.url) as connection:
            connection.execute(sa.update(model.cursor).values(position=0, until_position=2))
        return written

    bus.archive(copy)

    assert bus.carried() == before
    assert {row[0] for row in bus.live()} == {1}
    with reading(bus.url) as connection:
        assert connection.execute(sa.select(model.archive_file).where(model.archive_file.c.state != "kept")).all() == []
        assert len(bus.files()) == len(connection.execute(sa.select(model.archive_file)).all())


def test_progress_is_told_while_a_large_event_is_written(bus: Bus) -> None:
    told: list[str | int] = []

    def copy(plans: Sequence[FilePlan], wrote: Callable[[int], None]) -> Sequence[FileWritten | CopyFailed]:
        return [copy_file(bus.url, plan, wrote, group_rows=10) for plan in plans]

    bus.archive(copy, on_step=told.append, tell=told.append)

    # A new list begins with each step.
    steps: list[list[int]] = [[]]
    for each in told:
        if isinstance(each, int):
            steps[-1].append(each)
        else:
            steps.append([])
    assert max(map(len, steps)) > 2
    positions = sum(map(sum, steps)) / STEPS
    assert positions == int(positions) > 0


def test_damaged_items_are_not_archived(bus: Bus) -> None:
    before = bus.segments()
    with looking(bus.url) as connection:
        connection.execute(sa.update(model.segment).where(model.segment.c.first_index > 0).values(hash=b"x" * 32))

    with pytest.raises(JournalError, match="do not have their hash") as caught:
        bus.archive()

    assert caught.value.code == "segment_damaged"
    assert [row[:4] for row in bus.segments()] == [row[:4] for row in before]
    assert bus.files() == []


def test_items_that_were_changed_with_their_hash_are_not_archived(bus: Bus) -> None:
    with looking(bus.url) as connection:
        segment = model.segment.c
        data = b"\xc4\x089000 EUR"
        small = sa.select(segment.event_id).where(segment.data == b"\xc4\x04last").limit(1)
        chosen = segment.event_id == connection.execute(small).scalar_one()
        changed = sa.update(model.segment).where(chosen).values(data=data, hash=sha256(data).digest())
        assert connection.execute(changed).rowcount == 1
    with pytest.raises(JournalError) as caught:
        bus.archive()
    assert caught.value.code == "archive_differs"
    assert data in [row[3] for row in bus.segments()]


def test_a_file_that_was_damaged_is_told(bus: Bus) -> None:
    bus.archive()
    with reading(bus.url) as connection:
        [file, *_] = archived_files(connection, type_of_notes(connection), 0, 1)
    path = Path(file.location)
    for content in (path.read_bytes()[:-100], b""):
        path.write_bytes(content)
        for read in (lambda: bus.restore(envelope_at(bus, 1)), lambda: list(read_items(file))):
            with pytest.raises(JournalError, match="is damaged") as caught:
                read()
            assert caught.value.code == "archive_differs"


def test_a_file_that_is_missing_is_told(bus: Bus) -> None:
    bus.archive()
    with reading(bus.url) as connection:
        [file, *_] = archived_files(connection, type_of_notes(connection), 0, 1)
    Path(file.location).unlink()
    for read in (lambda: bus.restore(envelope_at(bus, 1)), lambda: list(read_items(file))):
        with pytest.raises(JournalError, match="is not there") as caught:
            read()
        assert caught.value.code == "archive_missing"


def type_of_notes(connection: sa.Connection) -> int:
    found = read_type_id(connection, "notes")
    assert found is not None
    return found


def test_storage_that_takes_nothing_leaves_all_as_it_was(bus: Bus) -> None:
    bus.folder.write_text("no folder")
    before = bus.segments()

    with pytest.raises(JournalError) as caught:
        bus.archive()

    assert (caught.value.code, bus.segments()) == ("archive_failed", before)
    with reading(bus.url) as connection:
        assert connection.execute(sa.select(model.archive_file)).all() == []


def test_what_a_dead_run_left_and_can_not_be_removed_now_stops_nobody(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(*_: object) -> None:
        raise OSError("the storage is away")

    before = bus.carried()
    with monkeypatch.context() as patch, pytest.raises(JournalError):
        patch.setattr(storage, "publish", away)
        patch.setattr(storage, "remove", away)
        bus.archive()
    with monkeypatch.context() as patch:
        patch.setattr(storage, "remove", away)
        bus.archive()
    assert "which a run that was broken off left, can't be removed now (the storage is away)" in caplog.text
    assert (bus.carried(), bus.live()) == (before, [])
    bus.restore(envelope_at(bus, 1))
    with reading(bus.url) as connection:
        states = set(connection.execute(sa.select(model.archive_file.c.state)).scalars())
    assert states == {"kept"}


def test_one_run_at_a_time(bus: Bus) -> None:
    with begun(bus.url, bus.clock, Ids()), pytest.raises(Failed) as caught:
        bus.archive()
    assert caught.value.code == "archive_busy"


def test_a_run_whose_place_was_taken_changes_nothing_more(bus: Bus) -> None:
    def be_overtaken(plans: Sequence[FilePlan], wrote: Callable[[int], None]) -> Sequence[FileWritten | CopyFailed]:
        written = bus.copy(plans, wrote)
        bus.clock.go_on(60)
        assert bus.archive().envelopes == 7
        return written

    before = bus.carried()
    with pytest.raises(JournalError) as caught:
        bus.archive(be_overtaken)

    assert (caught.value.code, bus.carried()) == ("archive_overtaken", before)
    with reading(bus.url) as connection:
        assert len(bus.files()) == len(connection.execute(sa.select(model.archive_file)).all())


async def test_what_is_repeated_at_that_moment_stays(bus: Bus) -> None:
    """The transaction of the repeat is open when it is decided what may go."""
    if not bus.url.startswith("postgresql"):
        pytest.skip("SQLite lets one write at a time")
    before = bus.carried()
    async with Journal.open(bus.url, "other") as journal:
        scribe = await Scribe.of(journal)
        with reading(bus.url) as connection:
            first = sa.select(model.envelope.c.id).where(model.envelope.c.position == 1)
            envelope_id: uuid.UUID = connection.execute(first).scalar_one()
        write = await scribe.again(envelope_id)
    waits = sa.text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )

    def is_locked_out() -> bool:
        with reading(bus.url) as connection:
            return bool(connection.execute(waits).scalar_one())

    with ThreadPoolExecutor() as threads:
        with looking(bus.url) as repeating:
            repeat(repeating, [write])
            archiving = threads.submit(bus.archive)
            wait_until(lambda: archiving.done() or is_locked_out(), "the archive meets what comes again")
        archiving.result()

    with reading(bus.url) as connection:
        assert connection.execute(first.where(model.envelope.c.pruned_at.is_(None))).scalar_one() == envelope_id
    assert [row for row in bus.carried() if row[0] < 9] == before
    assert [row[1:] for row in bus.live() if row[0] == 9] == [row[1:] for row in before if row[0] == 1]


def test_retention_leaves_alone_what_is_archived(bus: Bus) -> None:
    before = bus.carried()
    bus.archive()
    later = OLD + timedelta(days=400)
    with looking(bus.url) as connection:
        after: int | None = 0
        while after is not None:
            done: PruningStep = prune_settled(
                connection, "broker", after, Scan(Rules(Rule(later))), later, keep_rows=False
            )
            after = done.after

    assert bus.carried() == before


def test_segments_come_out_of_a_file_by_position(bus: Bus) -> None:
    bus.archive()
    with reading(bus.url) as connection:
        type_id = read_type_id(connection, "notes")
        assert type_id is not None
        notes = next(file for file in archived_files(connection, type_id, 0, 2) if 2 in file.positions)
    assert sum(segment.items for segment in read_segments(notes.location, 2)) > 0


@pytest.mark.slow
@pytest.mark.parametrize("what", ["archive", "restore"])
def test_killed_at_each_step_nothing_is_lost_or_doubled(bus: Bus, what: str) -> None:
    before = bus.carried()
    if what == "restore":
        bus.archive()
    # What it imports takes longer than what it does.
    set_forkserver_preload([__name__, "pyarrow.parquet"])
    kills = 0
    while _killed(bus, what, kills):
        kills += 1
        assert bus.carried() == before
        # The next run takes the dead one's place when its lease is over.
        bus.clock.go_on(60)
    assert kills > 8

    bus.archive()

    assert bus.carried() == before
    with reading(bus.url) as connection:
        kept = connection.execute(sa.select(model.archive_file.c.location, model.archive_file.c.state)).all()
    assert sorted(kept) == [(str(path), "kept") for path in bus.files()]
    assert sum(pq.ParquetFile(path).metadata.num_rows for path in bus.files()) == len(before)


def _killed(bus: Bus, what: str, step: int) -> bool:
    """Whether a run in a process of its own, which is killed at its step of that number, came so far."""
    process = get_context("forkserver").Process(target=_run_until, args=(bus, what, step))
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


def _run_until(bus: Bus, what: str, last_step: int) -> None:
    steps = 0

    def on_step(_: str) -> None:
        nonlocal steps
        if steps == last_step:
            os.kill(os.getpid(), signal.SIGKILL)
        steps += 1

    def copy(plans: Sequence[FilePlan], wrote: Callable[[int], None]) -> Sequence[FileWritten | CopyFailed]:
        written: list[FileWritten | CopyFailed] = []
        for plan in plans:
            written += bus.copy([plan], wrote)
            on_step("copied")
        return written

    if what == "archive":
        bus.archive(copy, on_step)
        return
    with reading(bus.url) as connection:
        archived = sa.select(model.envelope.c.id).where(model.envelope.c.pruned_at.is_not(None))
        ids = connection.execute(archived.order_by(model.envelope.c.position.desc())).scalars().all()
    for envelope_id in ids:
        try:
            bus.restore(envelope_id, on_step)
        except Refused as error:
            assert error.code == "not_archived"
