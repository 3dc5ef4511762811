"""The author's code in virtual time: it runs in a thread of its own, and only while the loop waits for it.

So plain code may block and keep a database connection, asynchronous code runs on the loop, and each run is the same.
"""

import asyncio
import inspect
import queue
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from xbus.errors import Failed
from xbus.rpc.deferred import Promise

T = TypeVar("T")


@dataclass(frozen=True)
class _Done:
    """A job has ended."""

    result: object = None
    error: Exception | None = None


_Said: TypeAlias = _Done | Awaitable[object]
"""The message of the thread to the loop: the end of a job, or the thing that the job waits for."""


class SteppingThread:
    """Stands in for ``recipient.calls.AuthorThread``: loop and thread take turns, and never run both.

    To be made in a running loop.

    Args:
        is_killed: whether the program of the author's code has crashed; then the job that runs is not answered.
        on_killed: called on the loop in the place of that answer.
    """

    def __init__(self, is_killed: Callable[[], bool], on_killed: Callable[[], None]) -> None:
        self.steps = 0
        self._loop = asyncio.get_running_loop()
        self._is_killed = is_killed
        self._on_killed = on_killed
        self._waiting: deque[tuple[Callable[[], Any], Promise[Any]]] = deque()
        self._is_busy = False
        self._is_closed = False
        self._awaited: asyncio.Future[object] | None = None
        self._jobs: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._said: queue.SimpleQueue[_Said] = queue.SimpleQueue()
        self._outcomes: queue.SimpleQueue[_Done] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="recipient", daemon=True).start()

    def give(self, job: Callable[[], T]) -> Promise[T]:
        """Put a job behind those given before; the promise gets its result or its exception."""
        outcome: Promise[T] = Promise()
        self._waiting.append((job, outcome))
        if not self._is_busy:
            self._is_busy = True
            self._loop.call_soon(self._begin)
        return outcome

    def finished(self, answer: object) -> object:
        """Give, inside a job, the answer of the author's method; let the loop run an asynchronous one."""
        if not inspect.isawaitable(answer):
            return answer
        self._said.put(answer)
        outcome = self._outcomes.get()
        if outcome.error is not None:
            raise outcome.error
        return outcome.result

    def close(self) -> None:
        """Take no further jobs, and answer none."""
        if self._is_closed:
            return
        self._is_closed = True
        self._waiting.clear()
        if self._awaited is not None:
            self._awaited.cancel()
        if not self._is_busy or self._awaited is None:
            self._jobs.put(None)

    # -- on the loop -----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if not self._waiting:
            self._is_busy = False
            return
        job, outcome = self._waiting.popleft()
        self._jobs.put(job)
        self._listen(outcome)

    def _listen(self, outcome: Promise[Any]) -> None:
        said = self._said.get()
        if isinstance(said, _Done):
            self._end(outcome, said)
        else:
            # A coroutine within another one would never be closed if this is cancelled before it begins.
            self._awaited = asyncio.ensure_future(said, loop=self._loop)
            self._awaited.add_done_callback(lambda awaited: self._go_on(outcome, awaited))

    def _go_on(self, outcome: Promise[Any], awaited: "asyncio.Future[object]") -> None:
        self._awaited = None
        self._outcomes.put(_outcome_of(awaited))
        self._listen(outcome)

    def _end(self, outcome: Promise[Any], done: _Done) -> None:
        if self._is_closed:
            self._jobs.put(None)
        elif self._is_killed():
            self._loop.call_soon(self._on_killed)
        else:
            # Before those who wait for the outcome, as one of them may raise.
            self._loop.call_soon(self._begin)
            if done.error is not None:
                outcome.set_exception(done.error)
            else:
                outcome.set_result(done.result)

    # -- in the thread ---------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self.steps += 1
            try:
                done = _Done(job())
            except Exception as error:
                done = _Done(error=error)
            except BaseException as error:  # as of sys.exit() in the author's code: an answer is owed all the same
                failed = Failed(f"the recipient's code raised {error!r}", code="recipient_failed")
                done = _Done(error=failed)
            self.steps += 1
            self._said.put(done)


def _outcome_of(awaited: "asyncio.Future[object]") -> _Done:
    if awaited.cancelled():
        return _Done(error=Failed("the recipient was killed", code="recipient_failed"))
    error = awaited.exception()
    if error is None:
        return _Done(awaited.result())
    if isinstance(error, Exception):
        return _Done(error=error)
    raise error
