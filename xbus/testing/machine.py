"""The machine below a bus in memory: its virtual time, its database, its broker, and its programs."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TypeVar
from uuid import UUID

from xbus.broker.parts.front import envelope_limits
from xbus.config import BackSettings, FrontSettings, JournalSettings
from xbus.testing.bots import VirtualBots
from xbus.testing.broker import VirtualBroker, VirtualSettings
from xbus.testing.images import empty_image
from xbus.testing.journal import Database
from xbus.testing.loop import VirtualClock, VirtualLoop
from xbus.testing.programs import Programs
from xbus.testing.pull import ReadingConnection
from xbus.testing.timing import Timing

T = TypeVar("T")

SEED = 0


class Machine:
    """Lets things happen in virtual time.

    Args:
        back: the retries and time-outs.

    Attributes:
        clock: tells the virtual time.
        database: of the journal.
        programs: the recipients.
        bots: the bots, and their runners.
        random: chooses whatever is left to chance, from one seed.
    """

    def __init__(self, back: BackSettings) -> None:
        self._loop = VirtualLoop()
        self._loop.set_exception_handler(self._note_problem)
        self._problems: list[BaseException | str] = []
        front = FrontSettings()
        self._settings = VirtualSettings(
            back=back,
            limits=envelope_limits(front),
            reply_seconds=front.immediate_reply_timeout,
            segment_bytes=JournalSettings().max_segment_bytes,
        )
        self._broker: VirtualBroker | None = None
        self._is_closed = False
        self._is_changed = False
        self.random = Random(SEED)
        self.clock = VirtualClock(self._loop)
        self.database = Database(empty_image())
        self.programs = Programs(self.clock, lambda: self._broker)
        self.bots = VirtualBots(lambda: self._broker, self.random)

    def do(self, act: Callable[[VirtualBroker], Coroutine[object, object, T]]) -> T:
        """Bring broker and recipients up, let something happen, and raise what went wrong beside it.

        Args:
            act: gets the broker.
        """

        async def do() -> T:
            if self._broker is None:
                self._broker = VirtualBroker(
                    self.database, self.programs.by_address, Timing(self.random), self.clock, self._settings
                )
                await self._broker.is_up.wait()
            if self._is_changed:
                self._is_changed = False
                await self._broker.refresh()
            self.programs.start_all()
            self.bots.start_all()
            return await act(self._broker)

        done = self._run(do())
        if self._broker is not None:
            self._broker.check_alive()
        if self._problems:
            problem, self._problems = self._problems[0], []
            raise problem if isinstance(problem, BaseException) else AssertionError(problem)
        return done

    def note_change(self) -> None:
        """Have the broker take up a changed configuration before anything else happens."""
        self._is_changed = True

    def new_connection(self) -> ReadingConnection:
        """Make a connection for a reading program."""
        return ReadingConnection(lambda: self._broker, Timing(self.random))

    def new_id(self) -> UUID:
        """Make an id."""
        return UUID(int=self.random.getrandbits(128), version=4)

    def crash_broker(self) -> None:
        """Kill the broker; the next act brings up another one."""

        async def crash(broker: VirtualBroker) -> None:
            await broker.kill()
            self._broker = None

        self.do(crash)

    def close(self) -> None:
        """Stop everything."""
        if self._is_closed:
            return
        self._is_closed = True

        async def close() -> None:
            await self.programs.close()
            if self._broker is not None:
                await self._broker.kill()
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

        self._run(close())
        self._loop.close()
        self.database.close()

    def _run(self, work: Coroutine[object, object, T]) -> T:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._loop.run_until_complete(work)
        # An asynchronous test has a loop of its own in this thread.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(self._loop.run_until_complete, work).result()

    def _note_problem(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        error = context.get("exception")
        told = f"{context.get('message')} ({context.get('task')})"
        self._problems.append(error if isinstance(error, BaseException) else told)
