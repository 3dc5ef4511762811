"""Keeps the event loop and the writer of the journal on one core while groups of envelopes are small.

A group goes from the loop to the writer's thread and back. The system wakes a thread on an idle core, whose caches have
nothing of the other thread's. For small groups this took a third of the broker's time. Python runs one of both threads
at a time, so they hardly miss a second core. With large groups they do: one thread copies, hashes and writes beside the
other one. Then both may be anywhere, and so they may where other programs need their core.
"""

import asyncio
import errno
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Set
from contextlib import suppress
from typing import NamedTuple, Protocol

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
"""Seconds between two looks. Less reacts sooner, and costs calls of the system."""

LEAST_OWN_SHARE = 0.05
"""The part of a core that both threads use at the least: less has nothing to gain."""

MOST_WAIT_SHARE = 0.25
"""The part of the time that both threads may wait for other programs on their core, added up. More keeps them waiting
where another core may be free."""

MOST_GROUP_BYTES = 48 * 1024
"""The mean bytes of the items in a commit, up to which groups count as small."""

TRY_AGAIN_SECONDS = 10.0
"""Seconds that both threads may be anywhere before they are kept together again."""


class Cores(Protocol):
    """The threads of this process, and the cores that they run on."""

    def begun_by(self, thread: int) -> Collection[int]:
        """Give the ids of all threads of this process, and of the processes behind a thread: those that it has begun,
        those that they have begun, and so on."""

    def cores_of(self, thread: int) -> Set[int]:
        """Give the cores that a thread may run on; none where it has ended."""

    def times(self, thread: int) -> "Times":
        """Give how long a thread has run and waited."""

    def core_of(self, thread: int) -> int:
        """Give the core on which a thread ran last."""

    def bind(self, thread: int, cores: Set[int]) -> None:
        """Let a thread run on some cores only."""


class Linux:
    """The machine as Linux shows it: proc(5)."""

    def begun_by(self, thread: int) -> Collection[int]:
        """Read the ids of threads and processes. Some kernels don't tell of the processes."""
        found = [*map(int, os.listdir("/proc/self/task"))]
        parents = [thread]
        while parents:
            for child in _children(parents.pop()):
                with suppress(FileNotFoundError):
                    parents += (threads := [*map(int, os.listdir(f"/proc/{child}/task"))])
                    found += threads
        return found

    def cores_of(self, thread: int) -> Set[int]:
        """Ask the system."""
        with suppress(ProcessLookupError):
            return os.sched_getaffinity(thread)
        return frozenset()

    def times(self, thread: int) -> "Times":
        """Read the times of a thread, which the system gives in nanoseconds."""
        with open(f"/proc/self/task/{thread}/schedstat", encoding="ascii") as file:
            ran, waited, _ = map(int, file.read().split())
        return Times(ran / 1e9, waited / 1e9)

    def core_of(self, thread: int) -> int:
        """Read the core of a thread: field 39 of its state."""
        with open(f"/proc/self/task/{thread}/stat", encoding="utf-8") as file:
            # The name in field 2 may hold anything, and ends with the last bracket.
            return int(file.read().rpartition(")")[2].split()[36])

    def bind(self, thread: int, cores: Set[int]) -> None:
        """Bind a thread; one that has ended needs nothing."""
        with suppress(ProcessLookupError):
            os.sched_setaffinity(thread, cores)


def _children(thread: int) -> list[str]:
    with suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{thread}/task/{thread}/children") as file:
        return file.read().split()
    return []


def shared_core(writer: int, written: Callable[[], tuple[int, int]]) -> "SharedCore | None":
    """Give the keeper of this thread and the writer's on one core; None where the system leaves no choice.

    Args:
        writer: the id of the writer's thread.
        written: as of ``SharedCore``.
    """
    if not sys.platform.startswith("linux") or len(cores := os.sched_getaffinity(0)) == 1:
        return None
    try:
        return SharedCore(threading.get_native_id(), writer, cores, written, Linux())
    except _UNTOLD as error:
        _tell(error)
        return None


_UNTOLD = (OSError, ValueError, IndexError)
"""The errors of a system that does not let a process look or bind, or tells its times in another form."""


def _tell(error: Exception) -> None:
    log.info("the threads of the broker run on any core: %s", error, extra={"action": "cores_not_shared"})


class Times(NamedTuple):
    """The seconds that a thread has spent.

    Attributes:
        ran: on a core.
        waited: for a core, ready to run.
    """

    ran: float
    waited: float


class _Look(NamedTuple):
    """The findings of a look.

    Attributes:
        at: its moment, by the clock that only grows.
        stored: the bytes of items that were stored.
        commits: the number of commits.
    """

    at: float
    loop: Times
    writer: Times
    stored: int
    commits: int


class SharedCore:
    """Binds the loop and the writer to one core, or lets them go where other programs need that core.

    Args:
        loop: the id of the loop's thread.
        writer: the id of the writer's thread.
        cores: those that this process may use.
        written: counts the bytes of items that were stored, and the commits.
        machine: shows the threads and cores.
        monotonic: the clock that only grows.
    """

    def __init__(
        self,
        loop: int,
        writer: int,
        cores: Set[int],
        written: Callable[[], tuple[int, int]],
        machine: Cores,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._loop = loop
        self._writer = writer
        self._cores = cores
        self._written = written
        self._machine = machine
        self._monotonic = monotonic
        self._last = self._found()
        self._not_before = 0.0
        self._freed: Set[int] = frozenset()
        """The other threads and processes that are known to be free."""
        self._others_may_be_bound = False
        self._shared: set[int] = set()
        """The cores that both have shared: another thread or process that runs on one of these alone began there."""
        self.core: int | None = None
        """The core that both share now; None where they may be anywhere."""

    async def watch(self) -> None:
        """Look for ever, or until the system does not let this process look or bind."""
        try:
            while True:
                try:
                    self.look()
                except OSError as error:
                    if error.errno not in (errno.EMFILE, errno.ENFILE):
                        raise
                await asyncio.sleep(LOOK_SECONDS)
        except _UNTOLD as error:
            _tell(error)
        finally:
            self._let_go()

    def look(self) -> None:
        """Look once, and bind both threads or let them go."""
        last, now = self._last, self._found()
        self._last = now
        seconds = max(now.at - last.at, 1e-3)
        loop_ran, loop_waited = (new - old for new, old in zip(now.loop, last.loop, strict=True))
        writer_ran, writer_waited = (new - old for new, old in zip(now.writer, last.writer, strict=True))
        is_busy = loop_ran + writer_ran >= LEAST_OWN_SHARE * seconds
        is_large = now.stored - last.stored > MOST_GROUP_BYTES * (now.commits - last.commits)
        if self.core is None:
            if is_busy and not is_large and now.at >= self._not_before:
                self.core = self._machine.core_of(self._loop)
                self._shared.add(self.core)
                self._others_may_be_bound = True
                self._bind({self.core})
        elif is_busy:
            # Neither waits for the other one longer than that one runs.
            for_others = max(0.0, loop_waited - writer_ran) + max(0.0, writer_waited - loop_ran)
            if is_large or for_others > MOST_WAIT_SHARE * seconds:
                self.core = None
                self._bind(self._cores)
                self._not_before = now.at + TRY_AGAIN_SECONDS
        if self._others_may_be_bound:
            self._free_others()
            self._others_may_be_bound = self.core is not None

    def _found(self) -> _Look:
        times = self._machine.times
        return _Look(self._monotonic(), times(self._loop), times(self._writer), *self._written())

    def _bind(self, cores: Set[int]) -> None:
        for thread in (self._loop, self._writer):
            self._machine.bind(thread, cores)

    def _free_others(self) -> None:
        """Let all others run anywhere: a thread or process begins where the one may run that begins it."""
        machine = self._machine
        others = {*machine.begun_by(self._loop)} - {self._loop, self._writer}
        for each in others - self._freed:
            # Who has chosen cores keeps them. A process of another user may not be bound from here.
            if len(cores := machine.cores_of(each)) == 1 and cores <= self._shared:
                with suppress(PermissionError):
                    machine.bind(each, self._cores)
        self._freed = others

    def _let_go(self) -> None:
        """Let all run anywhere, as far as the system allows it."""
        self.core = None
        for thread in (self._loop, self._writer):
            with suppress(OSError):
                self._machine.bind(thread, self._cores)
        if self._others_may_be_bound:
            with suppress(*_UNTOLD):
                self._free_others()
