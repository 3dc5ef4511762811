"""Connections in virtual time: calls arrive in order and after a while, or never, when one side went down."""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any, Protocol

from xbus.errors import CallError, ConnectionLost, Failed, ProtocolError, TimedOut, XbusError
from xbus.rpc.codec import Value, pack, unpack
from xbus.rpc.deferred import AnswerSource, Promise
from xbus.rpc.owed_calls import AnswerTaker, OverdueCall, pass_on
from xbus.testing.timing import Timing

STOPPED_SECONDS = 1.0
"""Seconds between looks whether a stopped process goes on."""


class Served(Protocol):
    """The called side: it answers verbs."""

    def handle(self, caller: bytes, verb: str, args: list[Value]) -> object:
        """Give the answer, or a future of it.

        Raises:
            XbusError: the caller is answered this error.
        """

    def kill(self) -> None:
        """End as a process does that is killed."""


class VirtualProcess:
    """A program that listens, and may go down.

    Args:
        serve: makes what is served, anew each time that the process starts.

    Attributes:
        served: what runs now; None while the process is down.
        is_stopped: whether it does nothing at all, as a process that was sent SIGSTOP.
        connections: those that lead here.
    """

    def __init__(self, serve: Callable[[], Served]) -> None:
        self._serve = serve
        self.served: Served | None = None
        self.is_stopped = False
        self.connections: list[VirtualConnection] = []
        self.context = copy_context()
        """That of its code, which those do not share who call it."""

    def start(self) -> None:
        """Run; a process that runs already goes on."""
        if self.served is None:
            self.served = self._serve()

    def miss(self, channel: bytes) -> None:
        """Notice that the connection of a registration is gone, where this process made it."""

    def kill(self) -> None:
        """Go down at once; those who are connected notice after a while."""
        if self.served is not None:
            self.served.kill()
        self.served = None
        for connection in list(self.connections):
            connection.lose()


class VirtualConnection:
    """Stands in for ``rpc.client.Client``, or for a ``rpc.owed_calls.PeerClient`` over a connection that the other side
    made.

    Args:
        process: who is called.
        timing: chooses the times that things take.
        on_lost: told when the connection is lost.
        channel: of the registration, where the other side made the connection; that notices a loss, too.
    """

    _numbers = itertools.count()

    def __init__(
        self, process: VirtualProcess, timing: Timing, on_lost: Callable[[], None], channel: bytes | None = None
    ) -> None:
        self._process = process
        self._timing = timing
        self._on_lost = on_lost
        self._context = copy_context()
        self._loop = asyncio.get_running_loop()
        self._caller = channel or b"%d" % next(self._numbers)
        self.connection = channel
        self._owed: list[asyncio.Future[Any]] = []
        self.made = 0
        """The number of calls, but for those that ask for life."""
        self.heard_at: float | None = None
        """When the last answer came, on the loop's clock; None before the first."""
        self._settled = asyncio.Event()
        self._settled.set()
        self._last_arrival = 0.0
        self.is_closed = False
        self.is_lost = False
        self.is_dead = False
        process.connections.append(self)

    def call(
        self, verb: str, *args: object, timeout: float | None = None, renewed: Callable[[], float | None] | None = None
    ) -> "asyncio.Future[Value]":
        """Call a verb; the future gets its answer or its error."""
        told: asyncio.Future[Value] = self._loop.create_future()
        if self.is_dead:
            return told
        if self.is_closed or self.is_lost:
            told.set_exception(ConnectionLost("the connection is gone"))
            told.exception()
            return told
        self.made += verb != "ping"
        packed = pack(args)
        owed: asyncio.Future[Any] = self._loop.create_future()
        self._owed.append(owed)
        self._settled.clear()
        owed.add_done_callback(lambda answer: self._answered(answer, told))
        self._last_arrival = max(self._last_arrival, self._loop.time() + self._timing.way())
        self._loop.call_at(self._last_arrival, self._arrive, verb, packed, owed, context=self._process.context)
        if timeout is not None:
            self._loop.call_later(timeout, _fail, told, TimedOut(f"no answer to {verb} within {timeout:g} s"))
        return told

    def ask(
        self,
        verb: str,
        args: tuple[object, ...],
        taker: AnswerTaker,
        timeout: float | None = None,
        renewed: Callable[[], float | None] | None = None,
    ) -> None:
        """Call a verb; the taker gets its answer or its error."""
        pass_on(self.call(verb, *args, timeout=timeout, renewed=renewed), taker)

    def _arrive(self, verb: str, packed: bytes, owed: "asyncio.Future[Any]") -> None:
        served = self._process.served
        if served is None or self.is_lost or owed.done():
            return
        if self._process.is_stopped:
            self._loop.call_later(STOPPED_SECONDS, self._arrive, verb, packed, owed)
            return
        try:
            args = unpack(packed)
            assert isinstance(args, list)
            answer = served.handle(self._caller, verb, args)
        except XbusError as error:
            answer = self._loop.create_future()
            answer.set_exception(error)
        if isinstance(answer, asyncio.Future | Promise):
            answer.add_done_callback(partial(self._send_back, owed))
        else:
            self._send_answer(self._timing.way(), owed, answer)

    def _send_back(self, owed: "asyncio.Future[Any]", done: AnswerSource[Any]) -> None:
        error = None if done.cancelled() else done.exception()
        seconds = self._timing.way()
        if isinstance(error, CallError):
            self._loop.call_later(seconds, _fail, owed, error)
        elif error is not None:
            self._loop.call_later(seconds, _fail, owed, Failed(repr(error), code="recipient_failed"))
        elif not done.cancelled():
            self._send_answer(seconds, owed, done.result())

    def _send_answer(self, seconds: float, owed: "asyncio.Future[Any]", answer: object) -> None:
        """Send an answer in the form in which the wire brings it, such as tuples as lists."""
        try:
            self._loop.call_later(seconds, _give, owed, unpack(pack(answer)))
        except ProtocolError as error:
            self._loop.call_later(seconds, _fail, owed, Failed(error.cause, code="internal_error"))

    def _answered(self, owed: "asyncio.Future[Any]", told: "asyncio.Future[Any]") -> None:
        self.heard_at = self._loop.time()
        self._owed.remove(owed)
        if not self._owed:
            self._settled.set()
        error = owed.exception()
        if error is not None:
            _fail(told, error)
        else:
            _give(told, owed.result())

    @property
    def owed(self) -> int:
        """The number of calls without an answer."""
        return len(self._owed)

    @property
    def overdue(self) -> Sequence[OverdueCall]:
        """None: simulated calls that time out are answered in the end, or lost."""
        return ()

    async def settled(self) -> None:
        """Wait until nothing is owed."""
        await self._settled.wait()

    def lose(self) -> None:
        """Lose the other side; this one notices after a while."""
        if not self.is_lost:
            self.is_lost = True
            self._leave()
            self._loop.call_later(self._timing.notice(), self._notice, context=self._context)
            self._let_notice()

    def _notice(self) -> None:
        if self.is_dead:
            return
        self._fail_all()
        if not self.is_closed:
            self._on_lost()

    def close(self) -> None:
        """Close in order; unanswered calls fail."""
        self.is_closed = True
        self._leave()
        if not self.is_dead:
            self._fail_all()

    def kill(self) -> None:
        """Go down with this side: it sends no more, and nobody waits for an answer."""
        self.is_dead = True
        self._leave()
        self._let_notice()

    def _let_notice(self) -> None:
        if self.connection is not None:
            self._loop.call_later(
                self._timing.notice(), self._process.miss, self.connection, context=self._process.context
            )

    def _leave(self) -> None:
        if self in self._process.connections:
            self._process.connections.remove(self)

    def _fail_all(self) -> None:
        for owed in list(self._owed):
            _fail(owed, ConnectionLost("the connection was lost"))


def _fail(future: "asyncio.Future[Any]", error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()


def _give(future: "asyncio.Future[Any]", answer: Any) -> None:
    if not future.done():
        future.set_result(answer)
