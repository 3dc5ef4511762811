"""The one thread in which the author's code runs, job after job in the order in which they were given."""

import asyncio
import inspect
import queue
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from xbus.errors import Failed
from xbus.loop_turn import LoopTurn
from xbus.rpc.deferred import Promise
from xbus.texts import fault

T = TypeVar("T")

CODE_FAILED = "recipient_failed"
"""The code of every failure of the author's code."""


class AuthorThread:
    """Runs jobs off the event loop, so that pings are answered while the author's code works.

    To be made in a running loop.

    Args:
        name: of the thread.
        turn: each outcome is told in a turn of it, so that the answer goes at the end of that.
    """

    def __init__(self, name: str, turn: LoopTurn | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._turn = turn or LoopTurn()
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Promise[Any]] | None] = queue.SimpleQueue()
        # A daemon: author's code that never returns must not keep the program from ending.
        self.steps = 0
        """Grows with each job that begins or ends."""
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def give(self, job: Callable[[], T]) -> Promise[T]:
        """Put a job behind those given before; the promise gets its result or its exception."""
        outcome: Promise[T] = Promise()
        self._jobs.put((job, outcome))
        return outcome

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
        tell: Callable[[Any], None]
        told: object
        while (given := self._jobs.get()) is not None:
            job, outcome = given
            self.steps += 1
            try:
                tell, told = outcome.set_result, job()
            except Exception as error:
                tell, told = outcome.set_exception, error
            except BaseException as error:  # as of sys.exit() in the author's code: an answer is owed all the same
                failure = Failed(f"the recipient's code raised {fault(error)}", code=CODE_FAILED)
                tell, told = outcome.set_exception, failure
            self.steps += 1
            try:
                self._loop.call_soon_threadsafe(self._turn.run, tell, told)
            except RuntimeError:  # the loop is closed
                return


async def _awaited(answer: Awaitable[T]) -> T:
    return await answer
