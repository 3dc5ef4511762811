"""One envelope being sent: all of it arrives, or nothing."""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import TracebackType

from xbus.emitter.context import EmitterContext
from xbus.emitter.event import AsyncEvent, EventStart, event_options, last_argument
from xbus.emitter.patience import within
from xbus.emitter.pending_calls import RepeatableCall
from xbus.emitter.receipt import Receipt
from xbus.emitter.session import FAREWELL_SECONDS, FrontLimits
from xbus.emitter.stream import Stream
from xbus.errors import CallError, ConnectionLost, Failed, Refused, TimedOut
from xbus.headers import Headers, event_tags, pack_headers
from xbus.ids import numbered_event_id
from xbus.rpc.codec import Value, pack_items
from xbus.rpc.messages import EnvelopeOptionsMap
from xbus.rpc.shapes import AnswerReader

logger = logging.getLogger(__name__)

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
        check_envelope(self._options, self._context.session.limits)
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


async def put_at_once(
    context: EmitterContext,
    start: EventStart,
    items: Sequence[bytes],
    options: EnvelopeOptionsMap,
    timeout: float | None = None,
    ids: Sequence[str] = (),
    began: float | None = None,
) -> Receipt:
    """Send an envelope of one event whose items fit into one batch.

    Args:
        context: the way to the front.
        start: the event type, headers and partition key.
        items: packed.
        options: of the envelope, as ``envelope_options`` makes them.
        timeout: the most seconds that it may take; None for as long as the emitter insists.
        ids: of the envelope and of its event, where they were sent before.
        began: when ``timeout`` began, as of ``within``.

    Raises:
        CallError: the front refuses it, or nothing answered for as long as the emitter insists.
    """
    check_envelope(options, context.session.limits)
    start.check(context.session.limits)
    data = pack_items(items)
    envelope_id, event_id = ids or (context.new_id(), context.new_id())
    event = [event_id, start.type_name, len(items), data, *last_argument(event_options(start.tags))]
    arguments = (envelope_id, [event], *last_argument(options))
    call = RepeatableCall("xbus.put_envelope", arguments, context.options.answer_seconds, size=len(data))
    stream = context.new_stream()
    try:
        return Receipt.of(await within(timeout, _submitted(stream, call), lambda: stream.failure, began))
    finally:
        context.end(stream)


async def _submitted(stream: Stream, call: RepeatableCall) -> Value:
    await stream.room()
    return await stream.submit(call)


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


def check_envelope(options: EnvelopeOptionsMap, limits: FrontLimits) -> None:
    """Let the beginning of an envelope pass for a front.

    Raises:
        Refused: the front is too old for headers (``headers_unsupported``).
    """
    if "headers" in options:
        limits.check_headers()
