"""Whole envelopes of one event travel together: those of a turn of the loop, and those made while a message is out."""

import asyncio
import operator
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, compress
from operator import itemgetter
from typing import Any, NamedTuple, Protocol, TypeAlias

from xbus.clock import Clock
from xbus.emitter.options import Options
from xbus.emitter.receipt import Receipt
from xbus.emitter.session import CallTransport, SendWindow
from xbus.emitter.stream import RepeatableCall, Stream
from xbus.envelope import PLAIN_HEAD, EnvelopeHead
from xbus.errors import CallError, Failed, Refused
from xbus.headers import NO_TAGS, EventTags
from xbus.ids import Ids
from xbus.rpc.codec import Value, pack_items
from xbus.rpc.messages import EnvelopeOptionsMap
from xbus.rpc.shapes import bad_answer

VERB = "xbus.put_envelopes"

MESSAGES_OUT = 2
"""Messages that wait for an answer at a time. With one the emitter waits for each commit; more make smaller groups."""

MOST_ENVELOPES = 512
"""The envelopes of a message. More spare messages, and have the first of them wait for longer."""

MOST_BYTES = 256 * 1024
"""The bytes of their items; a larger envelope has a message for itself."""


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

_DATA, _HEAD = itemgetter(2), itemgetter(3)
"""Of a ``_Put``."""
_and_put: Callable[[tuple[bytes, bytes], _Put], Entry] = operator.add
"""Makes an entry of its ids and its put."""

_ID_BYTES = 16
_NO_RECEIPT = (None, None, None)
_RECEIPT_FIELDS = len(_NO_RECEIPT)
"""The fields of a receipt on the wire: envelope id, position and hash."""

_IS_DONE: Callable[["asyncio.Future[Receipt]"], bool] = asyncio.Future.done
_receipt: Callable[[tuple[object, ...]], Receipt] = partial(tuple.__new__, Receipt)
"""Makes a receipt without a call of a Python function."""


def not_open() -> Refused:
    """Make the error for what is sent behind the end of an emitter."""
    return Refused("the emitter is closed", "send inside its `with` block", code="not_open")


class PutLine(Protocol):
    """The way to the front; an ``EmitterContext`` is one."""

    session: CallTransport
    options: Options
    window: SendWindow
    clock: Clock
    ids: Ids

    def new_stream(self) -> Stream:
        """Make the stream of a message."""

    def end(self, stream: Stream) -> None:
        """Forget a stream."""


@dataclass(eq=False, slots=True)
class _PutMessage:
    """Envelopes that went together and are not answered yet.

    Args:
        entries: the envelopes as they went.
        receipts: a future for each.
        size: the bytes that they take of the window.
        began: when they went, on the monotonic clock.
    """

    entries: Sequence[Entry]
    receipts: "list[asyncio.Future[Receipt]]"
    size: int
    began: float


class Puts:
    """Sends the envelopes of an emitter that are put as a whole.

    One that is put alone never waits for another one. A message of ``put`` makes its first attempt by itself, and after
    a failure a stream insists for it. An envelope that the front can't take for now leaves its message, and is insisted
    for as a message of one. A message of ``put_in_order`` is a call of a stream from its first attempt on.

    Args:
        context: the way to the front.
    """

    def __init__(self, context: PutLine) -> None:
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._new_receipt = partial(asyncio.Future[Receipt], loop=self._loop)
        self._turn = context.session.turn
        self._window = context.window
        answer, retry = context.options.answer_seconds, context.options.retry_seconds
        # An answer may get lost alone: the call is made twice at least.
        self._seconds = min(answer, retry / 2) if retry else answer
        self._waiting: list[_Put] = []
        self._receipts: list[asyncio.Future[Receipt]] = []
        """The future of the receipt of each put in ``_waiting``, in the same order."""
        self._out: set[_PutMessage] = set()
        """The messages that keep others from going; those of envelopes that left their message are not among them."""
        self._streams: dict[_PutMessage, Stream] = {}
        """The streams that insist for messages."""
        self._is_due = False
        """Whether what waits will be sent without a further put."""
        self._room: asyncio.Task[None] | None = None

    def put(
        self, type_name: str, tags: EventTags, items: Sequence[bytes], options: EnvelopeOptionsMap
    ) -> "asyncio.Future[Receipt]":
        """Send an envelope of one event, whose items fit into one batch, soon.

        Args:
            type_name: of its event.
            tags: of the event.
            items: packed.
            options: of the envelope, as ``envelope_options`` makes them.

        Returns:
            A future of its receipt. It fails with what a call of its own would raise.
        """
        receipt = self._new_receipt()
        head = EnvelopeHead(**options) if options else None
        self._waiting.append((type_name, len(items), pack_items(items), head, None if tags is NO_TAGS else tags))
        self._receipts.append(receipt)
        if not self._is_due:
            self._is_due = True
            self._turn.at_end(self._send)
        elif len(self._receipts) % MOST_ENVELOPES == 0:
            self._drop_unwanted()
        return receipt

    def failure(self, receipt: "asyncio.Future[Receipt]") -> CallError | None:
        """Give the failure that holds an envelope up: its own, or that of a message before it. None while all is well.

        Args:
            receipt: the future of the envelope's receipt.
        """
        own = [message for message in self._streams if receipt in message.receipts]
        streams = [self._streams[message] for message in own or self._streams.keys() & self._out]
        return next((stream.failure for stream in streams if stream.failure is not None), None)

    def close(self) -> None:
        """Send nothing more."""
        if self._room is not None:
            self._room.cancel()
            self._room = None
        receipts, self._receipts, self._waiting = self._receipts, [], []
        for message in self._out:
            receipts += message.receipts
            if message not in self._streams:
                self._window.give(message.size)
        self._out.clear()
        _fail(receipts, not_open())

    def _send(self) -> None:
        """Send what waits, in messages, as far as they may be out."""
        while self._waiting and len(self._out) < MESSAGES_OUT:
            if not self._window.is_open:
                if self._room is None:
                    self._room = self._loop.create_task(self._send_with_room(), name="xbus emitter waits for room")
                return
            if True in map(_IS_DONE, self._receipts):
                self._drop_unwanted()
            puts, receipts, self._waiting, self._receipts = self._waiting, self._receipts, [], []
            size = sum(map(len, map(_DATA, puts)))
            if len(puts) > MOST_ENVELOPES or size > MOST_BYTES:
                sizes = [*accumulate(map(len, map(_DATA, puts[:MOST_ENVELOPES])))]
                number = max(1, bisect_right(sizes, MOST_BYTES))
                self._waiting, self._receipts = puts[number:], receipts[number:]
                puts, receipts, size = puts[:number], receipts[:number], sizes[number - 1]
            if puts:
                self._ask(_PutMessage(self._entries(puts), receipts, size, self._context.clock.monotonic()))
        self._is_due = len(self._out) >= MESSAGES_OUT

    def _drop_unwanted(self) -> None:
        """Drop the puts that nobody waits for any more."""
        are_wanted = [not receipt.done() for receipt in self._receipts]
        self._waiting = [*compress(self._waiting, are_wanted)]
        self._receipts = [*compress(self._receipts, are_wanted)]

    def _ask(self, message: _PutMessage) -> None:
        self._out.add(message)
        self._window.take(message.size)
        try:
            self._context.session.ask(VERB, (message.entries,), partial(self._answered, message), self._seconds)
        except Exception as error:
            self._out.discard(message)
            self._window.give(message.size)
            if len(message.receipts) == 1:
                _fail(message.receipts, error)
                return
            # One of them has no form on the wire: by messages of their own the others go, and that one raises. The
            # ids stay, as another error may come when the call is on its way.
            for entry, receipt in zip(message.entries, message.receipts, strict=True):
                self._ask(_message_of_one(entry, receipt, message.began))

    def _entries(self, puts: "Sequence[_Put]") -> Sequence[Entry]:
        ids = iter(self._context.ids.new_bytes(2 * len(puts)))
        entries = [*map(_and_put, zip(ids, ids, strict=False), puts)]
        if any(map(_HEAD, puts)):
            for place, entry in enumerate(entries):
                # From the key of an envelope its ids follow.
                if (head := entry[5]) is not None and head.key is not None:
                    entries[place] = (None, None, *entry[2:])
        return entries

    async def _send_with_room(self) -> None:
        await self._window.room()
        self._room = None
        self._send()

    def _answered(self, message: _PutMessage, answer: Value, error: CallError | None) -> None:
        """Give the receipts of a message; after a failure let a stream insist."""
        if message not in self._out:  # it was told of the end before
            return
        if error is not None:
            self._insist(message, error)
            return
        self._out.discard(message)
        self._window.give(message.size)
        for late, failure in _give(message, answer):
            self._insist(late, failure)
        self._turn.wakes = True
        if self._waiting:
            self._send()
        else:
            self._is_due = False

    def _insist(self, message: _PutMessage, error: CallError) -> None:
        seconds = self._context.options.answer_seconds
        call = RepeatableCall(VERB, (message.entries,), seconds, size=message.size, error_in=_only_error)
        if message not in self._out:
            self._window.take(message.size)
        self._streams[message] = stream = self._context.new_stream()

        def answered(answer: "asyncio.Future[Value]") -> None:
            self._context.end(stream)
            self._out.discard(message)
            del self._streams[message]
            if answer.cancelled() or (error := answer.exception()) is not None:
                _fail(message.receipts, asyncio.CancelledError() if answer.cancelled() else error)
            else:
                for late, failure in _give(message, answer.result()):
                    self._insist(late, failure)
            self._send()

        stream.insist(call, message.began, error).add_done_callback(answered)
        # A message that nobody waits for is not sent again.
        over = asyncio.gather(*message.receipts, return_exceptions=True)
        over.add_done_callback(lambda _: self._context.end(stream))

    async def put_in_order(self, puts: Sequence[NewPut]) -> list[Receipt | None]:
        """Send envelopes in one message at once, each under its key.

        Returns:
            The receipt of each. Behind the first one that was not taken there is none for those that are new: that one
            has to be put by itself.

        Raises:
            CallError: the message was refused, or nothing answered for as long as the emitter insists.
        """
        entries = self._entries(
            [
                (*put[:3], None if put.head is PLAIN_HEAD else put.head, None if put.tags is NO_TAGS else put.tags)
                for put in puts
            ]
        )
        size = sum([len(put.data) for put in puts])
        stream = self._context.new_stream()
        try:
            answer = await stream.submit(
                RepeatableCall(VERB, (entries, True), self._context.options.answer_seconds, size=size)
            )
        finally:
            self._context.end(stream)
        receipts = [self._new_receipt() for _ in puts]
        _give(_PutMessage(entries, receipts, size, 0.0), answer)
        return [receipt.result() if receipt.done() and not receipt.exception() else None for receipt in receipts]


def _fail(receipts: "Sequence[asyncio.Future[Receipt]]", error: BaseException | None) -> None:
    for receipt in receipts:
        if not receipt.done():
            receipt.set_exception(error or asyncio.CancelledError())


def _message_of_one(entry: Entry, receipt: "asyncio.Future[Receipt]", began: float) -> _PutMessage:
    return _PutMessage((entry,), [receipt], len(entry[4]), began)


def _give(message: _PutMessage, answers: Any) -> list[tuple[_PutMessage, Failed]]:
    """Read the answer to a message: a receipt or an error for each.

    Returns:
        The envelopes that the front can't take for now, each as a message of one, with its failure.
    """
    late: list[tuple[_PutMessage, Failed]] = []
    if type(answers) is not list or len(answers) != len(message.entries):
        answers = [None] * len(message.entries)
    for entry, receipt, answer in zip(message.entries, message.receipts, answers, strict=True):
        if receipt.done():
            continue
        fields = answer if type(answer) is list and len(answer) == _RECEIPT_FIELDS else _NO_RECEIPT
        envelope_id, position, digest = fields
        if type(envelope_id) is type(digest) is bytes and type(position) is int and len(envelope_id) == _ID_BYTES:
            # As ``format_uuid``, whose call each receipt would pay for.
            digits = envelope_id.hex()
            text = f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
            receipt.set_result(_receipt((text, position, 1, entry[3], digest, not position)))
        else:
            error = _error_of(answer)
            if isinstance(error, Failed):
                late.append((_message_of_one(entry, receipt, message.began), error))
            else:
                receipt.set_exception(error)
    return late


def _only_error(answers: Value) -> CallError | None:
    """Give the error in the answer to a message of one envelope; None for its receipt, and for larger messages."""
    match answers:
        case [dict(told)]:
            return _error_of(told)
    return None


def _error_of(told: Value) -> CallError:
    match told:
        case {"refused": bool(refused), "code": str(code), "cause": str(cause), "next_step": str(next_step), **others}:
            given = others.get("details")
            numbers = given.items() if isinstance(given, dict) else ()
            details = {str(name): number for name, number in numbers if isinstance(number, int | float)}
            return (Refused if refused else Failed)(cause, next_step, code=code, details=details)
    return bad_answer(VERB, "has an entry that is neither a receipt nor an error")
