"""The loop and the writer share a core while groups are small and no other program needs it."""

import asyncio
import errno
import os
import subprocess
import sys
import threading
from collections.abc import Collection, Set

import pytest

from xbus.system.cores import LOOK_SECONDS, MOST_GROUP_BYTES, TRY_AGAIN_SECONDS, Linux, SharedCore, Times

LOOP, WRITER, READER, CHILD = 1, 2, 3, 99
IDLE = Times(0.0, 0.0)
ALL = frozenset({0, 1, 2})


class MachineByHand:
    """A machine by hand: the test says how its threads spent the time since the last look."""

    def __init__(self) -> None:
        self.now = 0.0
        self.times_of = {LOOP: Times(0, 0), WRITER: Times(0, 0)}
        self.others: set[int] = set()
        self.bound: dict[int, Set[int]] = {}
        self.core = 1
        self.written = (0, 0)
        self.refusal: OSError | None = None
        self.shared = SharedCore(LOOP, WRITER, ALL, lambda: self.written, self, lambda: self.now)

    def begun_by(self, thread: int) -> Collection[int]:
        assert thread == LOOP
        return {LOOP, WRITER, *self.others}

    def cores_of(self, thread: int) -> Set[int]:
        return self.bound.get(thread, {self.core})

    def times(self, thread: int) -> Times:
        if self.refusal is not None:
            raise self.refusal
        return self.times_of[thread]

    def core_of(self, thread: int) -> int:
        assert thread == LOOP
        return self.core

    def bind(self, thread: int, cores: Set[int]) -> None:
        self.bound[thread] = cores

    def look(self, loop: Times = IDLE, writer: Times = IDLE, group_bytes: int = 0) -> int | None:
        """Look once more, after both threads spent parts of the time so, with ten commits; the shared core."""
        self.now += LOOK_SECONDS
        for thread, more in ((LOOP, loop), (WRITER, writer)):
            ran, waited = self.times_of[thread]
            self.times_of[thread] = Times(ran + more.ran * LOOK_SECONDS, waited + more.waited * LOOK_SECONDS)
        stored, commits = self.written
        self.written = (stored + 10 * group_bytes, commits + 10)
        self.shared.look()
        return self.shared.core


BUSY = Times(0.3, 0.0)


def test_both_share_the_core_of_the_loop_once_they_are_busy() -> None:
    machine = MachineByHand()
    assert machine.look() is None
    assert machine.bound == {}
    assert machine.look(BUSY, BUSY) == 1
    assert machine.bound == {LOOP: {1}, WRITER: {1}}


def test_large_groups_let_them_go() -> None:
    machine = MachineByHand()
    assert machine.look(BUSY, BUSY, MOST_GROUP_BYTES + 1) is None
    assert machine.look(BUSY, BUSY, MOST_GROUP_BYTES) == 1
    assert machine.look(BUSY, BUSY, MOST_GROUP_BYTES + 1) is None
    assert machine.bound == {LOOP: ALL, WRITER: ALL}


def test_a_wait_for_each_other_is_no_reason_to_go() -> None:
    machine = MachineByHand()
    machine.look(BUSY, BUSY)
    assert machine.look(Times(0.5, 0.45), Times(0.45, 0.5)) == 1


@pytest.mark.parametrize(("loop", "writer"), [(Times(0.3, 0.6), BUSY), (BUSY, Times(0.3, 0.6))])
def test_other_programs_on_their_core_let_them_go_for_some_time(loop: Times, writer: Times) -> None:
    machine = MachineByHand()
    machine.look(BUSY, BUSY)
    assert machine.look(loop, writer) is None
    went = machine.now
    while machine.now + LOOK_SECONDS < went + TRY_AGAIN_SECONDS:
        assert machine.look(BUSY, BUSY) is None
    machine.core = 2
    assert machine.look(BUSY, BUSY) == 2


def test_without_work_they_stay_where_they_are() -> None:
    machine = MachineByHand()
    machine.look(BUSY, BUSY)
    assert machine.look(Times(0.01, 0.6), Times(0.01, 0.6), MOST_GROUP_BYTES + 1) == 1


def test_threads_and_processes_that_began_meanwhile_may_run_anywhere() -> None:
    machine = MachineByHand()
    machine.look(BUSY, BUSY)
    machine.others = {READER}
    machine.look(BUSY, BUSY)
    assert machine.bound[READER] == ALL
    machine.others = {READER, CHILD}
    machine.look(Times(0.3, 0.9), BUSY)
    assert machine.bound[CHILD] == ALL
    assert machine.bound[LOOP] == ALL


def test_who_has_chosen_cores_keeps_them() -> None:
    machine = MachineByHand()
    machine.look(BUSY, BUSY)
    machine.others = {CHILD}
    machine.bound[CHILD] = frozenset({0, 2})
    machine.look(BUSY, BUSY)
    assert machine.bound[CHILD] == {0, 2}


def test_who_has_chosen_one_core_keeps_it() -> None:
    machine = MachineByHand()
    machine.look(BUSY, BUSY)
    machine.others = {CHILD, READER}
    machine.bound[CHILD] = frozenset({2})
    machine.look(BUSY, BUSY)
    assert machine.bound[CHILD] == {2}
    assert machine.bound[READER] == ALL


def test_who_began_on_an_earlier_core_is_let_go() -> None:
    machine = MachineByHand()
    machine.look(BUSY, BUSY)
    machine.look(Times(0.3, 0.6), BUSY)
    machine.now += TRY_AGAIN_SECONDS
    machine.look()
    machine.core = 2
    machine.others = {CHILD}
    machine.bound[CHILD] = frozenset({1})
    assert machine.look(BUSY, BUSY) == 2
    assert machine.bound[CHILD] == ALL


async def test_a_system_that_lets_nobody_look_any_more_lets_all_go(caplog: pytest.LogCaptureFixture) -> None:
    machine = MachineByHand()
    machine.look(BUSY, BUSY)
    machine.others = {READER}
    machine.refusal = PermissionError("operation not permitted")
    with caplog.at_level("INFO"):
        await machine.shared.watch()
    assert "run on any core: operation not permitted" in caplog.text
    assert machine.bound == {LOOP: ALL, WRITER: ALL, READER: ALL}


async def test_a_want_of_descriptors_passes() -> None:
    machine = MachineByHand()
    machine.look(BUSY, BUSY)
    machine.refusal = OSError(errno.EMFILE, "too many open files")
    watch = asyncio.create_task(machine.shared.watch())
    await asyncio.sleep(0)
    assert not watch.done()
    assert machine.shared.core == 1
    watch.cancel()
    await asyncio.wait([watch])
    assert machine.bound == {LOOP: ALL, WRITER: ALL}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the folder /proc is of Linux")
def test_linux_tells_of_threads_and_processes_and_binds_them() -> None:
    here, linux = threading.get_native_id(), Linux()
    cores = os.sched_getaffinity(0)
    with subprocess.Popen(["/bin/sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        grandchild = int(child.stdout.readline())
        try:
            assert {here, child.pid, grandchild} <= {*linux.begun_by(here)}
            assert linux.times(here).ran > 0
            core = linux.core_of(here)
            assert core in cores
            linux.bind(grandchild, {core})
            assert linux.cores_of(grandchild) == {core}
        finally:
            os.kill(grandchild, 9)
    linux.bind(child.pid, {core})
    assert linux.cores_of(child.pid) == set()
