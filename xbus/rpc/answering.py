"""The answering side of a connection, or of all connections of a port: it carries calls out and sends the answers.

The other side may call over a connection that we made: a caller opens channels on it. Each registration of a recipient
has a channel of its own. So no call outlives the registration that it was made for, whatever of it was still under way
or read ahead.
"""

import asyncio
import logging
import math
import os
import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from types import CoroutineType
from typing import Any, TypeAlias

from xbus.calling import CALLING
from xbus.clock import Clock
from xbus.errors import CallError, Failed, ProtocolError, Refused
from xbus.log_throttle import LogThrottle
from xbus.rpc.codec import KEPT_BYTES, KeptPacker, Key, Value, pack
from xbus.rpc.deferred import Deferred, Promise, settled
from xbus.rpc.dispatch import Dispatch, SharedCall
from xbus.rpc.frames import (
    CALL_TOO_LARGE,
    REPLY,
    REQUEST_FRAMES,
    argument_bytes,
    decode_request,
    encode_error,
    first_argument,
    sender_prefix,
)
from xbus.rpc.ports import CallerConnection

log = logging.getLogger(__name__)

TOKEN = "token"  # noqa: S105 - the name of the parameter
"""The parameter of verbs by which callers say who they are, always the first."""

STRANGER_BYTES = 4096
"""The most bytes of arguments that are looked at before it is known who calls."""

SUPERSEDED = "connection_superseded"
"""The code of a call by a channel that is closed."""


@dataclass(eq=False, slots=True)
class Share:
    """The calls of a connection, as ``Turns`` counts them.

    Args:
        peer: its id.
        period: of its last call, or the present one while calls wait.
        calls: the number of its unanswered calls that began in that period.
        weight: theirs.
        earlier_calls: those that began in the period before.
        earlier_weight: theirs.
        rests_until: the time up to which it rests behind a large call, while others call.
        waiting: calls, in their order.
        waiting_bytes: of those.
        is_stopped: whether nothing more is read of the connection until half of its room is free.
    """

    peer: bytes
    period: int
    calls: int = 0
    weight: int = 0
    earlier_calls: int = 0
    earlier_weight: int = 0
    rests_until: float = 0.0
    waiting: "deque[Call]" = field(default_factory=deque)
    waiting_bytes: int = 0
    is_stopped: bool = False

    def begin_period(self, period: int) -> None:
        """Count the calls that begin from now on apart from those of the period before."""
        is_next = period == self.period + 1
        self.earlier_calls, self.earlier_weight = (self.calls, self.weight) if is_next else (0, 0)
        self.period, self.calls, self.weight = period, 0, 0


@dataclass(eq=False, slots=True)
class Call:
    """A call that has come.

    Args:
        peer: the first of its frames: the id of its connection, or a channel.
        frames: those of a request, behind those with which its answer begins. From ``Answering.take`` on those alone:
            the arguments were read out of the others, which would keep them a second time.
        size: the bytes of all frames.
        connection: by which it came; None for a call by a channel.
        share: that of its connection, where ``Turns`` counts it while it is under way.
        since: when its answer began to be waited for, on the monotonic clock; infinite for one that is given at once.

    Attributes:
        period: in which its share began to count it.
        id: of the request.
        method: the verb.
        args: those of the verb.
        sender: opens the header of the answer to a call of the shared verb.
        claim: for a call of the shared verb, asked with False by whoever sends its answer; true for the first one.
    """

    peer: bytes
    frames: list[bytes]
    size: int
    connection: CallerConnection | None = None
    share: Share | None = None
    since: float = math.inf
    period: int = field(init=False)
    id: int = field(init=False)
    method: str = field(init=False)
    args: list[Value] = field(init=False)
    sender: bytes = field(init=False)
    claim: Callable[[bool], bool] = field(init=False)

    @property
    def is_followed(self) -> bool:
        """Check whether further calls of its connection wait for their turn."""
        return self.share is not None and bool(self.share.waiting)

    def send_early(self, answer: object) -> None:
        """Send the answer from another thread, if it can go at once; see ``SharedCall``."""
        if self.connection is not None and (stream := self.connection.stream) is not None:
            header = self.sender + REPLY.pack(self.id, time.time(), False)
            stream.send_early([*self.frames[1:], header, pack(answer)], self.claim)


_Later: TypeAlias = asyncio.Future[Any] | Deferred[Any] | Promise[Any]
"""An answer that comes later."""

_LATER = (Promise, Deferred, asyncio.Future, CoroutineType)
"""The kinds of answers that come later."""


class Answering:
    """Carries out the calls that are handed to it, in their order, and sends an answer to each.

    A plain handler runs at once. A handler that returns a future or a coroutine is answered when that is done.

    Args:
        dispatch: the verbs.
        name: for the log.
        send: sends the frames of the answer to a call, behind those with which it begins; false if it reached nobody.
            It gets none where the answer was sent early.
        unreadable: gets each message that is no request, so that nobody can reply to it.
        max_call_bytes: larger calls are refused.
    """

    def __init__(
        self,
        dispatch: Dispatch,
        *,
        name: str,
        send: Callable[[Call, list[bytes]], bool],
        unreadable: Callable[[Call, ProtocolError], None],
        max_call_bytes: float = math.inf,
    ) -> None:
        self._name = name
        self._dispatch = dispatch
        self._send = send
        self._unreadable = unreadable
        self._max_call_bytes = max_call_bytes
        self.shared = None if dispatch.shared is None else [dispatch.shared.encode()]
        """The third frame from the end of a call of the shared verb."""
        self._bytes_of_all = min(STRANGER_BYTES, max_call_bytes)
        """The bytes of calls that are carried out for everybody."""
        self._sender = sender_prefix(os.getpid(), secrets.randbits(16))
        self._packer = KeptPacker()
        self._waiting: dict[_Later | SharedCall, Call] = {}
        self._is_closed = False
        self._all_answered: Promise[None] | None = None
        """Settled when no call waits any more, while somebody waits for that."""
        self.caller = b""
        """The opener of the frames of the call that is carried out now; to be asked by plain handlers only."""
        self.connection: CallerConnection | None = None
        """The connection by which that call came."""
        self.refused: Counter[str] = Counter()
        """The number of answers to calls by the code of their error."""
        self.unanswered_bytes = 0
        """The size of the calls that wait for their answers."""

    @property
    def unanswered(self) -> int:
        """The number of calls that wait for their handler's future."""
        return len(self._waiting)

    def is_shared(self, call: Call) -> bool:
        """Check whether a call that was read is one of the shared verb."""
        return call.method == self._dispatch.shared

    def take_all(self, calls: Iterable[Call]) -> None:
        """Carry out calls in their order, those of the shared verb that follow each other together."""
        for are_shared, some in groupby(calls, lambda call: call.frames[-3:-2] == self.shared):
            if are_shared:
                self.take_together(some)
                continue
            for call in some:
                self.take(call)

    def take(self, call: Call) -> None:
        """Carry out a call of a verb that is not shared."""
        kwargs = self._read(call)
        if kwargs is None:
            return
        calling = CALLING.set(call.peer)
        try:
            answer = self._dispatch.call(call.method, call.args, kwargs)
        except Exception as error:
            self._answer_error(call, error)
        else:
            if isinstance(answer, _LATER):
                if isinstance(answer, CoroutineType):
                    answer = asyncio.get_running_loop().create_task(answer, name=f"{self._name} {call.method}")
                call.since = time.monotonic()
                self._waiting[answer] = call
                self.unanswered_bytes += call.size
                answer.add_done_callback(self._answered)
            else:
                self._answer(call, answer)
        finally:
            CALLING.reset(calling)

    def take_together(self, calls: Iterable[Call]) -> None:
        """Carry out calls of the shared verb together."""
        assert self._dispatch.shared is not None, "a verb is shared"
        since, checked = time.monotonic(), self._dispatch.handlers[self._dispatch.shared].checked
        together: list[SharedCall] = []
        for call in calls:
            kwargs = self._read(call)
            if kwargs is None:
                continue
            try:
                call.args = checked(call.args, kwargs)
            except CallError as error:
                self._answer_error(call, error)
                continue
            call.since, call.sender, call.claim = since, self._sender, threading.Lock().acquire
            self._waiting[call] = call
            self.unanswered_bytes += call.size
            together.append(call)
        if together:
            try:
                self._dispatch.call_together(together, self.give)
            except Exception as error:
                self.give(together, [error] * len(together))

    def _read(self, call: Call) -> dict[Key, Value] | None:
        """Read what a call asks for; give its keyword arguments.

        Returns:
            None where it is not carried out, and answered as far as anybody can.
        """
        self.caller, self.connection = call.peer, call.connection
        frames = call.frames
        stranger = refusal = None
        if call.size > self._bytes_of_all:
            # A large call is not looked at without knowing who calls.
            stranger = self._refusal(frames) if argument_bytes(frames) > STRANGER_BYTES else None
            refusal = stranger or (self._too_large(call.size) if call.size > self._max_call_bytes else None)
        try:
            call.id, call.method, call.args, kwargs, refusal = decode_request(frames, refusal)
        except ProtocolError as error:
            self._unreadable(call, error)
            return None
        del frames[-REQUEST_FRAMES:]
        if refusal is None:
            return kwargs
        if stranger is None:
            self._answer_error(call, refusal)
        else:
            self._refuse(call, stranger)
        return None

    def knows_caller(self, frames: list[bytes]) -> bool:
        """Check whether it is known who makes a call, by token or connection; true also where nobody asks."""
        self.caller = frames[0]
        return argument_bytes(frames) > 0 and self._refusal(frames) is None

    def refuse(self, call: Call, error: CallError) -> None:
        """Answer a call with an error, without a look at its arguments."""
        try:
            call.id, call.method, call.args, _, _ = decode_request(call.frames, error)
        except ProtocolError as unreadable:
            self._unreadable(call, unreadable)
            return
        del call.frames[-REQUEST_FRAMES:]
        self._answer_error(call, error)

    async def all_answered(self) -> None:
        """Wait for all calls to be answered."""
        if self._waiting:
            self._all_answered = self._all_answered or Promise()
            await settled(self._all_answered)

    def give_up(self, seconds: float, error: Exception) -> None:
        """Answer the calls that have waited for so long with what their verbs make of ``error``."""
        before = time.monotonic() - seconds
        overdue = [answer for answer, call in self._waiting.items() if call.since < before]
        for answer in overdue:
            if isinstance(answer, Promise):
                # What comes of it all the same is nobody's concern.
                self._answered(answer, error)
            elif isinstance(answer, Call):
                self.give([answer], [error])
            elif isinstance(answer, Deferred):
                answer.give_up(error)
                self._answered(answer)

    def close(self) -> None:
        """Answer nothing any more."""
        self._is_closed = True

    def cancel(self) -> None:
        """Cancel what waits, and answer nothing any more."""
        for answer in self._waiting:
            if isinstance(answer, Deferred | asyncio.Task):
                answer.cancel()
        self.close()

    def _refusal(self, frames: list[bytes]) -> CallError | None:
        knows = self._dispatch.knows
        if knows is None or knows(first_argument(frames, TOKEN)):
            return self._dispatch.refusal()
        return Refused("the session is unknown or has expired", "log in again", code="session_unknown")

    def _too_large(self, size: int) -> Refused:
        cause = f"the call has {size} bytes, and {self._max_call_bytes:.0f} are taken at the most"
        return Refused(cause, "send less at once", code=CALL_TOO_LARGE)

    def give(self, calls: Sequence[SharedCall], answers: Sequence[object]) -> None:
        """Answer calls of the shared verb, unless they were given up.

        Args:
            answers: of each, or its error.
        """
        for shared, answer in zip(calls, answers, strict=True):
            call = self._forget(shared)
            if call is None:
                continue
            if not call.claim(False):
                self._send(call, [])
            elif isinstance(answer, BaseException):
                self._refuse(call, answer)
            else:
                self._answer(call, answer)

    def _answered(self, answer: "_Later", overdue: Exception | None = None) -> None:
        """Answer a call that had to wait.

        Args:
            overdue: the error of a promise that is waited for no longer.
        """
        call = self._forget(answer)
        if call is None:
            return
        if isinstance(answer, Promise):
            value, error = answer.answer, overdue or answer.error
            if error is not None:
                # The verb has not translated it.
                self._refuse(call, error)
                return
        else:
            value, error = (answer if isinstance(answer, Deferred) else Deferred(answer)).outcome()
        if error is None:
            self._answer(call, value)
        else:
            self._answer_error(call, error)

    def _forget(self, answer: "_Later | SharedCall") -> Call | None:
        """Give the call that waits for an answer, and forget it; None if it was abandoned, or nobody is answered."""
        call = self._waiting.pop(answer, None)
        if call is None:
            return None
        self.unanswered_bytes -= call.size
        if self._all_answered is not None and not self._waiting:
            self._all_answered.set_result(None)
            self._all_answered = None
        return None if self._is_closed else call

    def _refuse(self, call: Call, error: BaseException) -> None:
        """Answer a call as its verb answers an error."""
        if isinstance(error, Exception):
            try:
                answer = self._dispatch.refuse(call.method, error)
            except Exception as translated:
                error = translated
            else:
                self._answer(call, answer)
                return
        self._answer_error(call, error)

    def _answer(self, call: Call, answer: object) -> None:
        try:
            header = self._sender + REPLY.pack(call.id, time.time(), False)
            frames = [header, self._packer.pack(answer)]
        except Exception as error:
            # Whatever a handler returned: its caller waits for an answer.
            self._answer_error(call, error)
        else:
            if len(frames[-1]) > KEPT_BYTES:
                self._packer.packed(frames[-1])
            if not self._send(call, frames):
                self._dispatch.undo(call.method, answer)

    def _answer_error(self, call: Call, error: BaseException) -> None:
        verb = call.method
        if isinstance(error, asyncio.CancelledError):
            error = Failed("the call was cancelled", "call again", code="call_cancelled")
        elif not isinstance(error, CallError):
            log.error("a handler failed", exc_info=error, extra={"action": "handler_failed", "verb": verb})
            error = Failed("an internal error ended the call", "see the log of the other side", code="internal_error")
        try:
            frames = encode_error(self._sender, call.id, time.time(), error)
        except Exception:
            # As of an author's class of errors that lacks a cause.
            log.exception("an error can't be sent", extra={"action": "handler_failed", "verb": verb})
            error = Failed(f"an error of the class {type(error).__name__} can't be sent", code="internal_error")
            frames = encode_error(self._sender, call.id, time.time(), error)
        self._send(call, frames)
        self.refused[error.code] += 1
        self._dispatch.note_error(verb, call.args, error)


class Channels:
    """Answers the calls that come by open channels, and no others.

    Args:
        name: who calls, for the log.
        clock: measures how often an unreadable call is logged.
        send: sends the frames of an answer; false if it reached nobody.
    """

    def __init__(self, name: str, clock: Clock, send: Callable[[list[bytes]], bool]) -> None:
        self._name = name
        self.send = send
        self._open: dict[bytes, Answering] = {}
        self._closed: dict[bytes, Answering] = {}
        self._unreadable = LogThrottle(clock)

    @property
    def unreadable(self) -> int:
        """The number of messages that were calls by no channel."""
        return self._unreadable.total

    def open(self, channel: bytes, dispatch: Dispatch) -> None:
        """Let the other side call the verbs of a dispatch table by a new channel."""
        self._open[channel] = Answering(
            dispatch, name=self._name, send=self._send_answer, unreadable=self._note_unreadable
        )

    def is_open(self, channel: bytes) -> bool:
        """Check whether calls by a channel are carried out."""
        return channel in self._open

    def close(self, channel: bytes) -> None:
        """Refuse what still comes by a channel, and answer nothing of what came."""
        answering = self._open.pop(channel, None)
        if answering is not None:
            answering.close()
            self._closed[channel] = answering

    def lose(self) -> None:
        """Forget all channels, as the connection is gone: nobody waits for an answer."""
        for answering in self._open.values():
            answering.close()
        self._open.clear()
        self._closed.clear()

    def take(self, frames: list[bytes]) -> None:
        """Carry out a call; one by a channel that is closed gets ``connection_superseded``."""
        channel = frames[0]
        call = Call(channel, frames, sum(map(len, frames)))
        if channel in self._open:
            self._open[channel].take(call)
        elif channel in self._closed:
            error = Failed("the recipient has registered anew", "call by the new channel", code=SUPERSEDED)
            self._closed[channel].refuse(call, error)
        else:
            self._note_unreadable(call, ProtocolError("a call by a channel that is not open here"))

    def _note_unreadable(self, _: Call, error: ProtocolError) -> None:
        if count := self._unreadable.note(""):
            extra = {"action": "unreadable_call", "count": count, "cause": error.cause}
            log.info("%s: a call belongs to no registration", self._name, extra=extra)

    def _send_answer(self, call: Call, frames: list[bytes]) -> bool:
        return self.send([*call.frames, *frames])
