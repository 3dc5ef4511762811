"""The calling side of a connection: it numbers calls, matches answers to them, and lets them time out."""

import asyncio
import itertools
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from xbus.clock import Clock
from xbus.errors import CallError, TimedOut
from xbus.rpc.codec import Frame, Value
from xbus.rpc.exchange.callee import OverdueCall
from xbus.rpc.frames import Reply, encode_request, sender_prefix

_REQUEST_IDS = 2**32


class OwedCalls:
    """The calls of one connection that are owed an answer.

    Calls are sent in the order in which they are made. One that can't be sent now waits, and so do those behind it.

    Args:
        name: who is called, for the errors.
        clock: stamps the requests.
        send: sends the frames of a call; false if they must wait for ``send_unsent``.
        ids: where its numbers come from; its own count by default.
    """

    def __init__(
        self, name: str, clock: Clock, send: Callable[[Sequence[Frame]], bool], ids: Iterator[int] | None = None
    ) -> None:
        self.name = name
        self._clock = clock
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._sender = sender_prefix(os.getpid(), secrets.randbits(16))
        self._ids = itertools.count() if ids is None else ids
        self._calls: dict[int, _AwaitedCall] = {}
        self._unsent: dict[int, Sequence[Frame]] = {}
        self._overdue: dict[int, OverdueCall] = {}
        self._settled = asyncio.Event()
        self._settled.set()
        self.heard_at: float | None = None
        """When the other side last answered, on the loop's clock; None before the first time."""

    def call(
        self,
        method: str,
        args: tuple[object, ...],
        timeout: float | None = None,
        renewed: Callable[[], float | None] | None = None,
    ) -> "asyncio.Future[Value]":
        """Call a verb; the request is sent before this returns, if it can be sent now.

        Args:
            timeout: seconds after which the future fails with ``TimedOut``; the call stays owed.
            renewed: asked when that time is over: when, on the loop's clock, it began anew, as the other side showed
                that it gets on with the call; None for never.

        Returns:
            A future of the answer. It fails with ``Refused`` or ``Failed`` as the other side says, with ``TimedOut``,
            or with ``ConnectionLost``.

        Raises:
            ProtocolError: an argument can't be encoded.
        """
        request_id = next(self._ids) % _REQUEST_IDS
        frames = encode_request(self._sender, request_id, self._clock.now().timestamp(), method, args)
        call = _AwaitedCall(method, self._loop.create_future())
        if timeout is not None:
            call.timer = self._loop.call_later(timeout, self._timed_out, request_id, timeout, renewed)
        self._calls[request_id] = call
        self._settled.clear()
        if self._unsent or not self._send(frames):
            self._unsent[request_id] = frames
        return call.future

    def refuse(self, method: str, error: CallError) -> "asyncio.Future[Value]":
        """Make the future of a call that is not even tried."""
        call = _AwaitedCall(method, self._loop.create_future())
        call.finish(None, error)
        return call.future

    @property
    def owed(self) -> int:
        """The number of calls without an answer, with those that timed out here."""
        return len(self._calls)

    @property
    def overdue(self) -> Sequence[OverdueCall]:
        """The calls that timed out here and are not answered yet, the first that timed out first."""
        return list(self._overdue.values())

    async def settled(self) -> None:
        """Wait until nothing is owed: all is answered, or has failed with its connection."""
        await self._settled.wait()

    def send_unsent(self) -> None:
        """Send the calls that wait, in their order, as far as they can be sent now."""
        for request_id, frames in list(self._unsent.items()):
            if not self._send(frames):
                return
            del self._unsent[request_id]

    def answered(self, reply: Reply) -> bool:
        """Give an answer to its caller; false if it belongs to no call of this connection."""
        self.heard_at = self._loop.time()
        call = self._forget(reply.id)
        if call is not None:
            call.finish(reply.answer, reply.error)
        return call is not None

    def fail_all(self, error: CallError) -> None:
        """Fail every call: its connection is gone."""
        calls, self._calls, self._unsent = self._calls, {}, {}
        self._overdue.clear()
        self._settled.set()
        for call in calls.values():
            call.finish(None, error)

    def _timed_out(self, request_id: int, timeout: float, renewed: Callable[[], float | None] | None) -> None:
        call = self._calls[request_id]
        began_anew = None if renewed is None else renewed()
        if began_anew is not None and began_anew + timeout > self._loop.time():
            call.timer = self._loop.call_at(began_anew + timeout, self._timed_out, request_id, timeout, renewed)
            return
        if self._unsent.pop(request_id, None):
            self._forget(request_id)
            cause = f"{self.name}: no connection for {call.method} within {timeout:.3g} s"
            call.finish(None, TimedOut(cause, "see whether the other side runs, and listens there"))
        else:
            self._overdue[request_id] = OverdueCall(call.method, self._loop.time())
            call.finish(None, TimedOut(f"{self.name}: no answer to {call.method} within {timeout:.3g} s"))

    def _forget(self, request_id: int) -> "_AwaitedCall | None":
        self._overdue.pop(request_id, None)
        call = self._calls.pop(request_id, None)
        if not self._calls:
            self._settled.set()
        return call


@dataclass(slots=True)
class _AwaitedCall:
    """A call that is owed an answer."""

    method: str
    future: "asyncio.Future[Value]"
    timer: asyncio.TimerHandle | None = None

    def finish(self, answer: Value, error: CallError | None) -> None:
        """Give the answer to whoever still waits for it."""
        if self.timer is not None:
            self.timer.cancel()
        if self.future.done():
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(answer)
