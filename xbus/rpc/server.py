"""The answering side: a ROUTER socket, whose calls are carried out in order of arrival."""

import asyncio
import errno
import logging
import math
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from types import CoroutineType
from typing import Any

import zmq

from xbus.clock import Clock, SystemClock
from xbus.errors import CallError, ConfigurationError, Failed, ProtocolError
from xbus.rpc.context import Context, router
from xbus.rpc.deferred import Deferred
from xbus.rpc.dispatch import Dispatch
from xbus.rpc.drain import Drain, always, bound_endpoint
from xbus.rpc.frames import Request, decode_request, encode_error, encode_reply, sender_prefix
from xbus.rpc.log_throttle import LogThrottle
from xbus.rpc.multipart import send

log = logging.getLogger(__name__)

MESSAGES_READ_AHEAD = 100
"""Messages that libzmq may keep of one peer before TCP slows the peer down."""

LINGER_MS = 1000
"""Milliseconds for which libzmq goes on sending replies after ``close``."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Bounds of what a server takes in and keeps, for one peer or for all.

    Args:
        max_message_bytes: a peer that sends a larger frame is disconnected by libzmq; -1 for no limit.
        max_unanswered_bytes: while the calls that wait for their answers hold more than this, nothing is read.
        replies_unread: replies that one peer may leave unread; further ones to it are dropped.
    """

    max_message_bytes: int
    max_unanswered_bytes: float = math.inf
    replies_unread: int = 100_000


class Server:
    """Serves the verbs of a dispatch table at an address.

    A plain handler runs at once and its answer is sent before the next call is read, so calls that a peer pipelines
    are carried out in the order in which it made them. A handler that returns a future or a coroutine is answered when
    that is done.

    Args:
        context: of the whole process.
        dispatch: the verbs.
        name: for the log.
        limits: of what it takes in and keeps.
        may_read: asked before each call; after a no nothing is read until ``resume``.
        clock: stamps the replies.
    """

    def __init__(
        self,
        context: Context,
        dispatch: Dispatch,
        *,
        name: str,
        limits: ServerLimits,
        may_read: Callable[[], bool] = always,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self._dispatch = dispatch
        self._clock = clock or SystemClock()
        self._sender = sender_prefix(os.getpid(), secrets.randbits(16))
        self._unreadable = LogThrottle(self._clock)
        self._undelivered = LogThrottle(self._clock)
        self._now = asyncio.get_running_loop().time
        self._waiting: dict[asyncio.Future[Any] | Deferred[Any], tuple[Request, float, int]] = {}
        self._may_read_on = may_read
        self._max_unanswered_bytes = limits.max_unanswered_bytes
        self._unanswered_bytes = 0
        self._held_back = False
        self._call_bytes = 0
        self._caller = b""
        self._all_answered = asyncio.Event()
        self._all_answered.set()
        self._socket = router(context)
        self._socket.set(zmq.MAXMSGSIZE, limits.max_message_bytes)
        self._socket.set(zmq.RCVHWM, MESSAGES_READ_AHEAD)
        self._socket.set(zmq.SNDHWM, limits.replies_unread)
        self._socket.set(zmq.ROUTER_MANDATORY, 1)
        self._socket.set(zmq.LINGER, LINGER_MS)
        self._drain = Drain(self._socket, self._serve, self._may_read)

    @property
    def unreadable(self) -> int:
        """The number of messages that were no requests."""
        return self._unreadable.total

    @property
    def unanswered(self) -> int:
        """The number of calls that wait for their handler's future."""
        return len(self._waiting)

    @property
    def caller(self) -> bytes:
        """The connection by which the call came that is carried out now; to be asked by plain handlers only."""
        return self._caller

    def bind(self, address: str) -> str:
        """Open the port; calls are read from ``start`` on.

        Args:
            address: ``tcp://host:port`` or ``ipc://path``; port 0 or ``*`` takes a free one.

        Returns:
            The address with the port that was taken.

        Raises:
            ConfigurationError: ``address_in_use`` or ``bad_address``.
        """
        try:
            self._socket.bind(address)
        except zmq.ZMQError as error:
            raise _bind_error(self.name, address, error) from error
        return bound_endpoint(self._socket)

    def start(self) -> None:
        """Begin to serve."""
        self._drain.resume()

    def pause(self) -> None:
        """Read no further calls; peers wait."""
        self._drain.pause()

    def resume(self) -> None:
        """Read again, after a ``pause`` or when ``may_read`` may have turned true."""
        self._drain.resume()

    async def drain(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds for all calls that were read to be answered; whether they are."""
        try:
            async with asyncio.timeout(timeout):
                await self._all_answered.wait()
        except TimeoutError:
            return False
        return True

    def give_up(self, seconds: float, error: Exception) -> None:
        """Answer the calls that have waited for so long with what their verbs make of ``error``."""
        now = self._now()
        overdue = [answer for answer, (_, since, _) in self._waiting.items() if now - since > seconds]
        for answer in overdue:
            if isinstance(answer, Deferred):
                answer.give_up(error)
                self._answered(answer)

    def close(self) -> None:
        """Cancel unanswered calls and close the port."""
        self._drain.pause()
        for answer in self._waiting:
            if isinstance(answer, Deferred | asyncio.Task):
                answer.cancel()
        self._socket.close()

    def _may_read(self) -> bool:
        return not self._held_back and self._may_read_on()

    def _serve(self, frames: list[bytes]) -> None:
        try:
            request = decode_request(frames)
        except ProtocolError as error:
            self._note_unreadable(frames[0], error)
            return
        if request.refusal is not None:
            self._answer_error(request, request.refusal)
            return
        self._caller = frames[0]
        self._call_bytes = sum(map(len, frames))
        try:
            answer = self._dispatch.call(request.method, request.args, request.kwargs)
        except Exception as error:
            self._answer_error(request, error)
        else:
            if isinstance(answer, (asyncio.Future, Deferred, CoroutineType)):
                self._answer_later(request, answer)
            else:
                self._answer(request, answer)

    def _answer_later(
        self, request: Request, answer: "asyncio.Future[Any] | Deferred[Any] | CoroutineType[Any, Any, Any]"
    ) -> None:
        if isinstance(answer, CoroutineType):
            answer = asyncio.get_running_loop().create_task(answer, name=f"{self.name} {request.method}")
        self._waiting[answer] = (request, self._now(), self._call_bytes)
        self._unanswered_bytes += self._call_bytes
        self._held_back = self._held_back or self._unanswered_bytes > self._max_unanswered_bytes
        self._all_answered.clear()
        answer.add_done_callback(self._answered)

    def _answered(self, answer: "asyncio.Future[Any] | Deferred[Any]") -> None:
        request, _, size = self._waiting.pop(answer, (None, 0.0, 0))
        if request is None:  # it was abandoned before
            return
        self._unanswered_bytes -= size
        if not self._waiting:
            self._all_answered.set()
        if self._socket.closed:
            return
        if self._held_back and self._unanswered_bytes <= self._max_unanswered_bytes / 2:
            self._held_back = False
            self._drain.resume()
        if answer.cancelled():
            self._answer_error(request, Failed("the call was cancelled", "call again", code="call_cancelled"))
        elif error := answer.exception():
            self._answer_error(request, error)
        else:
            self._answer(request, answer.result())
        self._drain.check()

    def _answer(self, request: Request, answer: object) -> None:
        try:
            frames = encode_reply(self._sender, request, self._clock.now().timestamp(), answer)
        except ProtocolError as error:
            self._answer_error(request, error)
        else:
            if not self._send(frames):
                self._dispatch.undo(request.method, answer)

    def _answer_error(self, request: Request, error: BaseException) -> None:
        if not isinstance(error, CallError):
            log.error("a handler failed", exc_info=error, extra={"action": "handler_failed", "verb": request.method})
            error = Failed("an internal error ended the call", "see the log of the other side", code="internal_error")
        self._send(encode_error(self._sender, request, self._clock.now().timestamp(), error))

    def _send(self, frames: list[bytes]) -> bool:
        try:
            send(self._socket, frames)
        except zmq.ZMQError as error:
            self._note_undelivered(frames[0], error)
            return False
        return True

    def _note_unreadable(self, peer: bytes, error: ProtocolError) -> None:
        if count := self._unreadable.note(peer):
            extra = {"action": "unreadable_request", "peer": peer.hex(), "count": count, "cause": error.cause}
            log.warning("%s: a peer sends what is no request", self.name, extra=extra)

    def _note_undelivered(self, peer: bytes, error: zmq.ZMQError) -> None:
        """Note a lost reply: the peer is gone (EHOSTUNREACH), or leaves its replies unread (EAGAIN)."""
        if count := self._undelivered.note(peer):
            extra = {"action": "undelivered_reply", "peer": peer.hex(), "count": count, "cause": str(error)}
            log.info("%s: a reply could not be delivered", self.name, extra=extra)


def _bind_error(name: str, address: str, error: zmq.ZMQError) -> ConfigurationError:
    if error.errno == errno.EADDRINUSE:
        cause, cure, code = "is in use", "stop what listens there, or configure another port", "address_in_use"
    else:
        cause, cure, code = f"can't be bound ({error})", "write tcp://host:port or ipc://path", "bad_address"
    return ConfigurationError(f"{name}: {address} {cause}", cure, code=code)
