"""Whole envelopes of one event travel together: those of a turn of the loop, and those made while a message is out."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias, cast

from xbus.emitter.options import Options
from xbus.emitter.pending_calls import RepeatableCall
from xbus.emitter.receipt import Receipt
from xbus.emitter.stream import Stream
from xbus.envelope import PLAIN_HEAD, EnvelopeHead
from xbus.errors import CallError, Refused
from xbus.headers import NO_TAGS, EventTags
from xbus.ids import format_uuid
from xbus.rpc.codec import Value
from xbus.rpc.shapes import bad_answer

VERB = "xbus.put_envelopes"

MESSAGES_OUT = 2
"""Messages that wait for an answer at a time. With one the emitter waits for each commit; more make smaller groups."""

MOST_ENVELOPES = 512
"""The envelopes of a message. More spare messages, and have the first of them wait for longer."""

MOST_BYTES = 256 * 1024
"""The bytes of their items; a larger envelope goes alone."""


class NewPut(NamedTuple):
    """An envelope to be put; ``data`` are its items as in a segment."""

    type_name: str
    items: int
    data: bytes
    head: EnvelopeHead = PLAIN_HEAD
    tags: EventTags = NO_TAGS


Entry: TypeAlias = tuple[bytes | None, bytes | None, str, int, bytes, EnvelopeHead | None, EventTags | None]
"""An envelope on the wire: its id and that of its event, then the fields of ``NewPut``."""

_Waiting: TypeAlias = tuple[NewPut, "asyncio.Future[Receipt]"]


class GoesAlone(Exception):
    """One envelope of a message was not taken: it goes alone, which waits, cancels and raises as its author expects.

    Args:
        ids: of the envelope and of its event; empty for one with a key, whose ids follow from that.
    """

    def __init__(self, ids: Sequence[str]) -> None:
        super().__init__("the envelope goes alone")
        self.ids = ids


def not_open() -> Refused:
    """Make the error for what is sent behind the end of an emitter."""
    return Refused("the emitter is closed", "send inside its `with` block", code="not_open")


class PutLine(Protocol):
    """The way to the front; an ``EmitterContext`` is one."""

    options: Options

    def new_ids(self, number: int) -> list[bytes]:
        """Make so many ids, of 16 bytes each."""

    def new_stream(self) -> Stream:
        """Make the stream of a message."""

    def end(self, stream: Stream) -> None:
        """Forget a stream."""


class Puts:
    """Sends the envelopes of an emitter that are put as a whole.

    One that is put alone never waits for another one.

    Args:
        context: the way to the front.
    """

    def __init__(self, context: PutLine) -> None:
        self._context = context
        self._waiting: deque[_Waiting] = deque()
        self._out: set[Stream] = set()
        self._is_due = False

    def put(self, put: NewPut) -> "asyncio.Future[Receipt]":
        """Send an envelope soon.

        Returns:
            A future of its receipt. It fails with ``GoesAlone``, and with what a call of its own would raise.
        """
        loop = asyncio.get_running_loop()
        receipt: asyncio.Future[Receipt] = loop.create_future()
        self._waiting.append((put, receipt))
        if not self._is_due and len(self._out) < MESSAGES_OUT:
            self._is_due = True
            loop.call_soon(self._send)
        return receipt

    @property
    def failure(self) -> CallError | None:
        """The failure because of which a message is sent again; None while all is well."""
        return next((stream.failure for stream in self._out if stream.failure is not None), None)

    def close(self) -> None:
        """Send nothing more."""
        waiting, self._waiting = self._waiting, deque()
        for _, receipt in waiting:
            if not receipt.done():
                receipt.set_exception(not_open())

    def _send(self) -> None:
        self._is_due = False
        while self._waiting and len(self._out) < MESSAGES_OUT:
            together = self._next_ones()
            if together:
                self._send_together(together)

    def _next_ones(self) -> list[_Waiting]:
        together: list[_Waiting] = []
        size = 0
        while self._waiting and len(together) < MOST_ENVELOPES:
            put, receipt = self._waiting[0]
            if together and size + len(put.data) > MOST_BYTES:
                break
            self._waiting.popleft()
            if not receipt.done():
                together.append((put, receipt))
                size += len(put.data)
        return together

    def _send_together(self, together: Sequence[_Waiting]) -> None:
        puts = [put for put, _ in together]
        entries, answer = self._call(puts)

        def answered(answer: "asyncio.Future[Value]") -> None:
            _settle(together, entries, answer)
            self._send()

        answer.add_done_callback(answered)

    async def put_in_order(self, puts: Sequence[NewPut]) -> list[Receipt | None]:
        """Send envelopes in one message at once, each under its key.

        Returns:
            The receipt of each. Behind the first one that was not taken there is none for those that are new: that one
            has to be sent by calls of its own.

        Raises:
            CallError: the message was refused, or nothing answered for as long as the emitter insists.
        """
        entries, answer = self._call(puts, True)
        outcomes = _outcomes(puts, entries, await answer)
        return [outcome if isinstance(outcome, Receipt) else None for outcome in outcomes]

    def _call(self, puts: Sequence[NewPut], *more: object) -> "tuple[Sequence[Entry], asyncio.Future[Value]]":
        ids = self._context.new_ids(2 * len(puts))
        entries: list[Entry] = [
            (
                None if head.key is not None else ids[place],
                None if head.key is not None else ids[-1 - place],
                *(type_name, items, data, None if head is PLAIN_HEAD else head, None if tags is NO_TAGS else tags),
            )
            for place, (type_name, items, data, head, tags) in enumerate(puts)
        ]
        size = sum([len(put.data) for put in puts])
        call = RepeatableCall(VERB, (entries, *more), self._context.options.answer_seconds, size=size)
        stream = self._context.new_stream()
        self._out.add(stream)

        def answered(_: "asyncio.Future[Value]") -> None:
            self._out.discard(stream)
            self._context.end(stream)

        answer = stream.submit(call)
        answer.add_done_callback(answered)
        return entries, answer


def _settle(together: Sequence[_Waiting], entries: Sequence[Entry], answer: "asyncio.Future[Value]") -> None:
    error = None if answer.cancelled() else answer.exception()
    if answer.cancelled() or error is not None:
        for _, receipt in together:
            if not receipt.done():
                receipt.set_exception(error or asyncio.CancelledError())
        return
    outcomes = _outcomes([put for put, _ in together], entries, answer.result())
    for (_, receipt), outcome in zip(together, outcomes, strict=True):
        if receipt.done():
            continue
        if isinstance(outcome, Receipt):
            receipt.set_result(outcome)
        else:
            receipt.set_exception(outcome)


def _outcomes(
    puts: Sequence[NewPut], entries: Sequence[Entry], answers: Value
) -> list[Receipt | CallError | GoesAlone]:
    """Read the answer to a message: the outcome of each of its envelopes."""
    outcomes: list[Receipt | CallError | GoesAlone] = []
    if not isinstance(answers, list) or len(answers) != len(puts):
        answers = [None] * len(puts)
    for put, (*ids, _, _, _, _, _), told in zip(puts, entries, answers, strict=True):
        if type(told) is list and len(told) == 3:
            envelope_id, position, content_hash = cast("tuple[bytes, int, bytes]", tuple(told))
            is_queued = position == 0
            outcomes.append(Receipt(format_uuid(envelope_id), position, 1, put.items, content_hash, is_queued))
        else:
            outcomes.append(_error_of(told, [format_uuid(each) for each in ids if each is not None]))
    return outcomes


def _error_of(told: Value, ids: Sequence[str]) -> CallError | GoesAlone:
    match told:
        case {"refused": True, "code": str(code), "cause": str(cause), "next_step": str(next_step)} if ids:
            return Refused(cause, next_step, code=code)
        case {"refused": bool(_), "code": str(_)}:
            # For now it could not be taken; or under its key something else is open, which only calls of its own end.
            return GoesAlone(ids)
    return bad_answer(VERB, "has an entry that is neither a receipt nor an error")
