"""The calls of one envelope that may have to be made again. Pure: no socket, no loop, no clock."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

from xbus.errors import CallError
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
    """

    verb: str
    arguments: tuple[object, ...]
    seconds: float
    size: int = 0
    durable: bool = True
    may_wait: bool = False


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
