"""Emitters in forked processes: each process sends by itself, and leaves its parent's connection alone."""

import asyncio
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import StartDaemon
from tests.support.bus import add_bus
from tests.support.daemon import Daemon
from tests.support.documentation import CHECKOUT
from tests.support.forking import FORKS
from tests.support.processes import run
from tests.support.sdk import Keeps
from tests.support.serving import serving
from tests.support.waiting import eventually


@pytest.fixture
def daemon(sqlite_url: str, start_daemon: StartDaemon) -> Daemon:
    add_bus(sqlite_url, {"numbers": {"c": []}})
    return start_daemon(sqlite_url)


async def outcome(daemon: Daemon, scenario: str, *arguments: Path, delivered: int) -> tuple[list[str], set[str]]:
    """Run a program that forks; what its processes tell, and the items of each envelope that was delivered."""
    keeps = Keeps()
    # From Python 3.12 on a fork beside threads is warned of, which the emitter has.
    warnings = ("-W", "error", "-W", "ignore:This process:DeprecationWarning")
    command: tuple[str | Path, ...] = (
        sys.executable,
        *warnings,
        "-m",
        "tests.support.forking",
        scenario,
        daemon.front,
        *arguments,
    )
    async with serving(daemon, "c_1", keeps):
        ended = await asyncio.to_thread(run, *command, cwd=CHECKOUT)
        assert (ended.returncode, ended.stderr) == (0, "")
        await eventually(lambda: len(keeps.committed) >= delivered, f"{delivered} envelopes arrive")
        values = Counter(" ".join(str(value) for _, value in items) for items in keeps.committed.values())
        assert set(values.values()) <= {1}
    return ended.stdout.splitlines(), set(values)


async def test_children_send_by_the_emitter_of_their_parent_which_goes_on(daemon: Daemon) -> None:
    told, values = await outcome(daemon, "children", delivered=6)

    assert told == ["ended 0", "ended 0", "parent 2"]
    assert values == {"a0", "a1", "b0", "b1", "before after", "parent"}


async def test_an_envelope_of_the_parent_is_refused_in_a_child(daemon: Daemon) -> None:
    told, values = await outcome(daemon, "envelope_of_parent", delivered=1)

    refused = "refused begun_before_fork"
    # The reply to an event that had ended may have come before the fork: then the child knows it, too.
    assert told.pop(2) in (refused, "known None")
    assert told == [refused] * 6 + ["ended 0", "parent 2"]
    assert values == {"first second"}


async def test_a_child_with_a_loop_of_its_own(daemon: Daemon) -> None:
    told, values = await outcome(daemon, "asynchronous", delivered=3)

    assert told == ["refused begun_before_fork", "ended 0", "parent 2"]
    assert values == {"a", "b", "before after"}


async def test_children_of_children_and_children_that_send_nothing(daemon: Daemon) -> None:
    told, values = await outcome(daemon, "grandchild", delivered=4)

    assert told == ["ended 0", "ended 0", "ended 0"]
    assert values == {"child", "grandchild", "child again", "parent"}


async def test_an_outbox_is_of_one_process(daemon: Daemon, tmp_path: Path) -> None:
    told, values = await outcome(daemon, "outbox", tmp_path / "orders.outbox", delivered=5)

    assert told == ["refused outbox_in_use", "asked", "ended 0", "ended 0"]
    assert values == {"parent", "parent again", "child", "other", "other again"}


async def test_a_child_does_not_find_sqlite_locked_by_a_thread_that_it_has_no_copy_of(
    daemon: Daemon, tmp_path: Path
) -> None:
    told, _ = await outcome(daemon, "busy_outbox", tmp_path / "orders.outbox", delivered=0)

    assert told == ["ended 0"] * FORKS
