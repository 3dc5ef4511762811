"""The calls of one envelope: pipelined, answered in order, made again after trouble."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain

from xbus.emitter.patience import PAUSED, SLOW_DOWN, EmitterPatience
from xbus.emitter.session import CallTransport, SendWindow
from xbus.errors import CallError, ConnectionLost, Failed, ProtocolError, Refused, TimedOut
from xbus.rpc.codec import Value

END_EVENT = "xbus.end_event"


@dataclass(eq=False, slots=True)
class RepeatableCall:
    """One call, made of what it needs for a repeat.

    Attributes:
        verb: the name on the wire.
        arguments: what follows the token.
        seconds: how long to wait for its answer, if the emitter insists for so long.
        size: the bytes that it takes of the window.
        durable: whether its answer promises that it, and all before it, is durable. The opening of an envelope or an
            event promises nothing: after a crash of the broker an answered opening may be forgotten.
        may_wait: whether its answer may wait for a consumer's immediate reply: of an end, of an event or the envelope.
        error_in: gives the error that its answer bears, if any; None where no answer bears one.
    """

    verb: str
    arguments: tuple[object, ...]
    seconds: float
    size: int = 0
    durable: bool = True
    may_wait: bool = False
    error_in: Callable[[Value], CallError | None] | None = None


@dataclass(eq=False, slots=True)
class _PendingEntry:
    call: RepeatableCall
    settle: Callable[[Value], None]
    answered: bool = False
    answer: Value = None
    refusal: CallError | None = None


class PendingCalls:
    """Keeps each call until nobody will ever have to repeat it, in the order of the first calls.

    Answers may come in any order but take effect in that of the calls: a refusal of the second batch means nothing
    while the first one has failed and is to be repeated, for the second is then repeated too.
    """

    def __init__(self) -> None:
        self._promised_nothing: list[_PendingEntry] = []
        self._waiting: deque[_PendingEntry] = deque()
        self._entries: dict[RepeatableCall, _PendingEntry] = {}

    def __len__(self) -> int:
        """Count the calls that wait for their answer, or for that of an earlier one."""
        return len(self._waiting)

    @property
    def has_mere_openings(self) -> bool:
        """True while answered openings have no durable call behind them: the front may forget these."""
        return bool(self._promised_nothing)

    @property
    def waits_for_reply(self) -> bool:
        """True while the oldest unanswered call is the end of an event, which may wait for a consumer's reply."""
        return bool(self._waiting) and self._waiting[0].call.verb == END_EVENT

    def add(self, call: RepeatableCall, settle: Callable[[Value], None]) -> None:
        """Note a call.

        Args:
            call: the call that is being made.
            settle: called with the answer once that of every earlier call is there too.
        """
        entry = _PendingEntry(call, settle)
        self._entries[call] = entry
        self._waiting.append(entry)

    def withdraw(self, call: RepeatableCall) -> None:
        """Forget the call that was added last, as it can't be made."""
        self._waiting.remove(self._entries.pop(call))

    def answered(self, call: RepeatableCall, answer: Value) -> None:
        """Note that the call succeeded.

        Raises:
            CallError: this answer uncovers the refusal of a later call.
        """
        entry = self._entries.get(call)
        if entry is not None and not entry.answered:
            entry.answered, entry.answer, entry.refusal = True, answer, None
            self._advance()

    def refused(self, call: RepeatableCall, refusal: CallError) -> None:
        """Note that the call was refused.

        Raises:
            CallError: all earlier calls succeeded, so the refusal is final.
        """
        entry = self._entries.get(call)
        if entry is None or entry.answered:
            return
        entry.refusal = refusal
        self._advance()

    def repeat(self) -> list[RepeatableCall]:
        """List the calls to send again, in order; forget refusals so far, which the failure may have caused."""
        calls = list(self._unkept())
        for call in calls:
            self._entries[call].refusal = None
        return calls

    def clear(self) -> int:
        """Forget everything; returns the bytes of the window that this sets free."""
        size = sum(entry.call.size for entry in self._waiting)
        self._promised_nothing.clear()
        self._waiting.clear()
        self._entries.clear()
        return size

    def _unkept(self) -> Iterator[RepeatableCall]:
        return (
            entry.call
            for entry in chain(self._promised_nothing, self._waiting)
            if not (entry.answered and entry.call.durable)
        )

    def _advance(self) -> None:
        while self._waiting:
            entry = self._waiting[0]
            if entry.refusal is not None:
                raise entry.refusal
            if not entry.answered:
                return
            self._waiting.popleft()
            self._keep(entry)
            entry.settle(entry.answer)

    def _keep(self, entry: _PendingEntry) -> None:
        if not entry.call.durable:
            self._promised_nothing.append(entry)
            return
        for kept in self._promised_nothing:
            del self._entries[kept.call]
        self._promised_nothing.clear()
        del self._entries[entry.call]


FORGOTTEN = frozenset({"envelope_unknown", "event_unknown"})
"""Codes by which the front refuses an opening that it answered and never wrote, after a crash."""

LOOKS = 4
"""The emitter looks so often within ``retry_seconds`` whether the front lives, while a reply is waited for."""

SHORTEST_LOOK_SECONDS = 0.01

SENT_BY_SUCCESS = 2
"""The calls that go on by each success, after the bus asked to slow down. With one the stream would never be faster."""

NO_REPLY = frozenset({"reply_failed", "reply_timed_out"})
"""Codes of failures that are an answer: the consumer was asked, and the caller decides about asking again."""


class Stream:
    """Sends calls without waiting for the answers of those before.

    Every call bears ids and indexes that its maker chose, so a repeat of it gets the first answer and does nothing
    twice. After a lost connection, a time-out or a passing failure all unanswered calls are made again in order. That
    an immediate reply did not come is no such failure.

    Without a success for ``retry_seconds`` the stream breaks. A consumer may take longer for its reply: while the
    stream waits for one, it asks the front for a sign of life, and that counts as success. While an operator has paused
    the emitter or an event type, the stream waits for ``pause_seconds``. If the front asks it to slow down, the stream
    waits for as long as the front says, and goes on with few calls in flight at first.

    Args:
        session: makes the calls.
        window: counts what is in flight, together with the emitter's other envelopes.
        patience: says how long to insist.

    Attributes:
        error: what broke the stream, if anything did; every later call raises it.
        events: how many events were begun by it.
    """

    def __init__(self, session: CallTransport, window: SendWindow, patience: EmitterPatience) -> None:
        self.error: CallError | None = None
        self.events = 0
        self._session = session
        self._window = window
        self._patience = patience
        self._pending = PendingCalls()
        self._results: set[asyncio.Future[Value]] = set()
        self._recovery: asyncio.Task[None] | None = None
        self._attempt = 1
        self._unsent: deque[RepeatableCall] = deque()
        self._claim: RepeatableCall | None = None
        self._claimed_at_login = 0
        self._watch: asyncio.TimerHandle | None = None
        self._probe: asyncio.Task[None] | None = None
        self._is_failing = False

    def submit(self, call: RepeatableCall) -> asyncio.Future[Value]:
        """Make a call.

        Returns:
            A future of its answer, which comes after those of all earlier calls. It need not be awaited.

        Raises:
            ProtocolError: the call has no form on the wire; the stream goes on without it.
        """
        result: asyncio.Future[Value] = asyncio.get_running_loop().create_future()
        if self.error is not None:
            _fail(result, self.error)
            return result
        self._window.take(call.size)
        self._owe(call, result)
        if self._recovery is None:
            if self._unsent:
                self._unsent.append(call)
            elif self._is_claimed:
                try:
                    # An answer may get lost alone: the call is made twice at least.
                    self._transmit(call, self._patience.seconds / 2)
                except ProtocolError:
                    self._pending.withdraw(call)
                    self._results.discard(result)
                    self._window.give(call.size)
                    raise
            else:
                self._recovery = asyncio.create_task(self._repeat(None), name="xbus emitter claims its envelope anew")
        self._patience.begin()
        if call.may_wait and self._watch is None and self._patience.seconds:
            self._watch_on()
        return result

    def insist(self, call: RepeatableCall, began: float, error: CallError) -> asyncio.Future[Value]:
        """Go on with a call whose first attempt was made elsewhere, and failed.

        Args:
            call: the call, which the window counts already.
            began: when that attempt began, on the monotonic clock.
            error: its outcome.

        Returns:
            As ``submit``.
        """
        result: asyncio.Future[Value] = asyncio.get_running_loop().create_future()
        self._owe(call, result)
        self._patience.begin(began)
        self._answered(call, self._attempt, None, error)
        return result

    def _owe(self, call: RepeatableCall, result: asyncio.Future[Value]) -> None:
        self._results.add(result)
        self._pending.add(call, partial(self._settle, call, result))

    def claim(self, call: RepeatableCall) -> asyncio.Future[Value]:
        """Make the call by which this session, and no other, may send the envelope. A later session of this emitter
        makes it again, before it sends anything."""
        self._claim = call
        self._claimed_at_login = self._session.logins
        return self.submit(call)

    @property
    def failure(self) -> CallError | None:
        """The failure because of which calls are made again; None while they succeed."""
        return self._patience.failure

    async def room(self) -> None:
        """Return when the window takes a further batch.

        Raises:
            CallError: the stream is broken.
        """
        if self.error is None:
            await self._window.room()
        if self.error is not None:
            raise self.error

    def abandon(self, error: CallError) -> None:
        """Give up all that is unanswered; this and every later call raises ``error``."""
        if self.error is not None:
            return
        self.error = error
        self._window.give(self._pending.clear())
        self._unsent.clear()
        for task in (self._recovery, self._probe, self._watch):
            if task is not None:
                task.cancel()
        for result in self._results:
            _fail(result, error)
        self._results.clear()

    def end(self) -> None:
        """Make no call again: the envelope is over, or its sender has stopped waiting."""
        if self._pending:
            self.abandon(Refused("the envelope is over", "send it as a new one", code="envelope_closed"))
        elif self._watch is not None:
            self._watch.cancel()

    def _transmit(self, call: RepeatableCall, insists: float) -> None:
        # What may wait for a reply is watched instead.
        seconds = call.seconds if call.may_wait or not self._patience.seconds else min(call.seconds, insists)
        self._session.ask(call.verb, call.arguments, partial(self._answered, call, self._attempt), seconds)

    def _answered(self, call: RepeatableCall, attempt: int, answer: Value, error: CallError | None) -> None:
        if self.error is not None:
            return
        if error is None and call.error_in is not None:
            error = call.error_in(answer)
        if isinstance(error, Refused) or (isinstance(error, Failed) and error.code in NO_REPLY):
            self._refused(call, attempt, error)
        elif isinstance(error, Failed):
            self._failed(attempt, error)
        else:
            self._succeeded(call, answer)

    def _failed(self, attempt: int, failure: Failed) -> None:
        if failure.code == PAUSED and attempt == self._attempt and not self._patience.paused():
            self.abandon(self._patience.given_up(failure))
        else:
            self._recover(attempt, failure)

    def _succeeded(self, call: RepeatableCall, answer: Value) -> None:
        try:
            self._pending.answered(call, answer)
        except CallError as uncovered:
            self.abandon(uncovered)
            return
        if self._recovery is None:
            self._send_on(SENT_BY_SUCCESS)
        if call.durable:
            self._is_failing = False
        if call.durable or not self._pending:
            self._progressed()

    def _progressed(self) -> None:
        """Begin to count anew, if anything is still waited for."""
        self._patience.succeeded()
        if self._pending:
            self._patience.begin()

    def _refused(self, call: RepeatableCall, attempt: int, refusal: CallError) -> None:
        if refusal.code == "session_unknown" or (refusal.code in FORGOTTEN and self._pending.has_mere_openings):
            self._recover(attempt, refusal)
            return
        # A late refusal of an earlier attempt may be due to what failed in that one.
        if attempt == self._attempt:
            try:
                self._pending.refused(call, refusal)
            except CallError as standing:
                self.abandon(standing)

    def _settle(self, call: RepeatableCall, result: asyncio.Future[Value], answer: Value) -> None:
        self._window.give(call.size)
        self._results.discard(result)
        if not result.done():
            result.set_result(answer)

    def _recover(self, attempt: int, error: CallError) -> None:
        if self._recovery is None and attempt == self._attempt and self.error is None:
            self._is_failing = self._is_failing or not isinstance(error, (TimedOut, ConnectionLost))
            self._recovery = asyncio.create_task(self._repeat(error), name="xbus emitter repeats calls")

    async def _repeat(self, error: CallError | None) -> None:
        try:
            await self._restore_session(error)
        except CallError as last:
            self._recovery = None
            self.abandon(last)
            return
        self._recovery = None
        self._attempt += 1
        self._unsent = deque(self._pending.repeat())
        if error is None or error.code != SLOW_DOWN:
            self._send_on(len(self._unsent))
        else:
            # What is behind a call that is told to slow down again would be sent in vain.
            self._send_on(next((n for n, call in enumerate(self._unsent, 1) if call.durable), len(self._unsent)))

    def _send_on(self, count: int) -> None:
        """Send so many of the calls that have been kept back."""
        for _ in range(count):
            # An error breaks the stream at once.
            if not self._unsent:
                return
            try:
                self._transmit(self._unsent.popleft(), self._patience.left)
            except ProtocolError as error:
                # The author who made the call is not there to catch it: the taker of another call's answer is.
                self.abandon(Refused(error.cause, error.next_step, code=error.code))

    async def _restore_session(self, error: CallError | None) -> None:
        while True:
            if error is not None:
                await asyncio.sleep(self._patience.delay_after(error))
            try:
                async with asyncio.timeout(self._patience.left if self._patience.seconds else None):
                    if error is not None:
                        await self._session.restore()
                    return await self._claim_anew()
            except TimeoutError:
                error = error or _silent()
            except Failed as failure:
                error = failure

    def _watch_on(self) -> None:
        seconds = min(self._patience.seconds / LOOKS, max(self._patience.left, SHORTEST_LOOK_SECONDS))
        self._watch = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        """See whether the front, or the consumer that is asked, still gets on."""
        self._watch = None
        if self.error is not None or not self._pending:
            return
        if self._recovery is None and self._probe is None:
            if self._pending.waits_for_reply and not self._is_failing:
                self._probe = asyncio.create_task(self._ask_for_life(), name="xbus emitter waits for a reply")
            elif not self._patience.left:
                self._recover(self._attempt, _silent())
        self._watch_on()

    async def _ask_for_life(self) -> None:
        attempt, error = self._attempt, None
        try:
            async with asyncio.timeout(self._patience.seconds / LOOKS):
                await self._session.restore()
        except TimeoutError:
            error = _silent()
        except Failed as failure:
            error = failure
        except CallError as refusal:
            self._probe = None
            self.abandon(refusal)
            return
        self._probe = None
        if error is not None:
            self._recover(attempt, error)
        elif self._pending.waits_for_reply:
            self._progressed()

    @property
    def _is_claimed(self) -> bool:
        """True if this session may send the envelope, as far as it has to claim it at all."""
        return self._claim is None or self._claimed_at_login == self._session.logins

    async def _claim_anew(self) -> None:
        if self._claim is not None and not self._is_claimed:
            login = self._session.logins
            await self._session.call(self._claim.verb, *self._claim.arguments, seconds=self._claim.seconds)
            self._claimed_at_login = login


def _silent() -> Failed:
    return TimedOut("the bus does not answer", "see whether it runs at this address")


def _fail(result: asyncio.Future[Value], error: CallError) -> None:
    if not result.done():
        result.set_exception(error)
        result.exception()  # marks it as seen: who does not await it learns of it from the stream
