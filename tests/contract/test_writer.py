"""Group commit, and what the journal says and does when the database fails: the same on every database."""

import asyncio
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg2
import pytest
import sqlalchemy as sa

from tests.support.faults import Faults, commits_of
from tests.support.journal import Scribe, add_small_bus, keep_busy, looking
from tests.support.waiting import DEADLINE_SECONDS, eventually
from xbus import model
from xbus.broker.journal.database.connection import writing
from xbus.broker.journal.database.engine import create_engine
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.catalog import read_version
from xbus.broker.journal.log.envelopes import read_envelope
from xbus.broker.journal.log.reading import read_head
from xbus.broker.journal.retention.pruning import read_stored_bytes
from xbus.errors import ConfigurationError, JournalError, JournalUnavailable, Refused, TakenOver
from xbus.states import EnvelopeState


def _noted(carried_out: list[int], row: int) -> Callable[[sa.Connection], int]:
    def step(connection: sa.Connection) -> int:
        carried_out.append(row)
        connection.execute(sa.select(sa.literal(row))).one()
        return row

    return step


@pytest.fixture
def faults(engine: sa.Engine) -> Faults:
    return Faults(engine)


# -- outages ---------------------------------------------------------------------------------------------------------


async def test_a_write_that_was_not_committed_fails_and_leaves_nothing(
    journal: Journal, scribe: Scribe, faults: Faults
) -> None:
    with faults.before_commit():
        envelope_id, started = scribe.start_envelope()
        with pytest.raises(JournalUnavailable):
            await started
    assert await journal.read(read_envelope, envelope_id) is None
    assert (await scribe.put([b"x"])).position == 1


async def test_a_group_is_kept_whole_or_not_at_all(journal: Journal, scribe: Scribe, faults: Faults) -> None:
    release = keep_busy(journal)
    with faults.before_commit(skipped=1):
        envelopes = [scribe.start_envelope() for _ in range(3)]
        release.set()
        outcomes = await asyncio.gather(*(started for _, started in envelopes), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [JournalUnavailable] * 3
    assert [await journal.read(read_envelope, envelope_id) for envelope_id, _ in envelopes] == [None] * 3


async def test_what_arrived_meanwhile_is_one_commit(journal: Journal, scribe: Scribe, engine: sa.Engine) -> None:
    release = keep_busy(journal)
    commits = commits_of(engine)
    answers = [scribe.put([b"x"]) for _ in range(20)]
    pending = [asyncio.ensure_future(answer) for answer in answers]
    await asyncio.sleep(0)
    release.set()
    receipts = await asyncio.gather(*pending)
    assert len(receipts) == 20
    # That of the errand which kept the writer busy, and one for all.
    assert len(commits) == 2


async def test_steps_share_a_commit_and_lock_in_the_order_of_their_rows(journal: Journal, engine: sa.Engine) -> None:
    carried_out: list[int] = []
    release = keep_busy(journal)
    commits = commits_of(engine)
    steps = [asyncio.ensure_future(journal.step(row, _noted(carried_out, row))) for row in (3, 1, 2)]
    await asyncio.sleep(0)
    release.set()
    assert await asyncio.gather(*steps) == [3, 1, 2]
    assert carried_out == [1, 2, 3]
    # That of the errand which kept the writer busy, and one for all.
    assert len(commits) == 2


async def test_many_steps_keep_no_write_waiting_and_stay_in_front_of_an_errand(
    journal: Journal, scribe: Scribe
) -> None:
    release = keep_busy(journal)
    answered: list[str] = []

    def note(name: str, done: "asyncio.Future[Any]") -> None:
        done.add_done_callback(lambda _: answered.append(name))

    carried_out: list[int] = []
    steps = [asyncio.ensure_future(journal.step(row, _noted(carried_out, row))) for row in range(1_000)]
    await asyncio.sleep(0)
    put = asyncio.ensure_future(scribe.put([b"x"]))
    await asyncio.sleep(0)
    errand = asyncio.ensure_future(journal.run(lambda connection: [*carried_out]))
    for name, done in [("put", put), ("last step", steps[-1])]:
        note(name, done)
    await asyncio.sleep(0)
    release.set()
    await asyncio.gather(*steps)
    assert answered == ["put", "last step"]
    assert await errand == [*range(1_000)], "an errand sees what was submitted before it"


async def test_a_step_that_is_refused_takes_no_other_one_with_it(journal: Journal, scribe: Scribe) -> None:
    release = keep_busy(journal)

    def refuse(connection: sa.Connection) -> None:
        connection.execute(sa.delete(model.writer))
        raise Refused("no", "go", code="lease_lost")

    steps = [asyncio.ensure_future(journal.step(1, _noted([], 1))), asyncio.ensure_future(journal.step(2, refuse))]
    put = asyncio.ensure_future(scribe.put([b"x"]))
    await asyncio.sleep(0)
    release.set()
    done, refused = await asyncio.gather(*steps, return_exceptions=True)
    assert done == 1
    assert isinstance(refused, Refused)
    assert (await put).position == 1
    assert (await scribe.put([b"x"])).position == 2, "what was refused has left nothing"


async def test_steps_fail_together_while_the_database_is_away(journal: Journal, faults: Faults) -> None:
    release = keep_busy(journal)
    with faults.before_commit(skipped=1):
        steps = [asyncio.ensure_future(journal.step(row, _noted([], row))) for row in (1, 2)]
        await asyncio.sleep(0)
        release.set()
        outcomes = await asyncio.gather(*steps, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [JournalUnavailable] * 2
    assert journal.outage is not None
    assert await journal.step(1, _noted([], 1)) == 1
    assert journal.outage is None


async def test_a_commit_whose_confirmation_got_lost_is_found_out(
    journal: Journal, scribe: Scribe, faults: Faults
) -> None:
    with faults.after_commit():
        envelope_id, started = scribe.start_envelope()
        await started
    assert await journal.read(read_envelope, envelope_id) is not None
    assert (await scribe.put([b"x"])).position == 1


async def test_calls_made_before_a_failure_was_told_are_refused(
    journal: Journal, scribe: Scribe, faults: Faults
) -> None:
    """They may build on what failed, so none of them may be kept."""
    with faults.before_commit() as happened:
        first_id, first = scribe.start_envelope()
        await asyncio.sleep(0)  # the writer hands over when a turn of the loop is done
        # The loop stands still meanwhile, so it can't be told of the failure before it makes these calls.
        assert happened.wait(DEADLINE_SECONDS)
        later = [scribe.start_envelope() for _ in range(3)]
        outcomes = await asyncio.gather(first, *(started for _, started in later), return_exceptions=True)
    assert all(isinstance(outcome, JournalUnavailable) for outcome in outcomes)
    for envelope_id in (first_id, *(envelope_id for envelope_id, _ in later)):
        assert await journal.read(read_envelope, envelope_id) is None


async def test_no_envelope_is_sealed_without_items_that_were_refused_behind_a_failure(
    journal: Journal, scribe: Scribe, faults: Faults
) -> None:
    """1. A group fails. 2. Items are sent. 3. The failure is told. 4. Their seal is sent. 5. The items are refused."""
    envelope_id, started = scribe.start_envelope()
    event_id, event_started = scribe.start_event(envelope_id)
    await asyncio.gather(started, event_started)
    with faults.before_commit() as happened:
        _, failing = scribe.start_envelope()
        await asyncio.sleep(0)  # the writer hands over when a turn of the loop is done
        # The loop stands still meanwhile, so it can't be told of the failure before it sends the items.
        assert happened.wait(DEADLINE_SECONDS)
    release = keep_busy(journal)
    appended = scribe.append(envelope_id, event_id, 0, [b"x"])
    with pytest.raises(JournalUnavailable):
        await failing
    await asyncio.sleep(0)  # calls of the next turn of the loop know of the failure
    ended = scribe.end_event(envelope_id, event_id, 1)
    seal = journal.write(scribe.seal_of_one_append(envelope_id, event_id, b"x"))
    release.set()
    outcomes = await asyncio.gather(appended, ended, seal, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [JournalUnavailable] * 3
    stored = await journal.read(read_envelope, envelope_id)
    assert stored is not None
    assert stored.state is EnvelopeState.OPEN


async def test_calls_made_after_a_failure_was_told_go_on(scribe: Scribe, faults: Faults) -> None:
    with faults.before_commit():
        with pytest.raises(JournalUnavailable):
            await scribe.start_envelope()[1]
        assert (await scribe.put([b"x"])).position == 1


async def test_an_outage_in_a_group_that_is_redone_refuses_the_rest_of_it(
    journal: Journal, scribe: Scribe, faults: Faults
) -> None:
    release = keep_busy(journal)
    bad = scribe.seal(uuid.uuid4(), 0, 0)
    first_id, first = scribe.start_envelope()
    second_id, second = scribe.start_envelope()
    with faults.before_commit(skipped=1):
        release.set()
        outcomes = await asyncio.gather(bad, first, second, return_exceptions=True)
    # The group failed because of the bad call, which then failed alone; the commit of the first good one was lost.
    assert [type(outcome) for outcome in outcomes] == [JournalError, JournalUnavailable, JournalUnavailable]
    assert await journal.read(read_envelope, first_id) is None
    assert await journal.read(read_envelope, second_id) is None


async def test_what_became_of_a_commit_is_asked_until_it_can_be_told(
    engine: sa.Engine,
) -> None:
    async with Journal(engine, "broker", ask_again_seconds=0.001) as journal:
        scribe = await Scribe.of(journal)
        with Faults(engine).after_commit(), _unreachable(engine, times=3):
            envelope_id, started = scribe.start_envelope()
            await started
        assert await journal.read(read_envelope, envelope_id) is not None


async def test_a_group_that_is_found_committed_late_counts_as_others_do(engine: sa.Engine) -> None:
    async with Journal(engine, "broker", ask_again_seconds=0.001) as journal:
        scribe = await Scribe.of(journal)
        figures = journal.commits
        before = sum(figures.seconds.counts), sum(figures.writes.counts)
        with Faults(engine).after_commit(), _unreachable(engine, times=3):
            await scribe.put([b"x" * 100])
        assert journal.stored_bytes == await journal.read(read_stored_bytes) > 100
        assert (sum(figures.seconds.counts), sum(figures.writes.counts)) == (before[0] + 1, before[1] + 1)


async def test_a_call_at_fault_leaves_most_of_the_others_together(
    engine: sa.Engine, journal: Journal, scribe: Scribe
) -> None:
    commits = commits_of(engine)
    envelope_id, *before = scribe.start_envelope()
    before += [scribe.start_envelope()[1] for _ in range(30)]
    wrong = scribe.end_event(envelope_id, uuid.uuid4(), 1)
    builds_on_it = scribe.seal(envelope_id, 0, 0)
    behind = [scribe.start_envelope()[1] for _ in range(31)]
    with pytest.raises(JournalError, match="is not there to be ended"):
        await wrong
    with pytest.raises(JournalUnavailable, match="before this one failed"):
        await builds_on_it
    await asyncio.gather(*before, *behind)
    assert len(commits) <= 2 * (64).bit_length()


async def test_no_group_is_taken_for_an_earlier_one(journal: Journal, scribe: Scribe, faults: Faults) -> None:
    """The number of one that failed must not speak for the next."""
    await scribe.start_envelope()[1]
    for _ in range(2):
        with faults.before_commit():
            envelope_id, started = scribe.start_envelope()
            with pytest.raises(JournalUnavailable):
                await started
        assert await journal.read(read_envelope, envelope_id) is None


@contextmanager
def _unreachable(engine: sa.Engine, times: int) -> Iterator[None]:
    """So many questions about the number of a group find no database."""
    left = times

    def refuse(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        nonlocal left
        if statement.lstrip().startswith("SELECT writer.") and left:
            left -= 1
            raise sa.exc.OperationalError(statement, {}, Exception("the database is away"))

    sa.event.listen(engine, "before_cursor_execute", refuse)
    try:
        yield
    finally:
        sa.event.remove(engine, "before_cursor_execute", refuse)


async def test_reading_goes_on_after_a_failed_read(journal: Journal) -> None:
    def fail(connection: sa.Connection) -> None:
        raise sa.exc.OperationalError("SELECT", {}, Exception("the database went away"))

    with pytest.raises(JournalUnavailable, match="went away"):
        await journal.read(fail)
    assert await journal.read(read_head) == 0


# -- a PostgreSQL that cuts connections ------------------------------------------------------------------------------


def cut_connections(url: str) -> None:
    """End all connections to the database but one's own."""
    with closing(psycopg2.connect(url.replace("+psycopg2", ""))) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )


async def test_a_cut_connection_is_made_anew(store_url: str) -> None:
    async with Journal(create_engine(store_url), "broker") as journal:
        scribe = await Scribe.of(journal)
        await scribe.put([b"x"])
        await asyncio.to_thread(cut_connections, store_url)
        envelope_id, started = scribe.start_envelope()
        with pytest.raises(JournalUnavailable):
            await started
        assert (await scribe.put([b"x"])).position == 2
        # Each reader finds out once.
        for _ in range(3):
            try:
                assert await journal.read(read_envelope, envelope_id) is None
            except JournalUnavailable:
                continue
        assert await journal.read(read_head) == 2


async def test_a_connection_cut_while_items_are_written_is_an_outage(store_url: str) -> None:
    async with Journal(create_engine(store_url), "broker") as journal:
        scribe = await Scribe.of(journal)
        envelope_id, _ = scribe.start_envelope()
        event_id, started = scribe.start_event(envelope_id)
        await started
        await asyncio.to_thread(cut_connections, store_url)
        with pytest.raises(JournalUnavailable):
            await scribe.append(envelope_id, event_id, 0, [b"x"])
        await scribe.append(envelope_id, event_id, 0, [b"x"])
        await scribe.end_event(envelope_id, event_id, 1)
        assert (await scribe.seal(envelope_id, 1, 1)).items == 1


async def test_a_connection_cut_after_a_commit_is_found_out(store_url: str) -> None:
    engine = create_engine(store_url)
    async with Journal(engine, "broker") as journal:
        scribe = await Scribe.of(journal)
        dialect: Any = engine.dialect
        commit = dialect.do_commit

        def commit_and_cut(connection: Any) -> None:
            commit(connection)
            dialect.do_commit = commit
            cut_connections(store_url)
            connection.cursor().execute("SELECT 1")

        dialect.do_commit = commit_and_cut
        envelope_id, started = scribe.start_envelope()
        await started
        with looking(store_url) as connection:
            assert read_envelope(connection, envelope_id) is not None


async def test_a_database_that_is_not_there(tmp_path: Path) -> None:
    missing = create_engine(f"sqlite:///{tmp_path / 'no' / 'such' / 'folder.db'}")
    with pytest.raises(JournalUnavailable):
        async with Journal(missing, "broker"):
            pass


# -- pressure --------------------------------------------------------------------------------------------------------


async def test_what_is_not_yet_committed_is_bounded(engine: sa.Engine) -> None:
    told: list[bool] = []
    async with Journal(engine, "broker", max_pending_bytes=10_000) as journal:
        scribe = await Scribe.of(journal)
        journal.on_room(lambda: told.append(journal.has_room))
        envelope_id, _ = scribe.start_envelope()
        event_id, _ = scribe.start_event(envelope_id)
        rooms = [journal.has_room]
        last = [scribe.append(envelope_id, event_id, index, [b"x" * 1000]) for index in range(12)]
        rooms.append(journal.has_room)
        await asyncio.gather(*last)
        await eventually(lambda: journal.has_room, "room")
    assert rooms == [True, False]
    assert told == [True]


# -- who writes ------------------------------------------------------------------------------------------------------


async def test_a_superseded_writer_dies(store_url: str) -> None:
    async with Journal(create_engine(store_url), "front") as journal:
        scribe = await Scribe.of(journal)
        async with Journal(create_engine(store_url), "front") as newer:
            _, started = scribe.start_envelope()
            with pytest.raises(TakenOver):
                await journal.ended()
            with pytest.raises(JournalUnavailable):
                await started
            assert (await Scribe(newer, scribe.catalog).put([b"x"])).position == 1


async def test_front_and_back_write_side_by_side(store_url: str) -> None:
    async with (
        Journal(create_engine(store_url), "front") as front,
        Journal(create_engine(store_url), "back") as back,
    ):
        scribe = await Scribe.of(front)
        other = Scribe(back, scribe.catalog)
        receipts = await asyncio.gather(*(each.put([b"x"]) for each in (scribe, other) for _ in range(10)))
    assert sorted(receipt.position for receipt in receipts) == list(range(1, 21))


async def test_each_start_takes_a_new_epoch_and_goes_on_counting_groups(sqlite_url: str) -> None:
    for epoch in (1, 2):
        async with Journal(create_engine(sqlite_url), "broker"):
            pass
        with looking(sqlite_url) as connection:
            assert connection.execute(sa.select(model.writer.c.name, model.writer.c.epoch)).one() == ("broker", epoch)


# -- the end ---------------------------------------------------------------------------------------------------------


async def test_what_was_written_before_the_end_is_committed(file_url: str) -> None:
    async with Journal(create_engine(file_url), "broker") as journal:
        scribe = await Scribe.of(journal)
        envelope_id, _ = scribe.start_envelope()
    with looking(file_url) as connection:
        assert read_envelope(connection, envelope_id) is not None


async def test_a_closed_journal_takes_nothing(engine: sa.Engine) -> None:
    async with Journal(engine, "broker") as journal:
        scribe = await Scribe.of(journal)
    with pytest.raises(JournalUnavailable):
        await scribe.start_envelope()[1]
    await journal.ended()


async def test_a_journal_that_is_being_closed_takes_nothing(engine: sa.Engine) -> None:
    journal = Journal(engine, "broker")
    async with journal:
        scribe = await Scribe.of(journal)
        closing_down = asyncio.ensure_future(journal.__aexit__(None, None, None))
        await asyncio.sleep(0)
        with pytest.raises(JournalUnavailable):
            await scribe.start_envelope()[1]
        await closing_down


# -- durability ------------------------------------------------------------------------------------------------------


def unsafe_by_database(connection: Any, name: str) -> None:
    connection.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off')


def unsafe_by_role(connection: Any, name: str) -> None:
    connection.execute(f'ALTER ROLE CURRENT_USER IN DATABASE "{name}" SET synchronous_commit = off')


@pytest.mark.parametrize("make_unsafe", [unsafe_by_database, unsafe_by_role])
async def test_a_postgresql_that_does_not_wait_for_its_disk_is_refused(
    store_url: str, make_unsafe: Callable[[Any, str], None]
) -> None:
    with closing(psycopg2.connect(store_url.replace("+psycopg2", ""))) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            make_unsafe(cursor, connection.info.dbname)
    with pytest.raises(ConfigurationError, match="synchronous_commit = off"):
        async with Journal(create_engine(store_url), "broker"):
            pass


async def test_a_session_that_does_not_wait_for_the_disk_is_refused(store_url: str) -> None:
    engine = create_engine(f"{store_url}?options=-csynchronous_commit%3Doff")
    with pytest.raises(ConfigurationError, match="synchronous_commit = off"):
        async with Journal(engine, "broker"):
            pass


async def test_an_sqlite_file_is_in_wal_and_synced_at_each_commit(sqlite_url: str) -> None:
    async with Journal(create_engine(sqlite_url), "broker") as journal:

        def pragmas(connection: sa.Connection) -> tuple[object, ...]:
            names = ("journal_mode", "synchronous", "foreign_keys")
            return tuple(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in names)

        assert await journal.read(pragmas) == ("wal", 2, 1)
        assert await journal.read(read_version) == 1


async def test_how_much_is_stored_is_counted_with_it(journal: Journal, scribe: Scribe) -> None:
    before = await journal.read(read_stored_bytes)
    receipts = [await scribe.put([b"x" * 100], [b"y"]), await scribe.put([b"z" * 50_000])]
    stored = sum(receipt.data_bytes for receipt in receipts)
    assert await journal.read(read_stored_bytes) - before == stored == journal.stored_bytes
    envelope_id, _ = scribe.start_envelope()
    with pytest.raises(JournalError):
        await scribe.append(envelope_id, uuid.uuid4(), 0, [b"nowhere"])
    assert await journal.read(read_stored_bytes) - before == stored == journal.stored_bytes


async def test_a_full_disk_that_takes_small_writes_is_told_until_it_takes_large_ones(sqlite_url: str) -> None:
    with writing(sqlite_url) as connection:
        add_small_bus(connection)
    async with Journal(create_engine(sqlite_url), "broker", ask_again_seconds=0.001) as journal:
        scribe = await Scribe.of(journal)

        def let_grow(connection: sa.Connection, pages: int) -> None:
            present = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            connection.exec_driver_sql(f"PRAGMA max_page_count = {present + pages}")

        await journal.run(let_grow, 20)
        with pytest.raises(JournalUnavailable, match="full"):
            await scribe.put([bytes(2_000_000)])
        for _ in range(10):
            await scribe.put([b"small"])
            assert journal.outage is not None
        await journal.run(let_grow, 10_000)
        await eventually(lambda: journal.outage is None, "the writer finds that there is room")
        assert await journal.read(rehearsals) == 0
        await scribe.put([bytes(2_000_000)])


def rehearsals(connection: sa.Connection) -> int:
    found = sa.select(sa.func.count()).where(model.history.c.subject == "rehearsal")
    return int(connection.execute(found).scalar_one())
