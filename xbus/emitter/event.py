"""One event being sent: items in, batches out."""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Iterable, Iterator, Mapping
from contextlib import aclosing
from types import TracebackType
from typing import NamedTuple, TypeVar

from xbus.emitter.batch import Add, Full
from xbus.emitter.context import EmitterContext
from xbus.emitter.patience import within
from xbus.emitter.pending_calls import END_EVENT, RepeatableCall
from xbus.emitter.session import FrontLimits
from xbus.emitter.stream import Stream
from xbus.errors import Refused
from xbus.files import PIECE_BYTES, OutgoingFile
from xbus.headers import NO_TAGS, EventTags
from xbus.rpc.codec import Value, item_pieces
from xbus.rpc.items import ITEM_HEADER_BYTES, check_several
from xbus.rpc.messages import EventEnd, EventOptionsMap
from xbus.rpc.shapes import AnswerReader

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

    def check(self, limits: FrontLimits) -> None:
        """Let it pass for a front.

        Raises:
            Refused: the front is too old for headers (``headers_unsupported``).
        """
        if self.tags != NO_TAGS:
            limits.check_headers()


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
        self._start.check(self._context.session.limits)
        type_name, estimate, tags = self._start
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
