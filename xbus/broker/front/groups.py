"""Takes whole envelopes that come in one message: those that are plain go on as a group, the others go alone.

An envelope leaves the group where something is wrong with it, where its id is known already, and where its emitter has
reached a limit. Alone it takes the way of a single call, so that it gets the same answer.
"""

import asyncio
import itertools
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain, islice
from operator import attrgetter, itemgetter
from typing import Any, TypeAlias
from uuid import UUID

from xbus.broker.answers import on_wire, promised_answer, recode
from xbus.broker.front.envelopes import (
    ID_BYTES,
    NewEvent,
    Throttle,
    heads_of_arrays,
    tags_of_array,
)
from xbus.broker.front.front import Front
from xbus.broker.journal.log.catalog import Catalog
from xbus.broker.journal.writes import SealedGroup, SealReceipt
from xbus.broker.sessions import Sessions
from xbus.envelope import EnvelopeHead
from xbus.errors import CallError, Failed, JournalError, JournalUnavailable, Refused, XbusError
from xbus.ids import is_computed, keyed_ids, token_hash
from xbus.loop_turn import LoopTurn
from xbus.rpc.codec import Key, Value
from xbus.rpc.deferred import Answer, Deferred, Promise
from xbus.rpc.dispatch import Dispatch, verb
from xbus.rpc.frames import WRONG_ARGUMENTS
from xbus.rpc.messages import GroupedError, GroupedReceipt

log = logging.getLogger(__name__)

SHARED_SECONDS = 0.05
"""Seconds for which the front counts as shared behind puts of two emitters in turn. Longer protects emitters that put
seldom, and slows others down for them."""

SPAN_ENVELOPES = 32
"""The envelopes of an emitter that go on together while the front is shared. More let it delay others for longer;
fewer make it slower itself."""

TOGETHER_BYTES = 512 * 1024
"""The bytes of items of several messages in a group. More make the group, which is sealed as a whole, longer."""

_DATA: Callable[[Any], bytes] = itemgetter(4)
_EMITTER_IDS: Callable[["_Message"], list[int]] = attrgetter("emitter_ids")
_ENTRIES: Callable[["_Message"], list[Value]] = attrgetter("entries")

Answers: TypeAlias = list[GroupedReceipt | GroupedError]
NoteRefusal: TypeAlias = Callable[[UUID, str], None]
"""Notes that an envelope was refused, with the code."""


class GroupIntake:
    """Takes the envelopes of messages: those of all messages that one turn of the loop reads become one group.

    While several emitters put, a long message goes on in spans: each waits until the one before it is answered, and so
    do the later messages of its emitter. So the transactions stay short in which the puts of the others wait.

    Args:
        front: takes groups, and envelopes alone.
        sessions: the emitters'.
        note_refusal: called for each envelope that is refused.
        now: the time in seconds.
        turn: of the loop: the messages of one become a group at its end.
    """

    def __init__(
        self,
        front: Front,
        sessions: Sessions,
        note_refusal: NoteRefusal,
        now: Callable[[], float] = time.monotonic,
        turn: LoopTurn | None = None,
    ) -> None:
        self._front = front
        self._sessions = sessions
        self._note_refusal = note_refusal
        self._now = now
        self._turn = turn or LoopTurn()
        self.gathered: list[_Message] = []
        """The messages that wait for the end of the turn."""
        self._last_emitter: int | None = None
        self._shared_until = -math.inf
        self._waiting: dict[int, deque[_LongMessage]] = {}
        """The messages that have spans left, by their emitter, which has a span under way."""

    @verb("xbus.put_envelopes")
    @promised_answer
    def put_envelopes(self, token: str, envelopes: list[Value], in_order: bool = False) -> Promise[Answers]:
        """Take envelopes, each ``[envelope_id, event_id, type_name, items, data, head, event_head]``.

        Args:
            token: the caller's.
            in_order: take none behind one that is not taken.

        Returns:
            For each envelope its receipt, or its error.
        """
        try:
            emitter_id = self._sessions.owner(token)
        except Refused as refusal:
            recode(refusal, "put_envelopes")
        if emitter_id != self._last_emitter:
            if self._last_emitter is not None:
                self._shared_until = self._now() + SHARED_SECONDS
            self._last_emitter = emitter_id
        waiting = self._waiting.get(emitter_id)
        if not envelopes or (
            waiting is None and (len(envelopes) <= SPAN_ENVELOPES or self._now() >= self._shared_until)
        ):
            message = _Message(self._front, emitter_id, token, envelopes, in_order, self._note_refusal)
            if envelopes:
                if not self.gathered:
                    self._turn.at_end(self.flush)
                self.gathered.append(message)
            return message
        long = _LongMessage(token, envelopes, in_order)
        if waiting is None:
            self._waiting[emitter_id] = deque([long])
            self._go_on(emitter_id)
        else:
            waiting.append(long)
        return long

    def flush(self) -> None:
        """Put what was gathered."""
        gathered, self.gathered = self.gathered, []
        try:
            size: float = sum(map(len, map(_DATA, chain.from_iterable(map(_ENTRIES, gathered)))))
        except (TypeError, LookupError):  # one of them has no data
            size = math.inf
        if size > TOGETHER_BYTES or self._front.keeps_objects:
            self._put_in_portions(gathered)
        else:
            self._put_together(gathered)

    def _put_in_portions(self, gathered: "list[_Message]") -> None:
        """Put messages in groups of some size, those of emitters apart where large data goes to an object store."""
        together: list[_Message] = []
        size = 0
        keeps_objects = self._front.keeps_objects
        for message in gathered:
            try:
                data_bytes = sum(map(len, map(_DATA, message.entries)))
            except (TypeError, LookupError):
                message.sort()
                continue
            is_apart = keeps_objects and together and together[-1].emitter_id != message.emitter_id
            if together and (size + data_bytes > TOGETHER_BYTES or is_apart):
                self._put_together(together)
                together, size = [], 0
            together.append(message)
            size += data_bytes
        if together:
            self._put_together(together)

    def _put_together(self, messages: "list[_Message]") -> None:
        """Put the envelopes of messages as one group, apart from those of messages that are not plain."""
        try:
            emitter_ids = [*chain.from_iterable(map(_EMITTER_IDS, messages))]
            putting = self._front.put_group(emitter_ids, [*chain.from_iterable(map(_ENTRIES, messages))])
            putting.add_done_callback(partial(self._sealed, messages))
        except CallError:
            # One of the envelopes at least is not plain, or all of them are too much for now.
            plain = [message for message in messages if message.is_plain] if len(messages) > 1 else []
            if len(plain) == len(messages):
                for message in messages:
                    self._put_together([message])
                return
            for message in messages:
                if message not in plain:
                    message.sort()
            if plain:
                self._put_together(plain)

    def _sealed(self, messages: "list[_Message]", writing: Promise[SealedGroup]) -> None:
        sealed, error = writing.answer, writing.error
        if sealed is None:
            assert error is not None, "it is sealed without an error"
            is_of_one = isinstance(error, JournalError) and not isinstance(error, JournalUnavailable)
            for message in messages:
                if is_of_one and len(messages) > 1:
                    self._put_together([message])
                else:
                    message.set_exception(error)
            return
        receipts = zip(sealed.group.envelope_ids, range(sealed.first, sealed.last + 1), sealed.hashes, strict=True)
        if not sealed.taken:
            for message in messages:
                message.set_result([*islice(receipts, len(message.entries))])
            return
        places = itertools.count()
        for message in messages:
            message.complete([None if next(places) in sealed.taken else next(receipts) for _ in message.entries])

    def _go_on(self, emitter_id: int) -> None:
        waiting = self._waiting[emitter_id]
        while waiting and not waiting[0].left:
            waiting.popleft()
        if not waiting:
            del self._waiting[emitter_id]
            return
        message = waiting[0]
        span = message.next_span(SPAN_ENVELOPES if self._now() < self._shared_until else len(message.left))
        put = _Message(self._front, emitter_id, message.token, span, message.in_order, self._note_refusal)
        if not self.gathered:
            self._turn.at_end(self.flush)
        self.gathered.append(put)
        put.add_done_callback(partial(self._span_answered, emitter_id, message, len(span)))

    def _span_answered(self, emitter_id: int, message: "_LongMessage", envelopes: int, done: Promise[Answers]) -> None:
        error = done.exception()
        message.add(done.result() if error is None else [_error_of(error)] * envelopes)
        self._go_on(emitter_id)


class _LongMessage(Promise[Answers]):
    """A message that goes on in spans; it is done when all its envelopes are answered.

    Args:
        token: as of ``GroupIntake.put_envelopes``.
        entries: its envelopes.
        in_order: as of ``GroupIntake.put_envelopes``.

    Attributes:
        left: its envelopes that have not gone on.
    """

    def __init__(self, token: str, entries: list[Value], in_order: bool) -> None:
        self.token = token
        self.in_order = in_order
        self.left = entries
        self._number = len(entries)
        self._answers: Answers = []

    def next_span(self, most: int) -> list[Value]:
        """Take the next envelopes."""
        span, self.left = self.left[:most], self.left[most:]
        return span

    def add(self, answers: Answers) -> None:
        """Take the answers of the last span."""
        self._answers += answers
        if self.in_order and any(isinstance(answer, dict) for answer in answers):
            self._answers += [_error_of(_behind())] * len(self.left)
            self.left = []
        if len(self._answers) == self._number:
            self.set_result(self._answers)


class _Message(Promise[Answers]):
    """The envelopes of a message, and their answers as far as these are known. It is done when all of them are.

    Args:
        front: takes its envelopes.
        emitter_id: whose it is.
        token: as of ``GroupIntake.put_envelopes``.
        entries: the envelopes.
        in_order: as of ``GroupIntake.put_envelopes``.
        note_refusal: as of ``GroupIntake``.

    Attributes:
        emitter_ids: its emitter, for each envelope.
    """

    def __init__(
        self,
        front: Front,
        emitter_id: int,
        token: str,
        entries: list[Value],
        in_order: bool,
        note_refusal: NoteRefusal,
    ) -> None:
        self._front = front
        self.emitter_id = emitter_id
        self._token = token
        self.emitter_ids = [emitter_id] * len(entries)
        self.entries = entries
        self._in_order = in_order
        self._note_refusal = note_refusal
        if not entries:
            self.set_result([])

    _answers: list[GroupedReceipt | GroupedError | None]
    """The answers so far, of a message whose envelopes don't go on as one group."""
    _missing: int

    @property
    def is_plain(self) -> bool:
        """Check whether its envelopes may be in a group."""
        try:
            return self._front.may_group(self.emitter_ids, self.entries)
        except CallError:
            return False

    def complete(self, answers: list[GroupedReceipt | None]) -> None:
        """Take the receipts of envelopes that were put together, and put the others alone."""
        self._answers = [*answers]
        alone = [place for place, answer in enumerate(answers) if answer is None]
        self._missing = len(alone)
        if not alone:
            self.set_result([answer for answer in answers if answer is not None])
        for place in alone:
            self._put_alone(place)

    def sort(self) -> None:
        """Put those together that are plain, and each of the others alone; in order, none behind one that is wrong."""
        in_order = self._in_order
        self._answers = [None] * len(self.entries)
        self._missing = len(self.entries)
        plain: list[int] = []
        alone: list[int] = []
        last: list[int] = []
        seen: set[bytes] = set()
        for place, entry in enumerate(self.entries):
            ids = _ids_of(self.emitter_id, entry)
            try:
                # Behind one of the same id it stays behind it.
                is_plain = seen.isdisjoint(ids) and self._front.may_group([self.emitter_id], [entry])
            except CallError:
                is_plain = False
                if in_order:
                    last = [place]
                    self._leave(range(place + 1, len(self.entries)))
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
                    alone = [*range(len(self.entries))]
        for place in (*alone, *last):
            self._put_alone(place)

    def _leave(self, places: Iterable[int]) -> None:
        """Take none of these envelopes, because of one before them."""
        for place in places:
            self._know(place, _error_of(_behind()))

    def _put_together(self, places: Sequence[int]) -> None:
        """Put the envelopes at some places of the message as a group.

        Raises:
            CallError: the front does not take them together.
        """
        putting = self._front.put_group([self.emitter_id] * len(places), [self.entries[place] for place in places])
        putting.add_done_callback(partial(self._sealed, places))

    def _sealed(self, places: Sequence[int], writing: Promise[SealedGroup]) -> None:
        if (error := writing.exception()) is not None:
            if len(places) == len(self._answers):
                self.set_exception(error)
            for place in places if len(places) < len(self._answers) else ():
                self._know(place, _error_of(error))
            return
        sealed = writing.result()
        taken = [places[number] for number in sealed.taken]
        kept = [place for number, place in enumerate(places) if number not in sealed.taken] if taken else places
        receipts = zip(sealed.group.envelope_ids, range(sealed.first, sealed.last + 1), sealed.hashes, strict=True)
        if len(kept) == len(self._answers):
            self.set_result([*receipts])
            return
        for place, receipt in zip(kept, receipts, strict=True):
            self._know(place, receipt)
        for place in taken:
            self._put_alone(place)

    def _put_alone(self, place: int) -> None:
        envelope_id: UUID | None = None
        try:
            envelope_id, event, head = _alone(self.emitter_id, self.entries[place])
            if head.key is None:
                put: Answer[SealReceipt] = self._front.put_envelope(self.emitter_id, envelope_id, [event], head)
            else:
                put = self._front.put_keyed(self.emitter_id, token_hash(self._token), [event], head)
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
            self.set_result([each for each in self._answers if each is not None])


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

_GATHERED = "xbus.put_envelopes"


class ThrottlingDispatch(Dispatch):
    """Serves the verbs of some objects, and refuses calls beyond the limits of their emitters.

    Args:
        objects: as of ``Dispatch``.
        sessions: the emitters'; they say who calls.
        throttle: counts what is in flight.
        groups: gathers the messages of a turn of the loop. They are put before any other call is carried out.
        note_error: as of ``Dispatch``.
    """

    def __init__(
        self,
        *objects: object,
        sessions: Sessions,
        throttle: Throttle,
        groups: GroupIntake,
        note_error: Callable[[str, list[Value], CallError], None],
    ) -> None:
        super().__init__(*objects, knows=sessions.knows, note_error=note_error)
        self._emitters = sessions
        self._throttle = throttle
        self._groups = groups
        self._seen: Catalog | None = None
        self._bounds_calls = False
        """Whether the calls in flight of any emitter of that catalog are limited."""

    def call(self, name: str, args: list[Value], kwargs: dict[Key, Value]) -> object:
        if self._groups.gathered and name != _GATHERED:
            self._groups.flush()
        catalog = self._throttle.configuration.catalog
        if catalog is not self._seen:
            self._seen, self._bounds_calls = catalog, self._throttle.bounds_calls
        if not self._bounds_calls or (emitter_id := self._bounded_emitter(name, args, kwargs)) is None:
            return (self.handlers.get(name) or self.handler(name))(args, kwargs)
        size = _carried_bytes([args, *kwargs.values()])
        try:
            self._throttle.begin_call(emitter_id, size)
        except Failed as error:
            return self.refuse(name, error)
        end = partial(self._throttle.end_call, emitter_id, size)
        outcome: object = None
        try:
            outcome = self.handler(name)(args, kwargs)
        finally:
            if not isinstance(outcome, Deferred | Promise | asyncio.Future):
                end()
        if isinstance(outcome, Deferred | Promise | asyncio.Future):
            outcome.add_done_callback(lambda _: end())
        return outcome

    def _bounded_emitter(self, name: str, args: list[Value], kwargs: dict[Key, Value]) -> int | None:
        """Give the emitter that calls, if its calls in flight have a limit."""
        token = args[0] if args else kwargs.get("token")
        if name not in BOUND or not isinstance(token, str):
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
