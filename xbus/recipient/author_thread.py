"""The one thread in which the author's code runs, job after job in the order in which they were given."""

import asyncio
import inspect
import queue
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from xbus.errors import Failed
from xbus.texts import fault

T = TypeVar("T")

CODE_FAILED = "recipient_failed"
"""The code of every failure of the author's code."""


class AuthorThread:
    """Runs jobs off the event loop, so that pings are answered while the author's code works.

    To be made in a running loop.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = queue.SimpleQueue()
        # A daemon: author's code that never returns must not keep the program from ending.
        self.steps = 0
        """Grows with each job that begins or ends."""
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def give(self, job: Callable[[], T]) -> "asyncio.Future[T]":
        """Put a job behind those given before; the future gets its result or its exception."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put((job, future))
        return future

    def finished(self, answer: object) -> object:
        """Give, inside a job, the answer of the author's method; let the loop run an asynchronous one."""
        # Most methods answer nothing, and the question costs more than they do.
        if answer is None or not inspect.isawaitable(answer):
            return answer
        return asyncio.run_coroutine_threadsafe(_awaited(answer), self._loop).result()

    def close(self) -> None:
        """Take no further jobs; one that still runs is left to itself."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (given := self._jobs.get()) is not None:
            job, future = given
            self.steps += 1
            result, error = _outcome(job)
            self.steps += 1
            if self._loop.is_closed():
                return
            self._loop.call_soon_threadsafe(_report, future, result, error)


def _outcome(job: Callable[[], T]) -> tuple[T | None, Exception | None]:
    try:
        return job(), None
    except Exception as error:
        return None, error
    except BaseException as error:  # as of sys.exit() in the author's code: an answer is owed all the same
        return None, Failed(f"the recipient's code raised {fault(error)}", code=CODE_FAILED)


def _report(future: "asyncio.Future[Any]", result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


async def _awaited(answer: Awaitable[T]) -> T:
    return await answer
