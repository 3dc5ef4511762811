"""One envelope being sent: all of it arrives, or nothing.

Items go into its events, and batches come out.
"""

import asyncio
import logging
import os
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from functools import partial
from types import TracebackType
from typing import NamedTuple, TypeVar

from xbus.emitter.batch import Add, Full
from xbus.emitter.context import EmitterContext
from xbus.emitter.patience import within
from xbus.emitter.receipt import Receipt
from xbus.emitter.session import FAREWELL_SECONDS
from xbus.emitter.stream import END_EVENT, RepeatableCall, Stream
from xbus.errors import CallError, ConnectionLost, Failed, Refused, TimedOut
from xbus.files import PIECE_BYTES, OutgoingFile
from xbus.headers import NO_TAGS, EventTags, Headers, event_tags, pack_headers
from xbus.ids import numbered_event_id
from xbus.rpc.codec import Value, item_pieces
from xbus.rpc.items import ITEM_HEADER_BYTES, check_several
from xbus.rpc.messages import EnvelopeOptionsMap, EventEnd, EventOptionsMap
from xbus.rpc.shapes import AnswerReader

logger = logging.getLogger(__name__)

T = TypeVar("T")
Options = TypeVar("Options", bound=Mapping[str, object])

_END = AnswerReader("xbus.end_event", EventEnd)


def event_options(tags: EventTags) -> EventOptionsMap:
    """Make the options of the call that begins an event; empty without any."""
    given: EventOptionsMap = {}
    if tags.headers is not None:
        given["headers"] = tags.headers
    if tags.partition_key is not None:
        given["partition_key"] = tags.partition_key
    return given


def last_argument(options: Options) -> tuple[Options, ...]:
    """Give the last argument of a call: its options, or nothing without any."""
    return (options,) if options else ()


class EventStart(NamedTuple):
    """The facts that an emitter gives at the start of an event.

    Args:
        type_name: the event type, which the emitter's profile must allow.
        estimate: how many items will come, 0 where that is not known.
        tags: its headers and its partition key.
    """

    type_name: str
    estimate: int = 0
    tags: EventTags = NO_TAGS


def event_closed() -> Refused:
    """Make the error for an item that is sent outside of its event's block."""
    return Refused("the event is not open", "send inside its `with` block", code="event_closed")


def _is_full(*, timeout: float | None) -> bool:
    return True


class AsyncEvent:
    """One event of an envelope, to be used in ``async with``. Leaving the block sends the rest and ends the event.

    Args:
        context: what the emitter's envelopes share.
        stream: the calls of the envelope.
        envelope_id: the envelope that it belongs to.
        event_id: its own id.
        start: what is said at its start.
        timeout: the most seconds that each of its calls waits, unless the call says otherwise; None for no limit.

    Attributes:
        id: the event's UUID as text.
    """

    def __init__(
        self,
        context: EmitterContext,
        stream: Stream,
        envelope_id: str,
        event_id: str,
        start: EventStart,
        timeout: float | None = None,
    ) -> None:
        self.id = event_id
        self._context = context
        self._stream = stream
        self._envelope_id = envelope_id
        self._start = start
        self._timeout = timeout
        self._batch = context.new_batch(stream)
        self._batch.error = event_closed()
        self._add = self._batch.adder(_is_full)
        self._sent = 0
        self._timer: asyncio.TimerHandle | None = None
        self._end: asyncio.Future[Value] | None = None

    async def __aenter__(self) -> "AsyncEvent":
        type_name, estimate, tags = self._start
        if tags != NO_TAGS:
            self._context.session.limits.check_headers()
        options = event_options(tags)
        self._stream.events += 1
        if self._context.session.limits.numbers:
            options["number"] = self._stream.events
        self._call("xbus.start_event", type_name, estimate, *last_argument(options), durable=False)
        self._batch.error = None
        self._arm_timer()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                await self.flush()
                self._end = self._call(END_EVENT, self._sent, seconds=self._context.reply_seconds)
        finally:
            self._batch.error = self._batch.error or event_closed()
            if self._timer is not None:
                self._timer.cancel()

    async def send(self, item: object, *, timeout: float | None = None) -> None:
        """Send one item, as ``Event.send`` does."""
        if self._add(item):
            await self.flush(timeout=timeout)

    async def send_all(self, items: Iterable[object], *, timeout: float | None = None) -> None:
        """Send many items, as ``Event.send_all`` does."""
        for _ in self.fill(items):
            await self.flush(timeout=timeout)

    async def send_file(
        self, path: str | os.PathLike[str], *, name: str | None = None, timeout: float | None = None
    ) -> None:
        """Send a file as the only content of the event, as ``Event.send_file`` does."""
        limits = self._context.session.limits
        largest = min(PIECE_BYTES, limits.max_item_bytes, limits.max_batch_bytes - ITEM_HEADER_BYTES)
        if self._sent or len(self._batch):
            raise Refused("the event has items already", "send a file in an event of its own", code="event_has_items")
        with await asyncio.to_thread(OutgoingFile, path, name, largest) as file:
            async with aclosing(_read_ahead(file)) as items:
                async for item in items:
                    await self.send(item, timeout=timeout)
        self._batch.error = Refused(
            "the event has a file", "send other items in an event of their own", code="event_has_file"
        )

    def adder(self, full: Full[T]) -> Add[T]:
        """Make the function that puts an item into the batch, from any thread.

        Args:
            full: called when ``flush`` is due.
        """
        return self._batch.adder(full)

    def fill(self, items: Iterable[object]) -> Iterator[None]:
        """Put many items into the batch, from any thread; stop each time that ``flush`` is due.

        Raises:
            Refused: an item can't be taken, or ``items`` are one item (``bad_items``).
        """
        check_several(items)
        return self._batch.fill(items)

    async def flush(self, *, timeout: float | None = None) -> None:
        """Send what waits for company now, as ``Event.flush`` does."""
        await self._within(timeout, self._stream.room())
        self._send_batch()

    async def reply(self, *, timeout: float | None = None) -> Value:
        """Give the immediate reply of a consumer, as ``Event.reply`` does."""
        return (await self._within(timeout, self._ended()))["reply"]

    async def has_reply(self, *, timeout: float | None = None) -> bool:
        """Check whether the event got an immediate reply, be it None; see also ``reply``."""
        return (await self._within(timeout, self._ended())).get("replied", True)

    async def _within(self, timeout: float | None, work: Awaitable[T]) -> T:
        return await within(self._timeout if timeout is None else timeout, work, lambda: self._stream.failure)

    async def _ended(self) -> EventEnd:
        if self._end is None:
            raise Refused("the event has not ended", "ask for the reply after its `with` block", code="event_open")
        if self._stream.error is not None and not self._end.done():
            raise self._stream.error  # in a forked process: the answer comes to the parent
        return _END.read(await asyncio.shield(self._end))

    def _arm_timer(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._context.options.linger_seconds, self._linger_over)

    def _linger_over(self) -> None:
        # A full window gathers on: what came meanwhile makes the next batch larger.
        if self._context.window.is_open:
            self._send_batch()
        if self._stream.error is None:
            self._arm_timer()

    def _send_batch(self) -> None:
        for items in self._batch.take():
            data = item_pieces(items)
            self._call("xbus.send_items", self._sent, len(items), data, size=len(data))
            self._sent += len(items)

    def _call(
        self, verb: str, *arguments: object, size: int = 0, durable: bool = True, seconds: float | None = None
    ) -> asyncio.Future[Value]:
        call = RepeatableCall(
            verb,
            (self._envelope_id, self.id, *arguments),
            seconds=seconds or self._context.options.answer_seconds,
            size=size,
            durable=durable,
            may_wait=verb == END_EVENT,
        )
        return self._stream.submit(call)


async def _read_ahead(file: OutgoingFile) -> AsyncGenerator[bytes, None]:
    """Iterate over the items of a file; the next one is read while one is sent."""
    reading = asyncio.ensure_future(asyncio.to_thread(file.next_item))
    try:
        while (item := await asyncio.shield(reading)) is not None:
            reading = asyncio.ensure_future(asyncio.to_thread(file.next_item))
            yield item
    finally:
        # The thread has to leave the file before somebody closes it.
        await asyncio.wait([reading])
        reading.exception()  # marks it as seen: if the sending failed, that is told


_STARTED = AnswerReader("xbus.start_envelope", str)

NO_OPTIONS: EnvelopeOptionsMap = {}
"""The options of a plain envelope."""

NOT_OURS = frozenset({"key_reused", "session_superseded", "begun_before_fork"})
"""Refusals that leave nothing to cancel: the envelope is sealed, or another session or process goes on with it."""


class AsyncEnvelope:
    """One envelope, to be used in ``async with``. Leaving the block seals it; leaving it by an exception cancels it.

    Args:
        open_context: gives what the emitter's envelopes share, opened in this process.
        new_id: its id, where it has no key.
        options: as ``envelope_options`` makes them.
        timeout: the most seconds that each call in it waits; None for no limit but ``retry_seconds``.

    Attributes:
        id: the envelope's UUID as text; of one with a key inside the block only.
    """

    def __init__(
        self,
        open_context: Callable[[], Awaitable[EmitterContext]],
        new_id: str,
        options: EnvelopeOptionsMap,
        timeout: float | None = None,
    ) -> None:
        self._has_key = "key" in options
        self.id = "" if self._has_key else new_id
        self._options = options
        self._open_context = open_context
        self._timeout = timeout
        self._context: EmitterContext
        self._stream: Stream
        self._events = 0
        self._receipt: Receipt | None = None

    @property
    def receipt(self) -> Receipt:
        """The proof that the bus took the envelope, as of ``Envelope.receipt``."""
        if self._receipt is None:
            raise Refused(
                "the envelope is not sealed", "ask for the receipt after its `with` block", code="envelope_open"
            )
        return self._receipt

    @property
    def queued(self) -> bool:
        """True once it is durable in the emitter's outbox, from where it goes to the bus."""
        return self._receipt is not None and self._receipt.queued

    def failure(self) -> CallError | None:
        """Give the failure because of which its calls are made again; None while they succeed."""
        return self._stream.failure if hasattr(self, "_stream") else None

    async def __aenter__(self) -> "AsyncEnvelope":
        self._context = await self._open_context()
        if "headers" in self._options:
            self._context.session.limits.check_headers()
        self._stream = self._context.new_stream()
        seconds = self._context.options.answer_seconds
        arguments = (self.id, *last_argument(self._options))
        start = RepeatableCall("xbus.start_envelope", arguments, seconds, durable=False)
        if self._has_key:
            await self._claim(start)
        else:
            self._stream.submit(start)
        return self

    async def _claim(self, start: RepeatableCall) -> None:
        try:
            self.id = _STARTED.read(await within(self._timeout, self._stream.claim(start), self.failure))
        except BaseException:
            self._context.end(self._stream)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                await self._seal()
        except CallError as refusal:
            await self._cancel(refusal)
            raise
        except BaseException as interruption:
            await self._cancel(interruption)
            raise
        else:
            if error is not None:
                await self._cancel(error)
        finally:
            self._context.end(self._stream)

    def event(
        self,
        type_name: str,
        estimate: int = 0,
        *,
        headers: Headers | None = None,
        partition_key: str | None = None,
    ) -> AsyncEvent:
        """Begin an event of the envelope, to be used in ``async with``; see ``Envelope.event``."""
        return self.begin(EventStart(type_name, estimate, event_tags(headers, partition_key)))

    def begin(self, start: EventStart) -> AsyncEvent:
        """Begin an event whose headers are packed already."""
        self._events += 1
        event_id = self._context.new_id()
        if self._has_key:
            event_id = str(numbered_event_id(uuid.UUID(self.id), self._events))
        return AsyncEvent(self._context, self._stream, self.id, event_id, start, self._timeout)

    async def _seal(self) -> None:
        # The front lets it wait behind the replies to its events.
        call = RepeatableCall("xbus.end_envelope", (self.id, self._events), self._context.reply_seconds, may_wait=True)
        answer = await within(self._timeout, self._stream.submit(call), self.failure)
        self._receipt = Receipt.of(answer)

    async def _cancel(self, reason: BaseException) -> None:
        if self._context.is_inherited or (isinstance(reason, CallError) and reason.code in NOT_OURS):
            return  # somebody else goes on with it, or it is sealed
        self._stream.abandon(Refused("the envelope is cancelled", "send it as a new one", code="envelope_closed"))
        cancelled = self._context.session.call(
            "xbus.cancel_envelope", self.id, seconds=self._context.options.probe_seconds
        )
        cancelled.add_done_callback(partial(_note_cancelled, self.id))
        # The caller of a silent bus has waited long enough, and whoever stops waiting does not want to wait here.
        if not isinstance(reason, (TimedOut, ConnectionLost, asyncio.CancelledError)):
            await asyncio.wait([cancelled], timeout=FAREWELL_SECONDS if isinstance(reason, Failed) else None)


def _note_cancelled(envelope_id: str, cancelled: "asyncio.Future[Value]") -> None:
    error = None if cancelled.cancelled() else cancelled.exception()
    if error is not None:
        # It stays open, seen by nobody.
        code = error.code if isinstance(error, CallError) else type(error).__name__
        extra = {"action": "emitter_cancel_failed", "envelope_id": envelope_id, "code": code}
        # A paused emitter has nothing at the bus that could be cancelled.
        level = logging.INFO if code == "envelope_unknown" else logging.WARNING
        logger.log(level, "envelope not cancelled", extra=extra)


def envelope_options(ordering_key: str | None, key: str | None, headers: Headers | None = None) -> EnvelopeOptionsMap:
    """Make the options of the call that begins an envelope; empty without any. See ``Emitter.envelope``.

    Raises:
        Refused: the headers can't be sent; see ``pack_headers``.
    """
    given: EnvelopeOptionsMap = {}
    if (packed := pack_headers(headers)) is not None:
        given["headers"] = packed
    if ordering_key is not None:
        given["ordering_key"] = ordering_key
    if key is not None:
        given["key"] = key
    return given
