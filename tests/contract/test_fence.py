"""A broker writes no more once another one has taken over, or once the journal went back."""

import ast
import asyncio
import gc
import re
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast
from unittest.mock import MagicMock
from uuid import uuid4

import pytest
import sqlalchemy as sa
from psycopg2.errors import DivisionByZero

import xbus.broker
from tests.support.faults import Faults
from tests.support.journal import NOW, Scribe, looking
from xbus import model
from xbus.broker import daemon
from xbus.broker.back.log import LogReader
from xbus.broker.journal import journal as journal_module
from xbus.broker.journal.commit.committer import _PREPARE_GUARD, Fence, Seen, SeenEnd
from xbus.broker.journal.commit.statements.common import remember
from xbus.broker.journal.commit.writer import LOOK_SECONDS
from xbus.broker.journal.database.engine import READ_ONLY, WRITES, DriverTransaction, create_engine, driver_of
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.envelopes import read_envelope
from xbus.config import Config, DatabaseSettings
from xbus.errors import Fenced, JournalUnavailable, TakenOver, WentBack
from xbus.rpc.bell import Bell
from xbus.states import EnvelopeState

QUICK, NEVER = 0.01, 3600.0

TAKEN_OVER_SECONDS = 2.0
"""Seconds within which a broker without work ends once another one has taken over."""


def leave_mark(connection: sa.Connection) -> None:
    remember(connection, NOW, "mark", "mark", "made", "by a fenced writer")


async def by_write(scribe: Scribe) -> None:
    await scribe.put([b"y"])


async def by_errand(scribe: Scribe) -> None:
    await scribe.journal.run(leave_mark)


async def by_step(scribe: Scribe) -> None:
    await scribe.journal.step(1, leave_mark)


async def by_steps(scribe: Scribe) -> None:
    await asyncio.gather(*(scribe.journal.step(row, leave_mark) for row in (1, 2)))


WRITING = [by_write, by_errand, by_step, by_steps]
"""All that the face of the journal lets others write by."""

Way = Callable[[Scribe], Awaitable[None]]


def go_back(url: str, groups: int, envelopes: int = 0) -> None:
    """Leave the journal as a standby has it that lacks the last commits."""
    with looking(url) as connection:
        group_number = model.writer.c.group_number - groups
        connection.execute(sa.update(model.writer).values(group_number=group_number))
        head = connection.execute(sa.select(model.head.c.position)).scalar_one() - envelopes
        connection.execute(sa.update(model.head).values(position=head))


def marks(url: str) -> int:
    with looking(url) as connection:
        marked = sa.select(sa.func.count()).where(model.history.c.subject == "mark")
        envelopes = sa.select(sa.func.count()).select_from(model.envelope)
        return int(connection.execute(marked).scalar_one() + connection.execute(envelopes).scalar_one())


# -- another broker ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", WRITING)
@pytest.mark.parametrize(
    ("name", "newer"),
    [("broker", "broker"), ("broker", "front"), ("broker", "back"), ("front", "broker"), ("back", "broker")],
)
async def test_a_newer_broker_ends_each_rival_with_its_next_write(
    store_url: str, name: str, newer: str, write: Way
) -> None:
    async with Journal(create_engine(store_url), name, look_seconds=NEVER) as journal:
        scribe = await Scribe.of(journal)
        await scribe.put([b"x"])
        async with Journal(create_engine(store_url), newer) as rival:
            before = marks(store_url)
            with pytest.raises((JournalUnavailable, Fenced)):
                await write(scribe)
            with pytest.raises(TakenOver, match=r"now \(process \d+ on "):
                await journal.ended()
            assert marks(store_url) == before
            assert (await Scribe(rival, scribe.catalog).put([b"x"])).position == 2


async def test_an_idle_broker_ends_by_itself_once_another_has_taken_over(store_url: str) -> None:
    async with Journal(create_engine(store_url), "broker", look_seconds=QUICK) as journal:
        async with Journal(create_engine(store_url), "broker"):
            with pytest.raises(TakenOver):
                await journal.ended()


class TimedRest:
    """The lock for which a writer without work waits, in a time that goes no further than it may."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_locked = False
        self._now = self._end = 0.0
        self.waits_longer = threading.Event()

    def locked(self) -> bool:
        return self._is_locked

    def release(self) -> None:
        with self._changed:
            self._is_locked = False
            self._changed.notify()

    def acquire(self, timeout: float) -> bool:
        """Wait for the lock; where nobody releases it, it is the end of the time-out at once, if time may go so far."""
        with self._changed:
            until = self._now + timeout
            while self._is_locked and until > self._end:
                self.waits_longer.set()
                self._changed.wait()
            if self._is_locked:
                self._now = max(self._now, until)
                return False
            self._is_locked = True
            return True

    def let_go_on(self, seconds: float) -> None:
        with self._changed:
            self._end = self._now + seconds
            self.waits_longer.clear()
            self._changed.notify()


async def test_an_idle_broker_ends_within_two_seconds_at_the_pace_that_brokers_have(store_url: str) -> None:
    """The end takes as long as the machine needs for a look or two; the waits between them are counted."""
    journal, rest = Journal(create_engine(store_url), "broker"), TimedRest()
    journal._writer._nothing_came = cast(Any, rest)
    async with journal, Journal(create_engine(store_url), "broker"):
        rest.let_go_on(TAKEN_OVER_SECONDS)
        ended = asyncio.ensure_future(journal.ended())
        waiting = asyncio.ensure_future(asyncio.to_thread(rest.waits_longer.wait))
        await asyncio.wait([ended, waiting], return_when=asyncio.FIRST_COMPLETED)
        has_ended = ended.done()
        rest.let_go_on(NEVER)
        with pytest.raises(TakenOver):
            await ended
        rest.waits_longer.set()
        await waiting
    assert has_ended


async def test_a_call_that_came_amid_another_one_leads_to_no_look(file_url: str) -> None:
    """It was taken without a wait, so that the next wait finds the lock free."""
    engine = create_engine(file_url)
    journal, rest = Journal(engine, "broker"), TimedRest()
    journal._writer._nothing_came = cast(Any, rest)
    is_amid, goes_on = threading.Event(), threading.Event()
    looks: list[str] = []

    def first(_: sa.Connection) -> None:
        is_amid.set()
        goes_on.wait()

    def note(connection: Any, cursor: Any, statement: str, *others: Any) -> None:
        if statement.startswith("SELECT writer."):
            looks.append(statement)

    sa.event.listen(engine, "before_cursor_execute", note)
    async with journal:
        done = asyncio.create_task(journal.run(first))
        await asyncio.to_thread(is_amid.wait)
        also_done = asyncio.create_task(journal.run(lambda _: None))
        await asyncio.sleep(0)
        looks.clear()
        rest.waits_longer.clear()
        goes_on.set()
        await asyncio.gather(done, also_done)
        await asyncio.to_thread(rest.waits_longer.wait)
        assert not looks
        rest.let_go_on(NEVER)


def test_the_program_of_the_broker_has_that_pace(
    file_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = MagicMock(side_effect=InterruptedError)
    monkeypatch.setattr(journal_module, "Writer", begun)
    monkeypatch.setattr(daemon, "new_context", MagicMock())
    with pytest.raises(InterruptedError):
        daemon.run(Config(database=DatabaseSettings(url=file_url)), tmp_path, only=None, ready_file=None)
    assert begun.call_args.kwargs["pace"].look == LOOK_SECONDS


async def test_an_idle_broker_looks_without_writing(shared_url: str) -> None:
    engine = create_engine(shared_url)
    told: list[str] = []
    is_idle, looked = threading.Event(), threading.Event()

    def note(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if is_idle.is_set():
            told.append(statement.split()[0])
            if len(told) == 3:
                looked.set()

    sa.event.listen(engine, "before_cursor_execute", note)
    async with Journal(engine, "broker", look_seconds=QUICK) as journal:
        await journal.run(lambda _: None)
        is_idle.set()
        await asyncio.to_thread(looked.wait)
    assert set(told) == {"SELECT"}


async def test_a_writer_does_not_look_before_it_has_begun(file_url: str) -> None:
    """Its loop may be busy for longer than the time of a look."""
    async with Journal(create_engine(file_url), "broker"):
        pass
    async with Journal(create_engine(file_url), "broker", look_seconds=0.0) as journal:
        await journal.run(lambda _: None)


async def test_a_broker_that_was_stopped_amid_a_transaction_keeps_no_successor_waiting(store_url: str) -> None:
    """1. A locks the end of the log, and is stopped. 2. B takes over, and seals. 3. A goes on, and ends."""
    frozen, goes_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def freeze(connection: sa.Connection) -> None:
        connection.execute(sa.update(model.head).values(position=model.head.c.position))
        connection.execute(sa.update(model.writer).values(stored_bytes=0))
        loop.call_soon_threadsafe(frozen.set)
        goes_on.wait()

    async with Journal(create_engine(store_url), "broker", look_seconds=QUICK) as journal:
        scribe = await Scribe.of(journal)
        left = asyncio.ensure_future(journal.run(freeze))
        await frozen.wait()
        try:
            async with Journal(create_engine(store_url), "broker") as rival:
                assert (await Scribe(rival, scribe.catalog).put([b"x"])).position == 1
                goes_on.set()
                with pytest.raises(JournalUnavailable):
                    await left
                with pytest.raises(TakenOver):
                    await journal.ended()
        finally:
            goes_on.set()


async def test_front_and_back_are_no_rivals(store_url: str) -> None:
    async with (
        Journal(create_engine(store_url), "front", look_seconds=QUICK) as front,
        Journal(create_engine(store_url), "back", look_seconds=QUICK) as back,
    ):
        for journal in (front, back, front):
            await by_errand(await Scribe.of(journal))


# -- a journal that went back ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", WRITING)
async def test_no_write_goes_on_behind_lost_commits(shared_url: str, write: Way) -> None:
    async with Journal(create_engine(shared_url), "broker", look_seconds=NEVER) as journal:
        scribe = await Scribe.of(journal)
        for _ in range(3):
            await scribe.put([b"x"])
        await asyncio.to_thread(go_back, shared_url, 2)
        before = marks(shared_url)
        with pytest.raises((JournalUnavailable, Fenced)):
            await write(scribe)
        with pytest.raises(WentBack) as raised:
            await journal.ended()
    assert raised.value.commits == 2
    assert marks(shared_url) == before
    async with Journal(create_engine(shared_url), "broker") as anew:
        await write(Scribe(anew, scribe.catalog))


@pytest.mark.parametrize("write", WRITING[1:])
async def test_a_lost_errand_is_a_lost_commit(shared_url: str, write: Way) -> None:
    async with Journal(create_engine(shared_url), "broker", look_seconds=QUICK) as journal:
        await write(await Scribe.of(journal))
        await asyncio.to_thread(go_back, shared_url, 1)
        with pytest.raises(WentBack):
            await journal.ended()


@pytest.mark.parametrize("column", ["epoch", "all"])
async def test_a_journal_of_before_the_start_went_back(shared_url: str, column: str) -> None:
    def lose(url: str) -> None:
        with looking(url) as connection:
            change = sa.update(model.writer).values(epoch=model.writer.c.epoch - 1)
            connection.execute(change if column == "epoch" else sa.delete(model.writer))

    async with Journal(create_engine(shared_url), "broker", look_seconds=QUICK) as journal:
        await asyncio.to_thread(lose, shared_url)
        with pytest.raises(WentBack):
            await journal.ended()


async def test_a_back_alone_notices_that_the_log_is_shorter_than_it_has_read(shared_url: str) -> None:
    async with Journal(create_engine(shared_url), "broker") as journal:
        log = LogReader(journal, cast(Bell, None))
        await (await Scribe.of(journal)).put([b"x"])
        await log.refresh()
        await asyncio.to_thread(go_back, shared_url, 0, 1)
        with pytest.raises(WentBack) as raised:
            await log.refresh()
    assert (raised.value.known, raised.value.found) == (1, 0)


async def test_a_back_alone_notices_another_envelope_at_the_place_up_to_which_it_has_read(shared_url: str) -> None:
    async with Journal(create_engine(shared_url), "broker") as journal:
        log = LogReader(journal, cast(Bell, None))
        await (await Scribe.of(journal)).put([b"x"])
        await log.refresh()
        await asyncio.to_thread(swap_envelope, shared_url)
        with pytest.raises(WentBack):
            await log.refresh()


def swap_envelope(url: str) -> None:
    """Have another envelope at the first position, as somebody has sealed it behind a fail-over."""
    with looking(url) as connection:
        row = dict(connection.execute(sa.select(model.envelope)).mappings().one())
        connection.execute(sa.update(model.envelope).values(position=None, state="cancelled"))
        connection.execute(sa.insert(model.envelope).values(row | {"id": uuid4()}))


@pytest.mark.parametrize("seen", [SeenEnd(2, uuid4().bytes), SeenEnd(1, uuid4().bytes)])
async def test_the_first_write_of_a_connection_compares_the_end_of_the_log(shared_url: str, seen: SeenEnd) -> None:
    """A back may have lost nothing of its own, and moves its cursors behind what was sealed anew."""
    async with Journal(create_engine(shared_url), "back", look_seconds=NEVER) as journal:
        await (await Scribe.of(journal)).put([b"x"])
        journal.saw(seen)
        journal._writer.run(lambda _: journal._writer._committer.close())
        with pytest.raises((JournalUnavailable, Fenced)):
            await journal.run(leave_mark)
        with pytest.raises(WentBack):
            await journal.ended()


async def test_a_commit_that_was_looked_for_does_not_spare_its_new_connection_the_comparison(shared_url: str) -> None:
    """1. A back commits, and gets no answer. 2. A standby is promoted that has its commit, and lacks an envelope that
    it has read."""
    engine = create_engine(shared_url)
    async with Journal(engine, "back", look_seconds=NEVER) as journal:
        scribe = await Scribe.of(journal)
        await scribe.put([b"x"])
        journal.saw(SeenEnd(2, uuid4().bytes))
        with Faults(engine).after_commit():
            await scribe.start_envelope()[1]
        with pytest.raises((JournalUnavailable, Fenced)):
            await scribe.start_envelope()[1]
        with pytest.raises(WentBack):
            await journal.ended()


# -- what became of a COMMIT -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", WRITING[1:])
async def test_writing_goes_on_behind_an_errand_whose_commit_was_not_answered(
    journal: Journal, scribe: Scribe, engine: sa.Engine, write: Way
) -> None:
    with Faults(engine).after_commit(), pytest.raises(JournalUnavailable):
        await write(scribe)
    assert (await scribe.put([b"x"])).position == 1
    with Faults(engine).before_commit(), pytest.raises(JournalUnavailable):
        await write(scribe)
    assert (await scribe.put([b"x"])).position == 2


async def test_an_errand_waits_until_the_fate_of_a_group_is_known(engine: sa.Engine) -> None:
    """Its number would say that the group was committed, whether or not it was."""
    async with Journal(engine, "broker", ask_again_seconds=NEVER) as journal:
        scribe = await Scribe.of(journal)
        committer = journal._writer._committer
        asked = committer._was_committed
        with Faults(engine).before_commit() as happened:
            committer._was_committed = lambda number: None  # type: ignore[method-assign]
            envelope_id, started = scribe.start_envelope()
            await asyncio.to_thread(happened.wait)
            with pytest.raises(JournalUnavailable):
                await journal.run(leave_mark)
        committer._was_committed = asked  # type: ignore[method-assign]
        await journal.run(leave_mark)
        with pytest.raises(JournalUnavailable):
            await started
        assert await journal.read(read_envelope, envelope_id) is None


async def test_no_envelope_is_sealed_without_items_that_were_refused_while_a_fate_was_unknown(
    engine: sa.Engine,
) -> None:
    """1. The fate of a group is unknown. 2. Items are refused. 3. Their seal, which was sent behind them, finds the
    database back."""
    async with Journal(engine, "broker", ask_again_seconds=NEVER) as journal:
        scribe = await Scribe.of(journal)
        envelope_id, started = scribe.start_envelope()
        event_id, event_started = scribe.start_event(envelope_id)
        await asyncio.gather(started, event_started)
        committer = journal._writer._committer
        asked, has_asked = committer._was_committed, threading.Event()

        def unknown(number: int) -> None:
            has_asked.set()

        with Faults(engine).before_commit():
            committer._was_committed = unknown  # type: ignore[method-assign]
            _, undecided = scribe.start_envelope()
            await asyncio.to_thread(has_asked.wait)
            with pytest.raises(JournalUnavailable):
                await journal.run(leave_mark)
        has_asked.clear()
        appended = scribe.append(envelope_id, event_id, 0, [b"x"])
        await asyncio.sleep(0)  # the writer hands over when a turn of the loop is done
        # The loop stands still meanwhile, so it can't be told of the refusal before it makes these calls.
        has_asked.wait()
        committer._was_committed = asked  # type: ignore[method-assign]
        ended = scribe.end_event(envelope_id, event_id, 1)
        seal = scribe.journal.write(scribe.seal_of_one_append(envelope_id, event_id, b"x"))
        outcomes = await asyncio.gather(undecided, appended, ended, seal, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [JournalUnavailable] * 4
        stored = await journal.read(read_envelope, envelope_id)
        assert stored is not None
        assert stored.state is EnvelopeState.OPEN


async def test_a_commit_is_not_confirmed_by_the_writes_of_another_broker(store_url: str) -> None:
    engine = create_engine(store_url)
    async with Journal(engine, "broker", look_seconds=NEVER) as journal:
        scribe = await Scribe.of(journal)
        with Faults(engine).before_commit():
            committer = journal._writer._committer
            asked = committer._was_committed

            def after_the_other(number: int) -> bool | None:
                with looking(store_url) as connection:
                    writer = model.writer.c
                    values = {"epoch": writer.epoch + 1, "group_number": writer.group_number + 1}
                    connection.execute(sa.update(model.writer).values(values))
                return asked(number)

            committer._was_committed = after_the_other  # type: ignore[method-assign]
            _, started = scribe.start_envelope()
            with pytest.raises(TakenOver):
                await journal.ended()
        with pytest.raises(JournalUnavailable):
            await started


def arrive(url: str, guard: Any) -> None:
    """Have the message of a COMMIT arrive at last."""
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            session: Any = driver_of(connection)
            transaction = DriverTransaction(connection, session)
            session.cursor().execute(_PREPARE_GUARD)
            session.guard = guard
            transaction.commit()
    finally:
        engine.dispose()


@pytest.mark.parametrize("later_groups", [0, 1])
async def test_a_commit_that_arrives_once_its_emitter_was_told_that_it_failed_is_refused(
    store_url: str, later_groups: int
) -> None:
    engine = create_engine(store_url)
    async with Journal(engine, "broker", look_seconds=NEVER, ask_again_seconds=NEVER) as journal:
        scribe = await Scribe.of(journal)
        with Faults(engine).late_commit() as guards:
            _, started = scribe.start_envelope()
            with pytest.raises(JournalUnavailable):
                await started
        for _ in range(later_groups):
            await scribe.put([b"x"])
        with pytest.raises(DivisionByZero):
            await asyncio.to_thread(arrive, store_url, guards[0])
        assert (await scribe.put([b"x"])).position == later_groups + 1


async def test_a_commit_that_arrives_while_it_is_being_looked_for_is_refused(store_url: str) -> None:
    """It finds the row locked, and reads it anew once the look is committed."""
    engine = create_engine(store_url)
    fence = Fence("broker", Seen(), "holder")
    with engine.begin() as connection:
        fence.take_over(connection)
    with engine.connect() as connection:
        session: Any = driver_of(connection)
        transaction = DriverTransaction(connection, session)
        session.cursor().execute("SELECT 1")
        fence.stamp(session)
        guard = session.guard
        transaction.rollback()
    with engine.begin() as connection:
        assert not fence.is_committed(connection, fence.number)
        arriving = asyncio.create_task(asyncio.to_thread(arrive, store_url, guard))
        waits = sa.text("SELECT 1 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))")
        while not arriving.done() and connection.scalar(waits) is None:
            await asyncio.sleep(0)
    with pytest.raises(DivisionByZero):
        await arriving
    engine.dispose()


async def test_a_commit_that_arrives_after_a_look_that_failed_is_confirmed(store_url: str) -> None:
    engine = create_engine(store_url)
    async with Journal(engine, "broker", look_seconds=NEVER, ask_again_seconds=NEVER) as journal:
        scribe = await Scribe.of(journal)
        # The new session commits its name before it looks.
        with Faults(engine).before_commit(skipped=1) as looked, Faults(engine).late_commit() as guards:
            _, started = scribe.start_envelope()
            await asyncio.to_thread(looked.wait)
        await asyncio.to_thread(arrive, store_url, guards[0])
        await journal.run(leave_mark)
        await started
        assert (await scribe.put([b"x"])).position == 1


# -- all places that could write ---------------------------------------------------------------------------------------

BROKER = Path(xbus.broker.__file__).parent

STAMPED = {
    "journal/commit/committer.py:_stamped",
    "journal/commit/committer.py:_transaction",
    "journal/commit/committer.py:_was_committed",
}
READING = {
    "journal/commit/committer.py:_connected",
    "journal/commit/committer.py:look",
    "journal/journal.py:_holder",
    "journal/journal.py:_read",
}
BEFORE_THE_EPOCH = {
    "journal/database/holding.py:write_back",
    "journal/database/promises.py:_transaction",
    "journal/database/promises.py:check_promises",
    "journal/database/promises.py:check_sessions",
    "journal/database/promises.py:warn_of_standby",
    "journal/objects/claiming.py:claim",
}
OF_OTHER_PROGRAMS = {
    "journal/bulk/part_writer.py:_transaction",
    "journal/database/raw_reader.py:fetching",
    "journal/samples/taking.py:take",
}
OF_THE_LEASE = {"leading.py:transaction"}
"""Who leads is about time alone, and waits for no writer; see docs/decisions/0107-a-lease-says-who-leads.md."""
OF_NO_JOURNAL = {
    "journal/configuration/checked.py:_copied",
    "journal/database/foreign.py:read_foreign",
    "journal/database/foreign.py:reading_foreign",
    "journal/legacy_import/reading.py:_forbid_writing",
    "journal/legacy_import/reading.py:reading_legacy",
}
OF_COMMANDS_THAT_READ = {
    "journal/database/clearing_items.py:read_clearing_items",
    "journal/database/connection.py:reading",
    "journal/database/table_rows.py:count_rows",
    "journal/fsck/content.py:check_content",
    "journal/fsck/content.py:check_spent_keys",
    "journal/fsck/values.py:_check_pages_of_sqlite",
    "journal/fsck/values.py:check_checksums",
    "journal/fsck/values.py:check_references",
    "journal/fsck/examination.py:check_audit",
    "journal/fsck/examination.py:check_configuration",
    "journal/fsck/progress.py:check_log",
    "journal/fsck/content.py:check_outputs",
    "journal/fsck/content.py:check_stored_bytes",
    "journal/fsck/progress.py:check_progress",
    "journal/fsck/progress.py:check_readers",
    "journal/fsck/values.py:check_values",
}
INSIDE_TOOLS = {
    "journal/database/connection.py:_connect",
    "journal/database/connection.py:writing",
    "journal/database/engine.py:__init__",
    "journal/database/engine.py:begin",
    "journal/database/connection.py:_taken",
    "journal/database/connection.py:alone",
    "journal/database/connection.py:_transaction",
    "journal/database/postgres_session.py:commit",
}
"""The tools of commands, whose uses are listed below, and the sessions by which all others begin and commit."""

TOOLS_OF_COMMANDS = {"writing", "connected_to_write", "ConnectionPool", "alone"}

WITH_TOOLS_OF_COMMANDS = {
    "cli.py:_set_up",
    "journal/database/schema.py:upgrade",
    "journal/operations/losses.py:note",
    "journal/operations/relocation.py:move",
}
"""``note`` writes when its broker has ended."""


@cache
def calls(source: str) -> Sequence[tuple[str, list[str]]]:
    """All calls of a module: the name of the function that makes each, and the words of what it calls."""

    def of(node: ast.AST, function: str) -> Iterator[tuple[str, list[str]]]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        if isinstance(node, ast.Call):
            yield function, ast.unparse(node.func).split(".")
        for child in ast.iter_child_nodes(node):
            yield from of(child, function)

    return [*of(ast.parse(source), "")]


def places_that_begin(name: str, source: str) -> set[str]:
    """The functions that begin or commit a transaction, or open a connection, whose first statement begins one."""
    found = set()
    for function, words in calls(source):
        of_database = name.startswith("journal/") or re.search("engine|connect(ion|ed)", ".".join(words[:-1]), re.I)
        is_begun = words[-1] in {"begin", "commit", "connect"} and of_database
        if is_begun or words[-1] in {"DriverTransaction", "raw_connection"}:
            found.add(f"{name}:{function}")
    return found


def places_with_tools(name: str, source: str) -> set[str]:
    """The functions that call a tool of commands, by its name or as a part of its module or of a package."""
    renamed = [
        alias.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name in TOOLS_OF_COMMANDS and alias.asname not in (None, alias.name)
    ]
    assert not renamed, f"{name} hides {renamed} under another name"
    return {f"{name}:{function}" for function, words in calls(source) if words[-1] in TOOLS_OF_COMMANDS}


def test_every_transaction_of_the_broker_is_stamped_or_reads() -> None:
    # An error that the collector tells of in the midst of ast.parse breaks that (python/cpython issue 106905).
    gc.collect()
    begun, with_tools = set(), set()
    for path in sorted(BROKER.rglob("*.py")):
        name, source = path.relative_to(BROKER).as_posix(), path.read_text()
        begun |= places_that_begin(name, source)
        with_tools |= places_with_tools(name, source)
    of_commands = OF_COMMANDS_THAT_READ | INSIDE_TOOLS
    known = STAMPED | READING | BEFORE_THE_EPOCH | OF_THE_LEASE | OF_OTHER_PROGRAMS | OF_NO_JOURNAL | of_commands
    assert begun == known
    assert with_tools == WITH_TOOLS_OF_COMMANDS


@pytest.mark.parametrize(
    "line",
    [
        "with engine.begin() as connection: connection.execute(statement)",
        "with engine.connect() as connection: connection.execute(statement); connection.commit()",
        "connection = self._engine.execution_options(**WRITES).connect()",
        "self._connected().begin()",
        "DriverTransaction(connection, driver).commit()",
        "engine.raw_connection().cursor().execute(statement)",
    ],
)
@pytest.mark.parametrize("name", ["journal/database/connection.py", "back/log/tail.py"])
def test_a_planted_transaction_is_found(name: str, line: str) -> None:
    assert places_that_begin(name, f"def planted():\n    {line}") == {f"{name}:planted"}


async def test_what_reads_cannot_write(shared_url: str) -> None:
    async with Journal(create_engine(shared_url), "broker") as journal:
        with pytest.raises(JournalUnavailable, match=r"read-?only"):
            await journal.read(leave_mark)
        await journal.run(leave_mark)


def test_a_session_of_sqlite_writes_again_once_it_has_read(file_url: str) -> None:
    engine = create_engine(file_url)
    with engine.connect() as connection:
        reader = connection.execution_options(**READ_ONLY)
        with pytest.raises(sa.exc.OperationalError, match="readonly"), reader.begin():
            leave_mark(reader)
        transaction = DriverTransaction(connection, driver := driver_of(connection))
        driver.cursor().execute("UPDATE writer SET epoch = epoch")
        transaction.commit()
        with reader.begin():
            reader.execute(sa.select(model.head)).one()
        with connection.execution_options(**WRITES).begin():
            leave_mark(connection)
    engine.dispose()
    assert marks(file_url) == 1
