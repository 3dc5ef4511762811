"""Takes whole envelopes that come in one message: those that are plain go on as a group, the others go alone.

An envelope leaves the group where something is wrong with it, where its id is known already, and where its emitter has
reached a limit. Alone it takes the way of a single call, so that it gets the same answer. Only an exact repeat stays:
the transaction that finds its id taken also reads its first receipt.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import Any, TypeAlias, cast
from uuid import UUID

from xbus.broker.answers import on_wire, promised_answer
from xbus.broker.front.envelopes import (
    ID_BYTES,
    NewEvent,
    Throttle,
    heads_of_arrays,
    tags_of_array,
)
from xbus.broker.front.front import Front
from xbus.broker.journal.writes import SealedGroup, SealReceipt
from xbus.broker.sessions import Sessions
from xbus.envelope import EnvelopeHead
from xbus.errors import CallError, Failed, JournalError, JournalUnavailable, Refused, XbusError
from xbus.ids import is_computed, keyed_ids, token_hash
from xbus.rpc.codec import Key, Value
from xbus.rpc.deferred import Answer, Deferred, Promise
from xbus.rpc.dispatch import Dispatch, Give, SharedCall, shared
from xbus.rpc.frames import WRONG_ARGUMENTS
from xbus.rpc.messages import GroupedError, GroupedReceipt
from xbus.rpc.rests import LARGE_BYTES, Rests

log = logging.getLogger(__name__)

SPAN_ENVELOPES = 32
"""The envelopes of an emitter that go on together while the front is shared. More let it delay others for longer;
fewer make it slower itself."""

TOGETHER_BYTES = 512 * 1024
"""The bytes of items of several messages in a group. More make the group, which is sealed as a whole, longer."""

_DATA: Callable[[Any], bytes] = itemgetter(4)
_Message: TypeAlias = tuple[SharedCall, int, list[Value]]
"""A call, its emitter, and its envelopes."""

Answers: TypeAlias = list[GroupedReceipt | GroupedError]
NoteRefusal: TypeAlias = Callable[[UUID, str], None]
"""Notes that an envelope was refused, with the code."""


def _arguments(token: str, envelopes: list[Value], in_order: bool = False) -> None:
    """Tell the parameters of ``xbus.put_envelopes``.

    Args:
        token: the caller's.
        envelopes: each ``[envelope_id, event_id, type_name, items, data, head, event_head]``.
        in_order: take none behind one that is not taken.
    """


class GroupIntake:
    """Takes the envelopes of messages: those of all messages that one turn of the loop reads become one group.

    While an emitter puts that has no long message, a long message goes on in spans: each waits until the one before it
    is answered, and so do the later messages of its emitter. So the transactions stay short in which the puts of the
    others wait. Behind each span its emitter rests, so that half of the time is left to the others.

    Args:
        front: takes groups, and envelopes alone.
        sessions: the emitters'.
        note_refusal: called for each envelope that is refused.
        rests: says how long emitters rest behind their spans.
    """

    def __init__(
        self,
        front: Front,
        sessions: Sessions,
        note_refusal: NoteRefusal,
        rests: Rests | None = None,
    ) -> None:
        self._front = front
        self._sessions = sessions
        self._note_refusal = note_refusal
        self._rests = rests or Rests()
        self._waiting: dict[int, deque[_LongMessage]] = {}
        """The messages that have spans left, by their emitter, which has a span under way, or rests behind one."""

    @shared("xbus.put_envelopes", _arguments)
    @promised_answer
    def put_envelopes(self, calls: Sequence[SharedCall], give: Give) -> None:
        """Take the envelopes of messages, whose parameters are those of ``_arguments``.

        Each is answered by a receipt or an error for each of its envelopes.
        """
        rests = self._rests
        messages: list[_Message] = []
        for call in calls:
            token, entries = cast("tuple[str, list[Value]]", call.args[:2])
            try:
                emitter_id = self._sessions.owner(token)
            except Refused as refusal:
                give([call], [refusal])
                continue
            is_long = len(entries) > SPAN_ENVELOPES or call.size > LARGE_BYTES
            if is_long:
                # By the second name the server knows that short calls of this connection are its emitter's own. Other
                # emitters that share the connection put under their own names, and are protected.
                rests.note_long(emitter_id, (call.peer,))
            elif rests.long or rests.last != emitter_id:
                rests.note_short(emitter_id, call.peer)
            if not entries:
                give([call], [[]])
            elif emitter_id in self._waiting:
                self._waiting[emitter_id].append(_LongMessage(call, give))
            elif is_long and rests.are_due:
                self._waiting[emitter_id] = deque([_LongMessage(call, give)])
                self._go_on(emitter_id)
            else:
                messages.append((call, emitter_id, entries))
        size = sum([call.size for call, _, _ in messages])
        if size > TOGETHER_BYTES or self._front.keeps_objects:
            self._put_in_portions(messages, give)
        elif messages:
            self._put_together(messages, give)

    def _put_in_portions(self, messages: list[_Message], give: Give) -> None:
        """Put messages in groups of some size, those of emitters apart where large data goes to an object store."""
        together: list[_Message] = []
        size = 0
        keeps_objects = self._front.keeps_objects
        for message in messages:
            _, emitter_id, entries = message
            try:
                data_bytes = sum(map(len, map(_DATA, entries)))
            except (TypeError, LookupError):
                self._apart(message, give).sort()
                continue
            is_apart = keeps_objects and together and together[-1][1] != emitter_id
            if together and (size + data_bytes > TOGETHER_BYTES or is_apart):
                self._put_together(together, give)
                together, size = [], 0
            together.append(message)
            size += data_bytes
        if together:
            self._put_together(together, give)

    def _put_together(self, messages: list[_Message], give: Give) -> None:
        """Put the envelopes of messages as one group, apart from those of messages that are not plain."""
        emitter_ids: list[int] = []
        entries: list[Value] = []
        for _, emitter_id, own in messages:
            emitter_ids += [emitter_id] * len(own)
            entries += own
        try:
            putting = self._front.put_group(emitter_ids, entries)
            putting.early = partial(_tell_early, messages)
            putting.add_done_callback(partial(self._sealed, messages, give))
        except CallError:
            # One of the envelopes at least is not plain, or all of them are too much for now.
            plain = [message for message in messages if self._is_plain(message)] if len(messages) > 1 else []
            if len(plain) == len(messages):
                for message in messages:
                    self._put_together([message], give)
                return
            for message in messages:
                if message not in plain:
                    self._apart(message, give).sort()
            if plain:
                self._put_together(plain, give)

    def _is_plain(self, message: _Message) -> bool:
        """Check whether the envelopes of a message may be in a group."""
        _, emitter_id, entries = message
        try:
            return self._front.may_group([emitter_id] * len(entries), entries)
        except CallError:
            return False

    def _apart(self, message: _Message, give: Give) -> "_MessageApart":
        return _MessageApart(self._front, message, give, self._note_refusal)

    def _sealed(self, messages: list[_Message], give: Give, writing: Promise[SealedGroup]) -> None:
        calls = [call for call, _, _ in messages]
        sealed, error = writing.answer, writing.error
        if sealed is None:
            is_of_one = isinstance(error, JournalError) and not isinstance(error, JournalUnavailable)
            if is_of_one and len(messages) > 1:
                for message in messages:
                    self._put_together([message], give)
            else:
                give(calls, [error] * len(calls))
            return
        receipts = _receipts_of(sealed)
        if not sealed.taken:
            give(calls, [[*islice(receipts, len(entries))] for _, _, entries in messages])
            return
        for message in messages:
            self._apart(message, give).complete([*islice(receipts, len(message[2]))])

    def _go_on(self, emitter_id: int) -> None:
        waiting = self._waiting[emitter_id]
        while waiting and not waiting[0].left:
            waiting.popleft()
        if not waiting:
            del self._waiting[emitter_id]
            return
        message = waiting[0]
        span = message.next_span(SPAN_ENVELOPES if self._rests.are_due else len(message.left))
        give = partial(self._span_answered, emitter_id, message, len(span), self._rests.now())
        # A span that is answered at once calls this again: spans of a long message must not lie within each other.
        messages: list[_Message] = [(message, emitter_id, span)]
        asyncio.get_running_loop().call_soon(self._put_in_portions, messages, give)

    def _span_answered(
        self,
        emitter_id: int,
        message: "_LongMessage",
        envelopes: int,
        began: float,
        _: Sequence[SharedCall],
        outcomes: Sequence[object],
    ) -> None:
        (outcome,) = outcomes
        if isinstance(outcome, BaseException):
            outcome = [_error_of(outcome)] * envelopes
        message.add(cast("Answers", outcome))
        rest = 0.0
        if message.envelopes > SPAN_ENVELOPES or len(self._waiting[emitter_id]) > 1 or message.is_followed:
            rest = self._rests.seconds(emitter_id, began, message.size * envelopes / message.envelopes)
        if rest:
            asyncio.get_running_loop().call_later(rest, self._go_on, emitter_id)
        else:
            self._go_on(emitter_id)


def _is_in_order(call: SharedCall) -> bool:
    """Check whether a call asks for no envelope behind one that is not taken."""
    return bool(call.args[2:] and call.args[2])


class _LongMessage:
    """A message that goes on in spans. It is answered when all its envelopes are.

    Args:
        call: the message.
        give: answers it.

    Attributes:
        args: as of the call, and so are ``size`` and ``peer``.
        envelopes: their number.
        left: its envelopes that have not gone on.
    """

    def __init__(self, call: SharedCall, give: Give) -> None:
        self._call = call
        self._give = give
        self.args = call.args
        self.size = call.size
        self.left = cast("list[Value]", call.args[1])
        self.peer = call.peer
        self.envelopes = len(self.left)
        self._answers: Answers = []

    @property
    def is_followed(self) -> bool:
        """Check whether further calls of its connection wait for their turn."""
        return self._call.is_followed

    def send_early(self, answer: object) -> None:
        """Send nothing: it is answered behind its last span."""

    def next_span(self, most: int) -> list[Value]:
        """Take the next envelopes."""
        span, self.left = self.left[:most], self.left[most:]
        return span

    def add(self, answers: Answers) -> None:
        """Take the answers of the last span."""
        self._answers += answers
        if _is_in_order(self._call) and any(isinstance(answer, dict) for answer in answers):
            self._answers += [_error_of(_behind())] * len(self.left)
            self.left = []
        if len(self._answers) == self.envelopes:
            self._give([self._call], [self._answers])


class _MessageApart:
    """A message whose envelopes don't go on as one group, with their answers as far as these are known.

    Args:
        front: takes its envelopes.
        message: its call, emitter and envelopes.
        give: answers it when all of them are answered.
        note_refusal: as of ``GroupIntake``.
    """

    def __init__(self, front: Front, message: _Message, give: Give, note_refusal: NoteRefusal) -> None:
        self._front = front
        self._call, self._emitter_id, self._entries = message
        self._give = give
        self._note_refusal = note_refusal
        self._answers: list[GroupedReceipt | GroupedError | None] = [None] * len(self._entries)
        self._missing = len(self._entries)

    def complete(self, answers: list[GroupedReceipt | None]) -> None:
        """Take the receipts of envelopes that were put together, and put the others alone."""
        alone = [place for place, answer in enumerate(answers) if answer is None]
        if not alone:
            self._answer(answers)
        self._answers[:] = answers
        self._missing = len(alone)
        for place in alone:
            self._put_alone(place, is_taken=True)

    def sort(self) -> None:
        """Put those together that are plain, and each of the others alone; in order, none behind one that is wrong."""
        in_order = _is_in_order(self._call)
        plain: list[int] = []
        alone: list[int] = []
        last: list[int] = []
        seen: set[bytes] = set()
        for place, entry in enumerate(self._entries):
            ids = _ids_of(self._emitter_id, entry)
            try:
                # Behind one of the same id it stays behind it.
                is_plain = seen.isdisjoint(ids) and self._front.may_group([self._emitter_id], [entry])
            except CallError:
                is_plain = False
                if in_order:
                    last = [place]
                    self._leave(range(place + 1, len(self._entries)))
                    break
            seen |= ids
            (plain if is_plain else alone).append(place)
        if plain:
            try:
                self._put_together(plain)
            except CallError:
                # A limit of the emitter: alone each gets as far as it would without the others.
                if in_order:
                    self._leave([*plain[1:], *last])
                    last = plain[:1]
                else:
                    alone = [*range(len(self._entries))]
        for place in (*alone, *last):
            self._put_alone(place)

    def _answer(self, answer: object) -> None:
        """Answer the message by the answers of its envelopes, or by an error."""
        self._give([self._call], [answer])

    def _leave(self, places: Iterable[int]) -> None:
        """Take none of these envelopes, because of one before them."""
        for place in places:
            self._know(place, _error_of(_behind()))

    def _put_together(self, places: Sequence[int]) -> None:
        """Put the envelopes at some places of the message as a group.

        Raises:
            CallError: the front does not take them together.
        """
        putting = self._front.put_group([self._emitter_id] * len(places), [self._entries[place] for place in places])
        putting.add_done_callback(partial(self._sealed, places))

    def _sealed(self, places: Sequence[int], writing: Promise[SealedGroup]) -> None:
        if (error := writing.exception()) is not None:
            if len(places) == len(self._answers):
                self._answer(error)
            for place in places if len(places) < len(self._answers) else ():
                self._know(place, _error_of(error))
            return
        receipts = _receipts_of(writing.result())
        if len(places) == len(self._answers):
            self.complete([*receipts])
            return
        for place, receipt in zip(places, receipts, strict=True):
            if receipt is None:
                self._put_alone(place, is_taken=True)
            else:
                self._know(place, receipt)

    def _put_alone(self, place: int, *, is_taken: bool = False) -> None:
        envelope_id: UUID | None = None
        try:
            envelope_id, event, head = _alone(self._emitter_id, self._entries[place])
            if head.key is None:
                put: Answer[SealReceipt] = self._front.put_envelope(
                    self._emitter_id, envelope_id, [event], head, is_taken=is_taken
                )
            else:
                put = self._front.put_keyed(self._emitter_id, token_hash(cast(str, self._call.args[0])), [event], head)
        except XbusError as error:
            self._fail(place, envelope_id, error)
            return
        if isinstance(put, Deferred):
            put.add_done_callback(partial(self._done_alone, place, envelope_id))
        else:
            self._know(place, _receipt(put))

    def _done_alone(self, place: int, envelope_id: UUID, done: Deferred[SealReceipt]) -> None:
        is_cancelled = done.cancelled()
        error = Failed("the call was cancelled", code="call_cancelled") if is_cancelled else done.exception()
        if error is None:
            self._know(place, _receipt(done.result()))
        else:
            self._fail(place, envelope_id, error)

    def _fail(self, place: int, envelope_id: UUID | None, error: BaseException) -> None:
        told = _error_of(error)
        if told["refused"] and envelope_id is not None:
            self._note_refusal(envelope_id, told["code"])
        self._know(place, told)

    def _know(self, place: int, answer: GroupedReceipt | GroupedError) -> None:
        self._answers[place] = answer
        self._missing -= 1
        if not self._missing:
            self._answer(self._answers)


def _tell_early(messages: list[_Message], sealed: SealedGroup) -> None:
    """Send the answers to messages whose envelopes were all received; called by the journal's thread."""
    if not sealed.taken:
        receipts = _receipts_of(sealed)
        for call, _, entries in messages:
            call.send_early([*islice(receipts, len(entries))])


def _receipts_of(sealed: SealedGroup) -> Iterator[GroupedReceipt | None]:
    """Give the receipts of a group as it was handed in, and None for each envelope that must go alone."""
    receipts = zip(sealed.group.envelope_ids, range(sealed.first, sealed.last + 1), sealed.hashes, strict=True)
    return _with_taken(sealed, receipts) if sealed.taken else receipts


def _with_taken(sealed: SealedGroup, receipts: Iterator[GroupedReceipt]) -> Iterator[GroupedReceipt | None]:
    for place in range(len(sealed.hashes) + len(sealed.taken)):
        if place not in sealed.taken:
            yield next(receipts)
        elif (first := sealed.taken[place]) is None:
            yield None
        else:
            yield _receipt(first)


def _behind() -> Failed:
    return Failed(
        "an envelope before it in the message was not taken",
        "put that one by a call of its own, then this one again",
        code="behind_another",
    )


def _alone(emitter_id: int, entry: Value) -> tuple[UUID, NewEvent, EnvelopeHead]:
    """Read an envelope that goes alone.

    Raises:
        Refused: wrong_arguments, bad_header, headers_too_large, bad_partition_key.
    """
    match entry:
        case [envelope_id, event_id, str(type_name), int(items), bytes(data), head_array, tags_array] if (
            items >= 0 and not isinstance(items, bool)
        ):
            (head,) = heads_of_arrays([head_array])
            if head.key is not None:
                made = [UUID(bytes=each) for (each,) in keyed_ids([emitter_id], [head.key])]
            else:
                made = [_own_id(envelope_id, "envelope_id"), _own_id(event_id, "event_id")]
            return made[0], NewEvent(made[1], type_name, items, data, tags_of_array(tags_array)), head
    raise Refused(
        "an envelope of the group is not a list of its ids, type, number of items, data and heads",
        "write each as [envelope_id, event_id, type_name, items, data, head, event_head]",
        code=WRONG_ARGUMENTS,
    )


def _ids_of(emitter_id: int, entry: Value) -> set[bytes]:
    """Read the ids of an envelope and its event, as far as it has some."""
    match entry:
        case [_, _, _, _, _, [_, str(key), _], _]:
            return {each for (each,) in keyed_ids([emitter_id], [key])}
        case [envelope_id, event_id, *_]:
            return {each for each in (envelope_id, event_id) if isinstance(each, bytes)}
    return set()


def _own_id(value: Value, what: str) -> UUID:
    if not isinstance(value, bytes) or len(value) != ID_BYTES:
        raise Refused(f"{what} is no UUID of 16 bytes", "make it with uuid.uuid4().bytes", code=WRONG_ARGUMENTS)
    made = UUID(bytes=value)
    if is_computed(made):
        raise Refused(
            f"{what} {made} is a UUID of version 5, and these are the bus's own",
            "make it with uuid.uuid4()",
            code=WRONG_ARGUMENTS,
        )
    return made


def _receipt(receipt: SealReceipt) -> GroupedReceipt:
    return receipt.envelope_id.bytes, receipt.position, receipt.hash


def _error_of(error: BaseException) -> GroupedError:
    if not isinstance(error, XbusError):
        log.error("a put died", exc_info=error, extra={"action": "put_died"})
        error = Failed("an internal error ended the put", "see the broker's log", code="internal_error")
    told = on_wire(error)
    return {
        "refused": isinstance(told, Refused),
        "code": told.code,
        "cause": told.cause,
        "next_step": told.next_step,
        "details": dict(told.details),
    }


# -- limits of calls in flight ---------------------------------------------------------------------------------------

BOUND = frozenset(
    {
        "start_event",
        "send_item",
        "end_event",
        "end_envelope",
        "retry_event",
        "replay_envelope",
        "xbus.start_envelope",
        "xbus.start_event",
        "xbus.send_items",
        "xbus.end_event",
        "xbus.end_envelope",
        "xbus.put_envelope",
        "xbus.put_envelopes",
        "xbus.retry_event",
        "xbus.replay_envelope",
    }
)
"""The verbs that are bounded: those that may wait for the journal, and that nobody needs to end something."""


class ThrottlingDispatch(Dispatch):
    """Serves the verbs of some objects, and refuses calls beyond the limits of their emitters.

    Args:
        objects: as of ``Dispatch``.
        sessions: the emitters'; they say who calls.
        throttle: counts what is in flight.
        note_error: as of ``Dispatch``.
    """

    def __init__(
        self,
        *objects: object,
        sessions: Sessions,
        throttle: Throttle,
        note_error: Callable[[str, list[Value], CallError], None],
    ) -> None:
        super().__init__(*objects, knows=sessions.knows, note_error=note_error)
        self._emitters = sessions
        self._throttle = throttle

    def call(self, name: str, args: list[Value], kwargs: dict[Key, Value]) -> object:
        if (emitter_id := self._bounded_emitter(name, args, kwargs)) is None:
            return super().call(name, args, kwargs)
        size = _carried_bytes([args, *kwargs.values()])
        try:
            self._throttle.begin_call(emitter_id, size)
        except Failed as error:
            return self.refuse(name, error)
        end = partial(self._throttle.end_call, emitter_id, size)
        outcome: object = None
        try:
            outcome = super().call(name, args, kwargs)
        finally:
            if not isinstance(outcome, Deferred | Promise | asyncio.Future):
                end()
        if isinstance(outcome, Deferred | Promise | asyncio.Future):
            outcome.add_done_callback(lambda _: end())
        return outcome

    def call_together(self, calls: Sequence[SharedCall], give: Give) -> None:
        if self._throttle.bounds_calls:
            begun: dict[SharedCall, tuple[int, int]] = {}
            calls = [call for call in calls if self._begins(call, begun, give)]
            give = partial(self._end_and_give, begun, give)
        super().call_together(calls, give)

    def _begins(self, call: SharedCall, begun: dict[SharedCall, tuple[int, int]], give: Give) -> bool:
        """Note a call in flight, or refuse it.

        Args:
            begun: the emitters and bytes of calls in flight that are bounded.
        """
        emitter_id = self._bounded_emitter(self.shared, call.args, {})
        if emitter_id is not None:
            size = _carried_bytes(call.args)
            try:
                self._throttle.begin_call(emitter_id, size)
            except Failed as error:
                give([call], [error])
                return False
            begun[call] = emitter_id, size
        return True

    def _end_and_give(
        self,
        begun: dict[SharedCall, tuple[int, int]],
        give: Give,
        calls: Sequence[SharedCall],
        answers: Sequence[object],
    ) -> None:
        for call in calls:
            if call in begun:
                self._throttle.end_call(*begun.pop(call))
        give(calls, answers)

    def _bounded_emitter(self, name: str | None, args: list[Value], kwargs: dict[Key, Value]) -> int | None:
        """Give the emitter that calls, if its calls in flight have a limit."""
        if not self._throttle.bounds_calls or name not in BOUND:
            return None
        token = args[0] if args else kwargs.get("token")
        if not isinstance(token, str):
            return None
        try:
            emitter_id = self._emitters.owner(token)
        except Refused:
            return None
        return emitter_id if self._throttle.counts_calls(emitter_id) else None


def _carried_bytes(value: Value) -> int:
    """Count the bytes of items in the arguments of a call."""
    if isinstance(value, bytes):
        return len(value)
    return sum(map(_carried_bytes, value)) if isinstance(value, list) else 0
