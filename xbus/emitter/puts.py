"""Whole envelopes of one event travel together: those of a turn of the loop, and those made while a message is out."""

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import compress, repeat
from typing import NamedTuple, Protocol, TypeAlias, cast

from xbus.emitter.options import Options
from xbus.emitter.pending_calls import RepeatableCall
from xbus.emitter.receipt import Receipt
from xbus.emitter.stream import SendWindow, Stream
from xbus.envelope import PLAIN_HEAD, EnvelopeHead
from xbus.errors import CallError, Refused
from xbus.headers import NO_TAGS, EventTags
from xbus.ids import texts_of
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


_Put: TypeAlias = tuple[str, int, bytes, EnvelopeHead | None, EventTags | None]
"""The fields of a ``NewPut``, with None in the place of a plain head and of no tags."""

Entry: TypeAlias = tuple[bytes | None, bytes | None, str, int, bytes, EnvelopeHead | None, EventTags | None]
"""An envelope on the wire: its id and that of its event, then those of ``_Put``."""

_ID_BYTES = 16

_TAKEN_KINDS = [bytes, int, bytes]
"""The types of the answer to an envelope that was taken: its id, its position, and its hash."""


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
    window: SendWindow

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
        self._loop = asyncio.get_running_loop()
        self._waiting: list[_Put] = []
        self._receipts: list[asyncio.Future[Receipt]] = []
        """Those of the envelopes that wait, in the same order."""
        self._out: set[Stream] = set()
        self._is_due = False
        """Whether what waits will be sent without a further put or answer."""
        self._room: asyncio.Task[None] | None = None

    def put(
        self, type_name: str, items: int, data: bytes, head: EnvelopeHead | None, tags: EventTags | None
    ) -> "asyncio.Future[Receipt]":
        """Send an envelope soon.

        Args:
            type_name: of its event.
            items: their number.
            data: the items as in a segment.
            head: of the envelope; None for a plain one.
            tags: of the event; None without any.

        Returns:
            A future of its receipt. It fails with ``GoesAlone``, and with what a call of its own would raise.
        """
        receipt: asyncio.Future[Receipt] = asyncio.Future(loop=self._loop)
        self._waiting.append((type_name, items, data, head, tags))
        self._receipts.append(receipt)
        if not self._is_due and len(self._out) < MESSAGES_OUT:
            self._is_due = True
            self._loop.call_soon(self._send)
        return receipt

    @property
    def failure(self) -> CallError | None:
        """The failure because of which a message is sent again; None while all is well."""
        return next((stream.failure for stream in self._out if stream.failure is not None), None)

    def close(self) -> None:
        """Send nothing more."""
        if self._room is not None:
            self._room.cancel()
            self._room = None
        receipts, self._receipts, self._waiting = self._receipts, [], []
        _fail(receipts, not_open())

    def _send(self) -> None:
        self._is_due = False
        while self._waiting and len(self._out) < MESSAGES_OUT:
            if not self._context.window.is_open():
                self._is_due = True
                if self._room is None:
                    self._room = self._loop.create_task(self._send_with_room(), name="xbus emitter waits for room")
                return
            puts, receipts = self._next_ones()
            if puts:
                try:
                    entries, answer = self._call(puts)
                except Exception:
                    # One of them has no form on the wire: by calls of their own the others go, and that one raises.
                    _fail(receipts, GoesAlone(()))
                    continue
                answer.add_done_callback(partial(self._answered, entries, receipts))

    async def _send_with_room(self) -> None:
        await self._context.window.room()
        self._room = None
        self._send()

    def _next_ones(self) -> "tuple[list[_Put], list[asyncio.Future[Receipt]]]":
        puts, receipts, number, size = self._waiting, self._receipts, 0, 0
        for put in puts[:MOST_ENVELOPES]:
            size += len(put[2])
            if number and size > MOST_BYTES:
                break
            number += 1
        self._waiting, self._receipts = puts[number:], receipts[number:]
        are_wanted = [not receipt.done() for receipt in receipts[:number]]
        return list(compress(puts, are_wanted)), list(compress(receipts, are_wanted))

    def _answered(
        self,
        entries: "Sequence[Entry]",
        receipts: "Sequence[asyncio.Future[Receipt]]",
        answer: "asyncio.Future[Value]",
    ) -> None:
        if answer.cancelled() or (error := answer.exception()) is not None:
            _fail(receipts, asyncio.CancelledError() if answer.cancelled() else error)
        else:
            for receipt, outcome in zip(receipts, _outcomes(entries, answer.result()), strict=True):
                if receipt.done():
                    continue
                if isinstance(outcome, Receipt):
                    receipt.set_result(outcome)
                else:
                    receipt.set_exception(outcome)
        self._send()

    async def put_in_order(self, puts: Sequence[NewPut]) -> list[Receipt | None]:
        """Send envelopes in one message at once, each under its key.

        Returns:
            The receipt of each. Behind the first one that was not taken there is none for those that are new: that one
            has to be sent by calls of its own.

        Raises:
            CallError: the message was refused, or nothing answered for as long as the emitter insists.
        """
        plain = [
            (*put[:3], None if put.head is PLAIN_HEAD else put.head, None if put.tags is NO_TAGS else put.tags)
            for put in puts
        ]
        entries, answer = self._call(plain, True)
        outcomes = _outcomes(entries, await answer)
        return [outcome if isinstance(outcome, Receipt) else None for outcome in outcomes]

    def _call(self, puts: "Sequence[_Put]", *more: object) -> "tuple[Sequence[Entry], asyncio.Future[Value]]":
        ids = self._context.new_ids(2 * len(puts))
        # From that of an envelope with a key its ids follow.
        entries: list[Entry] = [
            (envelope_id, event_id, *put) if put[3] is None or put[3].key is None else (None, None, *put)
            for envelope_id, event_id, put in zip(ids[::2], ids[1::2], puts, strict=True)
        ]
        size = sum([len(put[2]) for put in puts])
        call = RepeatableCall(VERB, (entries, *more), self._context.options.answer_seconds, size=size)
        stream = self._context.new_stream()

        def answered(_: "asyncio.Future[Value]") -> None:
            self._out.discard(stream)
            self._context.end(stream)

        try:
            answer = stream.submit(call)
        except BaseException:
            self._context.end(stream)
            raise
        self._out.add(stream)
        answer.add_done_callback(answered)
        return entries, answer


def _fail(receipts: "Sequence[asyncio.Future[Receipt]]", error: BaseException | None) -> None:
    for receipt in receipts:
        if not receipt.done():
            receipt.set_exception(error or asyncio.CancelledError())


def _outcomes(entries: Sequence[Entry], answers: Value) -> Sequence[Receipt | CallError | GoesAlone]:
    """Read the answer to a message: the outcome of each of its envelopes."""
    if not isinstance(answers, list) or len(answers) != len(entries):
        answers = [None] * len(entries)
    are_taken = [
        type(told) is list and [*map(type, told)] == _TAKEN_KINDS and len(cast(bytes, told[0])) == _ID_BYTES
        for told in answers
    ]
    taken = cast("Iterable[tuple[bytes, int, bytes]]", compress(answers, are_taken))
    receipts = iter(_receipts([entry[3] for entry in compress(entries, are_taken)], list(taken)))
    return [
        next(receipts) if is_taken else _error_of(told, texts_of([each for each in entry[:2] if each is not None]))
        for entry, told, is_taken in zip(entries, answers, are_taken, strict=True)
    ]


def _receipts(items: Sequence[int], answers: Sequence[tuple[bytes, int, bytes]]) -> list[Receipt]:
    """Make the receipts of envelopes of one event by columns; no function of Python is called for each.

    Args:
        items: the number of items of each.
        answers: the id, the position and the hash of each.
    """
    ids, positions, hashes = zip(*answers, strict=True) if answers else ((), (), ())
    are_queued = [position == 0 for position in positions]
    rows = zip(texts_of(ids), positions, repeat(1), items, hashes, are_queued, strict=False)
    return list(map(tuple.__new__, repeat(Receipt), rows))


def _error_of(told: Value, ids: Sequence[str]) -> CallError | GoesAlone:
    match told:
        case {"refused": True, "code": str(code), "cause": str(cause), "next_step": str(next_step)} if ids:
            return Refused(cause, next_step, code=code)
        case {"refused": bool(_), "code": str(_)}:
            # For now it could not be taken; or under its key something else is open, which only calls of its own end.
            return GoesAlone(ids)
    return bad_answer(VERB, "has an entry that is neither a receipt nor an error")
