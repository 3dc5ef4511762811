"""An event loop without sockets or threads, whose time passes only when there is nothing left to do."""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

TURN_SECONDS = 1e-6
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


PROCESS: ContextVar[object] = ContextVar("process", default=None)
"""The process whose code runs, where that can be frozen by itself."""


def context_of(process: object) -> Context:
    """Make the context of all that a process does."""
    made = copy_context()
    made.run(PROCESS.set, process)
    return made


class _Ready(deque[asyncio.Handle]):
    """The handles that run next; those of frozen processes wait.

    Args:
        frozen: the handles that wait, by process.
    """

    def __init__(self, frozen: dict[object, list[asyncio.Handle]]) -> None:
        super().__init__()
        self._frozen = frozen

    def append(self, handle: asyncio.Handle, /) -> None:
        waiting = self._frozen.get(handle._context.get(PROCESS)) if self._frozen else None  # type: ignore[attr-defined]
        if waiting is None:
            super().append(handle)
        else:
            waiting.append(handle)


class Stuck(Exception):
    """Everybody waits for somebody else, and no time-out will wake any of them."""


class NumberedTask(asyncio.Task[Any]):
    """A task that sets keep in the same order in each run, and not by where it lies in memory."""

    def __init__(self, number: int, work: Any, **options: Any) -> None:
        self._number = number
        super().__init__(work, **options)

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs what is ready; when nothing is, it is the time of the next timer at once."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self.turns = 0
        self._selector = self
        self._frozen: dict[object, list[asyncio.Handle]] = {}
        self._ready: deque[asyncio.Handle] = _Ready(self._frozen)
        numbers = itertools.count()
        self.set_task_factory(lambda loop, work, **options: NumberedTask(next(numbers), work, loop=loop, **options))

    def freeze(self, process: object) -> None:
        """Run nothing of a process until :meth:`thaw`, as after SIGSTOP; its time goes on."""
        self._frozen[process] = []
        # The loop has counted what is ready: nothing takes the places of the handles that wait.
        nothing = asyncio.Handle(self._write_to_self, (), self)
        nothing.cancel()
        for _ in range(len(self._ready)):
            handle, before = self._ready.popleft(), len(self._ready)
            self._ready.append(handle)
            if len(self._ready) == before:
                self._ready.append(nothing)

    def thaw(self, process: object) -> None:
        """Run what a process has missed, in its order."""
        self._ready.extend(self._frozen.pop(process))

    def time(self) -> float:
        """Give the seconds of virtual time since the loop was made."""
        return self._now

    def select(self, timeout: float | None) -> list[object]:
        """Let time pass, in the place of a selector: there is nothing to be read."""
        if timeout is None:
            raise Stuck("nothing is ready and nothing is timed")
        # Work takes time too: who waits for the last bit of a second must not wait for ever.
        self._now += TURN_SECONDS
        self.turns += 1
        if timeout > 0:
            # To the very moment of the timer: adding up time-outs would drift away from it by rounding.
            self._now = max(self._now, self._scheduled[0].when())  # type: ignore[attr-defined]
        return []

    def _process_events(self, events: list[Any]) -> None:
        """Do nothing: there are none."""

    def _write_to_self(self) -> None:
        """Do nothing: nobody sleeps in a selector."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Do nothing: there is none."""

    def run_in_executor(self, executor: object, func: Callable[..., T], *args: object) -> "asyncio.Future[T]":
        """Carry a thread's work out at once: in virtual time it takes none."""
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    async def sock_connect(self, sock: object, address: object) -> NoReturn:
        """Refuse to connect.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError("virtual time has no sockets: let the recipient speak to a double here")


class VirtualClock:
    """``xbus.clock.Clock`` by a loop's time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now(self) -> datetime:
        """Give the date and time in UTC; it begins with the year 2026."""
        return BEGIN + timedelta(seconds=self._loop.time())

    def monotonic(self) -> float:
        """Give the seconds since the beginning."""
        return self._loop.time()
