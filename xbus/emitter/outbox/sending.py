"""Sends the envelopes of an outbox to the bus: in order, each once."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Protocol

from xbus.backoff import Backoff
from xbus.clock import Clock
from xbus.emitter.envelope import AsyncEnvelope, EventStart, envelope_options
from xbus.emitter.outbox.box import QueuedEnvelope, QueuedEvent
from xbus.emitter.outbox.queueing import OutboxThread
from xbus.emitter.patience import told_seconds
from xbus.emitter.puts import MOST_BYTES, MOST_ENVELOPES, NewPut
from xbus.emitter.receipt import Receipt
from xbus.errors import CallError, ProtocolError, Refused
from xbus.headers import EventTags, Headers, unpack_headers
from xbus.rpc.codec import unpack_items
from xbus.rpc.messages import EnvelopeOptionsMap
from xbus.waiting import WaitLog

logger = logging.getLogger(__name__)

FIRST_DELAY_SECONDS = 0.1
LONGEST_DELAY_SECONDS = 10.0

POLL_SECONDS = 2.0
"""Seconds between looks at the file: a command may have put a refused envelope back into the line."""

SMALL_BYTES = 64 * 1024
"""An envelope of one event goes in one call up to this size. More take more memory."""

OF_THE_SESSION = frozenset({"login_refused", "session_unknown", "session_superseded", "not_open"})
OF_THE_ATTEMPT = frozenset({"envelope_closed", "envelope_broken", "envelope_unknown", "event_unknown"})
NOT_ITS_FAULT = OF_THE_SESSION | OF_THE_ATTEMPT
"""Refusals that say nothing against the envelope: it stays first in the line, and is sent from its beginning again."""

NO_REPLY = frozenset({"reply_failed", "reply_timed_out"})
"""Failures that trying again does not help against: nobody waits for the reply."""


class EnvelopeOpener(Protocol):
    """Begins envelopes at the bus, as an open ``AsyncEmitter`` does."""

    def envelope(
        self, *, ordering_key: str | None = None, key: str | None = None, headers: Headers | None = None
    ) -> AsyncEnvelope:
        """Begin an envelope, to be used in ``async with``."""

    async def put_packed(
        self, type_name: str, tags: EventTags, packed: list[bytes], options: EnvelopeOptionsMap
    ) -> Receipt:
        """Send a whole envelope of one event whose items are packed."""

    async def put_in_order(self, puts: Sequence[NewPut]) -> list[Receipt | None]:
        """Send whole envelopes under keys in one message, as ``Puts.put_in_order`` does."""


class OutboxSender:
    """Sends what waits.

    Args:
        thread: where the outbox is used.
        connect: gives an emitter to be opened, one without an outbox.
        clock: dates trouble.
    """

    def __init__(
        self,
        thread: OutboxThread,
        connect: Callable[[], AbstractAsyncContextManager[EnvelopeOpener]],
        clock: Clock,
    ) -> None:
        self._thread = thread
        self._outbox = thread.outbox
        self._connect = connect
        self._clock = clock
        self._something = asyncio.Event()
        self._nothing = asyncio.Event()
        self._backoff = Backoff(FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS)
        self._waiting = WaitLog(logger, "outbox_waits", clock.monotonic)
        self._in_trouble = True  # as far as is known: an earlier process may have left some
        self.sent = 0
        self.refused = 0

    @asynccontextmanager
    async def sending(self, seconds: float) -> AsyncIterator[None]:
        """Send while the block runs, and then for so long while something waits; what is left stays in the file."""
        task = asyncio.create_task(self.run(), name="xbus emitter sends from its outbox")
        try:
            yield
            emptied = asyncio.create_task(self._nothing.wait())
            await asyncio.wait({task, emptied}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            emptied.cancel()
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def wake(self) -> None:
        """Note that an envelope has come into the line."""
        self._nothing.clear()
        self._something.set()

    async def run(self) -> None:
        """Send for ever, and repeat while the bus is away."""
        while True:
            try:
                await self._wait_for_something()
                async with self._connect() as emitter:
                    while True:
                        await self.flush(emitter)
                        await self._wait_for_something()
            except CallError as error:
                await self._note(error)
                await asyncio.sleep(max(self._backoff.next(), told_seconds(error)))

    async def flush(self, emitter: EnvelopeOpener) -> None:
        """Send all that waits.

        Raises:
            Failed: the bus did not take an envelope within ``retry_seconds``; it stays first in the line.
            Refused: the bus refused this emitter, whatever it sends.
        """
        most = MOST_ENVELOPES
        while (envelope := await self._first()) is not None:
            sent = await self._send_together(emitter, most) if most > 1 else 0
            # One that does not go with others may have them wait for long, and each message brings them all.
            most = min(2 * most, MOST_ENVELOPES) if sent or most == 1 else 1
            if not sent:
                await self._send_or_set_aside(emitter, envelope)
            if self._in_trouble:
                self._in_trouble = False
                self._backoff.reset()
                self._waiting.ends()
                await self._thread.run(self._outbox.forget_trouble)

    async def _send_together(self, emitter: EnvelopeOpener, most: int) -> int:
        """Send the first envelopes of the line in one message, as far as they are small. Give how many the bus took."""
        small = await self._thread.run(self._outbox.small_ones, most, MOST_BYTES)
        if len(small) < 2:
            return 0
        try:
            receipts = await emitter.put_in_order([queued.put for queued in small])
        except Refused as refusal:
            if refusal.code in OF_THE_SESSION:
                raise
            return 0
        taken = [queued.envelope_id for queued, receipt in zip(small, receipts, strict=True) if receipt is not None]
        await self._thread.run(self._outbox.remove, *taken)
        self.sent += len(taken)
        return len(taken)

    async def _first(self) -> QueuedEnvelope | None:
        self._something.clear()
        first = await self._thread.run(self._outbox.first_waiting)
        if first is None and not self._something.is_set():
            self._nothing.set()
        return first

    async def _wait_for_something(self) -> None:
        while await self._first() is None:
            try:
                async with asyncio.timeout(POLL_SECONDS):
                    await self._something.wait()
            except TimeoutError:
                continue

    async def _send_or_set_aside(self, emitter: EnvelopeOpener, envelope: QueuedEnvelope) -> None:
        try:
            await self._send(emitter, envelope)
        except CallError as error:
            passing = error.code in NOT_ITS_FAULT if isinstance(error, Refused) else error.code not in NO_REPLY
            if passing:
                raise
            logger.error(
                "the bus refused an envelope of the outbox: %s",
                error,
                extra={"action": "outbox_refused", "key": envelope.key, "code": error.code},
            )
            await self._thread.run(self._outbox.set_aside, envelope.envelope_id, error.code, str(error))
            self.refused += 1
        else:
            await self._thread.run(self._outbox.remove, envelope.envelope_id)
            self.sent += 1

    async def _send(self, emitter: EnvelopeOpener, queued: QueuedEnvelope) -> None:
        headers = unpack_headers(queued.headers)
        events = await self._thread.run(self._outbox.events, queued.envelope_id)
        if len(events) == 1 and queued.size <= SMALL_BYTES:
            tags = EventTags(events[0].headers, events[0].partition_key)
            options = envelope_options(queued.ordering_key, queued.key, headers)
            items = [item async for item in self._items(events[0])]
            await emitter.put_packed(events[0].type_name, tags, items, options)
            return
        async with emitter.envelope(key=queued.key, ordering_key=queued.ordering_key, headers=headers) as envelope:
            for queued_event in events:
                tags = EventTags(queued_event.headers, queued_event.partition_key)
                async with envelope.begin(EventStart(queued_event.type_name, queued_event.estimate, tags)) as event:
                    async for item in self._items(queued_event):
                        await event.send(item)

    async def _items(self, event: QueuedEvent) -> AsyncIterator[bytes]:
        index = 0
        while (batch := await self._thread.run(self._outbox.batch, event.event_id, index)) is not None:
            items, data = batch
            for item in self._unpacked(data, items):
                yield item
            index += items
        if index != event.items:
            raise _damaged(f"items from index {index} on are not there")

    @staticmethod
    def _unpacked(data: bytes, items: int) -> list[bytes]:
        try:
            return unpack_items(data, items)
        except ProtocolError as error:
            raise _damaged(error.cause) from error

    async def _note(self, error: CallError) -> None:
        self._in_trouble = True
        self._waiting.waits(error)
        try:
            await self._thread.run(self._outbox.note_trouble, error.code, error.cause, self._clock.now())
        except CallError:
            # The trouble is the file's own, and is in the log.
            return


def _damaged(cause: str) -> Refused:
    return Refused(
        f"the outbox is damaged: {cause}", "send the envelope anew, from where it came", code="outbox_broken"
    )
