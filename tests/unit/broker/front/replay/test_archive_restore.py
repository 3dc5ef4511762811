"""The command that puts archived envelopes back: called one at a time, told of what fails, and ended with the front."""

import asyncio
import logging
import os
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.support.clock import StandingClock
from tests.support.journal import NOW, Scribe
from tests.support.waiting import DEADLINE_SECONDS, eventually
from xbus import model
from xbus.broker.front.replay.archive_restore import ArchiveRestore
from xbus.broker.housekeeping.archiving import restore_command
from xbus.broker.housekeeping.space import Space
from xbus.broker.journal.journal import Journal
from xbus.errors import Failed
from xbus.supervision.health import Health

TOLD_WHERE = "xbus: the archive can't be reached (/srv/archive)"


class Archive:
    """An archived envelope, which only the test puts back: the command notes its calls, and does what the test says.

    Args:
        folder: where it notes them, and goes on for as long as there is a file ``held``.
    """

    def __init__(self, journal: Journal, scribe: Scribe, folder: Path) -> None:
        self.journal = journal
        self._scribe = scribe
        self._folder = folder
        self.at_interrupt = "echo interrupted >> ended; exit 130"

    def restoring(
        self, *, max_bytes: int = 0, exit_code: int = 1, interrupt_seconds: float = DEADLINE_SECONDS
    ) -> ArchiveRestore:
        """What is told to end is not killed because the machine stood still for a moment."""
        script = f"""
            trap '{self.at_interrupt}' TERM
            echo $$ >> pids
            echo "$1" >> called
            while [ -e held ]; do sleep 0.01; done
            echo "{TOLD_WHERE}" >&2
            echo exited >> ended
            exit {exit_code}
        """
        space = Space(self.journal, max_bytes, Health("front", StandingClock()))
        command = ("sh", "-c", f"cd '{self._folder}'; {script}", "sh")
        return ArchiveRestore(self.journal, space, command, interrupt_seconds)

    async def put_away(self) -> None:
        self.envelope_id = (await self._scribe.put([b"a"])).envelope_id
        row = {"envelope_id": self.envelope_id, "archived_at": NOW}
        await self._change(sa.update(model.envelope).values(pruned_at=NOW))
        await self._change(sa.insert(model.archived_envelope).values(row))

    async def hold_elsewhere(self, data_bytes: int) -> None:
        """Have another program put back so much just now."""
        row = {"name": "archive", "epoch": 0, "group_number": 0, "stored_bytes": data_bytes}
        await self._change(sa.insert(model.writer).values(row))

    async def put_back(self) -> None:
        await self._change(sa.update(model.envelope).values(pruned_at=None))

    async def _change(self, statement: sa.Update | sa.Insert) -> None:
        await self.journal.run(lambda connection: connection.execute(statement))

    def hold(self) -> None:
        (self._folder / "held").touch()

    def let_go(self) -> None:
        (self._folder / "held").unlink()

    @property
    def called(self) -> list[str]:
        return self._lines("called")

    @property
    def ended(self) -> list[str]:
        return self._lines("ended")

    @property
    def is_alive(self) -> bool:
        """Whether a command goes on that was called."""
        return any(_is_alive(int(pid)) for pid in self._lines("pids"))

    def _lines(self, name: str) -> list[str]:
        file = self._folder / name
        return file.read_text().split() if file.exists() else []


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
async def archive(journal: Journal, tmp_path: Path) -> Archive:
    archive = Archive(journal, await Scribe.of(journal), tmp_path)
    await archive.put_away()
    return archive


async def code_of(call: "asyncio.Task[None]") -> str:
    with pytest.raises(Failed) as caught:
        await call
    assert "/srv/archive" not in str(caught.value)
    return caught.value.code


def soon(restoring: ArchiveRestore, archive: Archive) -> "asyncio.Task[None]":
    return asyncio.create_task(restoring.bring_back(archive.envelope_id))


async def test_why_it_failed_is_in_the_log_and_not_in_the_answer(
    archive: Archive, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    assert await code_of(soon(archive.restoring(), archive)) == "envelope_archived"

    assert archive.called == [str(archive.envelope_id)]
    assert TOLD_WHERE in caplog.text


async def test_calls_at_once_for_one_envelope_put_it_back_once(archive: Archive) -> None:
    archive.hold()
    restoring = archive.restoring(exit_code=0)
    calls = [soon(restoring, archive) for _ in range(3)]
    await eventually(lambda: len(archive.called) == 1, "the command is called")

    await archive.put_back()
    archive.let_go()

    await asyncio.gather(*calls)
    assert len(archive.called) == 1


async def test_what_is_in_the_journal_needs_no_command(archive: Archive) -> None:
    await archive.put_back()

    await archive.restoring().bring_back(archive.envelope_id)

    assert archive.called == []


async def test_a_full_journal_gets_nothing_back(archive: Archive) -> None:
    assert await code_of(soon(archive.restoring(max_bytes=1), archive)) == "journal_full"
    assert archive.called == []


async def test_what_would_fill_the_journal_is_not_put_back(archive: Archive) -> None:
    just_so = archive.journal.stored_bytes
    assert just_so > 0
    assert await code_of(soon(archive.restoring(max_bytes=just_so), archive)) == "journal_full"
    assert archive.called == []


async def test_what_was_put_back_a_moment_ago_counts(archive: Archive) -> None:
    await archive.hold_elsewhere(1000)
    assert await code_of(soon(archive.restoring(max_bytes=1000), archive)) == "journal_full"
    assert archive.called == []


async def test_the_end_of_the_front_breaks_it_off(archive: Archive) -> None:
    archive.hold()
    restoring = archive.restoring()
    calls = [soon(restoring, archive) for _ in range(2)]
    await eventually(lambda: len(archive.called) == 1, "the command is called")

    restoring.give_up()

    assert [await code_of(call) for call in calls] == ["envelope_archived"] * 2
    assert (len(archive.called), archive.ended) == (1, ["interrupted"])


async def test_a_call_that_is_cancelled_ends_its_command(archive: Archive) -> None:
    archive.hold()
    call = soon(archive.restoring(), archive)
    await eventually(lambda: len(archive.called) == 1, "the command is called")

    call.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call
    assert archive.ended == ["interrupted"]


async def test_one_that_does_not_end_when_told_to_is_killed(archive: Archive, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    archive.hold()
    archive.at_interrupt = ""
    restoring = archive.restoring(interrupt_seconds=0.1)
    call = soon(restoring, archive)
    await eventually(lambda: len(archive.called) == 1, "the command is called")

    restoring.give_up()

    assert await code_of(call) == "envelope_archived"
    assert not archive.is_alive
    assert "it was ended by signal 9" in caplog.text


async def test_a_call_that_is_cancelled_twice_leaves_no_command_behind(archive: Archive) -> None:
    archive.hold()
    archive.at_interrupt = "echo interrupted >> ended"
    call = soon(archive.restoring(), archive)
    await eventually(lambda: len(archive.called) == 1, "the command is called")

    call.cancel()
    await eventually(lambda: archive.ended == ["interrupted"], "the command is interrupted")
    call.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call
    assert not archive.is_alive


async def test_a_command_that_can_not_be_started_is_told_as_any_other_failure(
    archive: Archive, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    space = Space(archive.journal, 0, Health("front", StandingClock()))
    restoring = ArchiveRestore(archive.journal, space, (str(tmp_path / "nothing"),))

    assert await code_of(soon(restoring, archive)) == "envelope_archived"
    assert "No such file" in caplog.text


async def test_the_command_imports_nothing_from_the_folder_that_the_broker_runs_in(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise SystemExit('a stranger')")
    command = [*restore_command(tmp_path / "none.ini"), "00000000-0000-0000-0000-000000000001"]

    ended = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, stderr=asyncio.subprocess.PIPE)

    _, complaint = await ended.communicate()
    assert "none.ini can't be read" in complaint.decode()


async def test_without_a_configuration_file_nothing_is_put_back(archive: Archive) -> None:
    space = Space(archive.journal, 0, Health("front", StandingClock()))
    restoring = ArchiveRestore(archive.journal, space, restore_command(None))

    assert await code_of(soon(restoring, archive)) == "envelope_archived"
