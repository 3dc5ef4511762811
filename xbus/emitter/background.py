"""An event loop in a thread of its own, for callers that have none."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, TypeVar

from xbus.emitter.forks import leave_to_parent, tell_of_forks
from xbus.errors import Refused

T = TypeVar("T")

END_SECONDS = 1.0
"""Seconds that cancelled work has to end."""


class Background:
    """Runs coroutines for blocking callers; what they start, such as timers, runs on between the calls.

    A forked process has no copy of the thread. Its first call there begins another one, with a loop of its own.

    Args:
        name: of the kind of client, such as "emitter"; the thread is named after it.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.RLock()
        """Locked while the loop gets work, as it may be closed or started anew by another thread."""
        self._is_inherited = False
        self._is_closed = False
        self._start()
        tell_of_forks(self)

    def forked(self) -> None:
        """Leave the thread, and the loop that it runs, to the parent."""
        leave_to_parent(self._loop)
        self._lock = threading.RLock()
        self._is_inherited = True

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run ``coroutine`` on the loop and wait for what it returns or raises.

        Raises:
            Refused: the loop is closed, or about to be (``not_open``).
        """
        with self._lock:
            if self._is_closed:
                coroutine.close()
                raise _not_open(self._name)
            if self._is_inherited:
                self._start()
                self._is_inherited = False
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # does nothing unless the wait itself was interrupted, as by Ctrl-C
            raise

    def close(self) -> None:
        """Let what was cancelled come to its end, stop the loop and wait for the thread."""
        with self._lock:
            # Behind the end of all nothing may come, as nobody would run it.
            self._is_closed = True
        asyncio.run_coroutine_threadsafe(_end_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _start(self) -> None:
        ready: Future[asyncio.AbstractEventLoop] = Future()
        # A daemon: a program that ends without closing must not hang on it.
        self._thread = threading.Thread(target=_run_loop, args=(ready,), name=f"xbus {self._name}", daemon=True)
        self._thread.start()
        self._loop = ready.result()


def _run_loop(ready: "Future[asyncio.AbstractEventLoop]") -> None:
    """Make a loop and run it. Ctrl-C interrupts the main thread only, so that no loop is left half made here."""
    try:
        loop = asyncio.new_event_loop()
    except BaseException as error:
        ready.set_exception(error)
        return
    ready.set_result(loop)
    loop.run_forever()


class HostedClient:
    """A client for asyncio that blocking callers use: a thread of its own runs it while it is open.

    Args:
        name: of the kind of client, such as "emitter".
        client: is entered and left in that thread.
    """

    def __init__(self, name: str, client: AbstractAsyncContextManager[object]) -> None:
        self._name = name
        self._client = client
        self._background: Background | None = None

    @property
    def background(self) -> Background:
        """Give the thread.

        Raises:
            Refused: the client is not open (``not_open``).
        """
        if self._background is None:
            raise _not_open(self._name)
        return self._background

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the client and wait for what it returns or raises; see ``background``."""
        return (self._background or self.background).run(coroutine)

    def open(self) -> None:
        """Start the thread, and enter the client; what that raises is raised, and leaves nothing behind."""
        self._background = Background(self._name)
        try:
            self._background.run(self._client.__aenter__())
        except BaseException:
            self._end()
            raise

    def close(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Leave the client, and end the thread."""
        try:
            self.background.run(self._client.__aexit__(kind, error, trace))
        finally:
            self._end()

    def _end(self) -> None:
        background, self._background = self.background, None
        background.close()


def _not_open(name: str) -> Refused:
    return Refused(f"the {name} is not open", "use it in a `with` block", code="not_open")


async def _end_all() -> None:
    """End what an interrupted call has left running: closed under it, the loop would end it with a noise."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=END_SECONDS)
