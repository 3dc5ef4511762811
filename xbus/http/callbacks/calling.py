"""Serves one subscription: reads a batch, posts it once, and settles it with the call for the next one.

Here is no retry: the back hands out again what was not taken, as its policy says, and parks it in the end.
"""

import asyncio
import base64
import contextlib
import logging
import uuid
from collections.abc import Iterator
from enum import Enum, auto

from xbus.clock import Clock
from xbus.errors import CallError, Refused
from xbus.http.callbacks.back import GatewayBack
from xbus.http.callbacks.client import CallbackClient, CallOutcome
from xbus.http.callbacks.formats import FORMATS
from xbus.http.callbacks.signing import signature_headers
from xbus.http.figures import RoutemasterCounters
from xbus.reader.claimed import ReaderBatch
from xbus.rpc.codec import Value
from xbus.rpc.messages import ClaimedBatchMap
from xbus.rpc.messages.subscriptions import FailedCallAnswer, SubscriptionMap
from xbus.texts import MOST_CHARACTERS, plain

log = logging.getLogger(__name__)

BACK_SECONDS = 1.0
"""Seconds until the back is asked again that does not answer."""

RENEWALS_PER_LEASE = 3

GATHER_SECONDS = 0.005
"""Seconds from a call with few events to the next look for some. More gather more events into a call, which costs less
of gateway, broker and subscriber; an event that comes after a call waits for as long."""

FEW_EVENTS = 20
"""Events of a batch that is not worth a call of its own while more come."""

SMALL_BYTES = 16_384
"""Bytes of items up to which a body is written at once. More spare the way to a thread, and keep others waiting."""


class _Delivery(Enum):
    """The end of a call with one batch."""

    TAKEN = auto()
    NOT_TAKEN = auto()
    ENDED = auto()
    """The subscriber wants no more."""
    LOST = auto()
    """The range is another gateway's, or a person moved it."""


class SubscriptionCalls:
    """A program of a subscription's reader. It has one batch at a time.

    Args:
        subscription: as the back told it.
        back: gives batches.
        client: makes the calls.
        clock: tells the time.
        counters: count calls.
    """

    def __init__(
        self,
        subscription: SubscriptionMap,
        back: GatewayBack,
        client: CallbackClient,
        clock: Clock,
        counters: RoutemasterCounters,
    ) -> None:
        self._subscription = subscription
        self._reader = subscription["reader"]
        self._back = back
        self._client = client
        self._clock = clock
        self._counters = counters
        self._program = str(uuid.uuid4())
        self._is_well = False
        """True if the back knows that the last call went well."""

    async def run(self) -> None:
        """Call the subscriber with each batch until it wants no more."""
        done: list[Value] | None = None
        while True:
            try:
                answer = await self._back.read(self._program, self._reader, done)
                done = None
                if answer["batch"] is None:
                    continue
                began, batch = self._clock.monotonic(), ReaderBatch(answer["batch"])
                delivery = await self._deliver_while_owned(answer["batch"], batch, answer["lease"])
                if delivery is _Delivery.ENDED:
                    return
                done = batch.settled() if delivery is _Delivery.TAKEN else None
                if len(batch) < FEW_EVENTS:
                    await asyncio.sleep(max(0.0, began + GATHER_SECONDS - self._clock.monotonic()))
            except CallError as error:
                if isinstance(error, Refused):
                    # The range is another gateway's by now, or the reader is new: what is read next tells.
                    done = None
                extra = {"action": "callback_batch_not_read", "subscription": self._subscription["name"]}
                log.info("no batch: %s", error, extra=extra | {"code": error.code})
                await asyncio.sleep(BACK_SECONDS)

    async def leave(self) -> None:
        """Give the ranges up, so that another gateway has them at once."""
        with contextlib.suppress(CallError):
            await self._back.leave(self._program, self._reader)

    async def _deliver_while_owned(self, told: ClaimedBatchMap, batch: ReaderBatch, lease: float) -> _Delivery:
        """Call with a batch for as long as its range is this program's.

        Args:
            lease: seconds for which the range is kept after a sign of life.
        """
        try:
            async with asyncio.timeout(None) as owned:
                with self._renewing(told, lease / RENEWALS_PER_LEASE, owned):
                    return await self._deliver(told, batch)
        except TimeoutError:
            if not owned.expired():
                raise
            return _Delivery.LOST

    @contextlib.contextmanager
    def _renewing(self, told: ClaimedBatchMap, seconds: float, owned: asyncio.Timeout) -> Iterator[None]:
        """Keep the range for the time of the block, which most batches leave before there is anything to be done.

        Args:
            seconds: between signs of life.
            owned: ends when the range is lost.
        """
        loop = asyncio.get_running_loop()
        renewing: list[asyncio.Task[None]] = []

        def begin() -> None:
            renewing.append(loop.create_task(self._renew_until_lost(told, seconds, owned)))

        timer = loop.call_later(seconds, begin)
        try:
            yield
        finally:
            timer.cancel()
            for task in renewing:
                task.cancel()

    async def _renew_until_lost(self, told: ClaimedBatchMap, seconds: float, owned: asyncio.Timeout) -> None:
        lease = told["range"], told["counter"]
        extra = {"action": "callback_lease_not_renewed", "subscription": self._subscription["name"]}
        while True:
            try:
                ranges = await self._back.renew(self._program, self._reader)
            except CallError as error:
                log.info("lease not renewed: %s", error, extra=extra | {"code": error.code})
            else:
                if lease not in [(range_id, counter) for range_id, counter in ranges]:
                    log.info("range %d is lost: its batch is called no more", lease[0], extra=extra)
                    owned.reschedule(asyncio.get_running_loop().time())
                    return
            await asyncio.sleep(seconds)

    async def _deliver(self, told: ClaimedBatchMap, batch: ReaderBatch) -> _Delivery:
        """Call once. The back hands a batch that is not taken out again when it is time, or parks it."""
        if not told["events"]:
            return _Delivery.TAKEN
        outcome = await self._counted_call(told, batch)
        if outcome.is_taken:
            await self._note_success()
            return _Delivery.TAKEN
        await self._note_failure(outcome, batch)
        return _Delivery.ENDED if outcome.is_end else _Delivery.NOT_TAKEN

    async def _counted_call(self, told: ClaimedBatchMap, batch: ReaderBatch) -> CallOutcome:
        name, events = self._subscription["name"], len(batch)
        began, waited = self._clock.monotonic(), (self._clock.now() - batch.events[0].sealed_at).total_seconds()
        if not batch.is_repeated:
            self._counters.handed_out(name, events, waited)
        outcome = await self._call(told, batch)
        took = self._clock.monotonic() - began
        self._counters.called(name, events, took, waited, is_taken=outcome.is_taken)
        return outcome

    async def _call(self, told: ClaimedBatchMap, batch: ReaderBatch) -> CallOutcome:
        """Call once. The body is written for each call: kept, those of dead subscribers would take much memory."""
        subscription = self._subscription
        media_type, write = FORMATS[subscription["format"]]
        try:
            size = sum(len(event["data"]) for event in told["events"])
            body = write(batch) if size <= SMALL_BYTES else await asyncio.to_thread(write, batch)
            headers = {"content-type": media_type, "user-agent": "xbus", **self._proof(told["id"], body)}
            return await self._client.post(subscription["url"], headers, body, verify=subscription["verify"])
        except Exception:
            # A fault in one batch must not end the calls of all other subscriptions.
            extra = {"action": "callback_fault", "subscription": subscription["name"]}
            log.exception("a batch can't be sent", extra=extra)
            return CallOutcome("callback_failed", "the gateway can't send this batch; its log says why")

    def _proof(self, message_id: str, body: bytes) -> dict[str, str]:
        """Make the headers that show who calls; Routemaster's format has a word for that, and no signature."""
        secret, seconds = self._subscription["secret"], int(self._clock.now().timestamp())
        if self._subscription["format"] != "routemaster":
            return signature_headers(secret, message_id, seconds, body)
        headers = signature_headers("", message_id, seconds, body)
        if secret:
            headers["authorization"] = f"Basic {base64.b64encode(f'{secret}:x'.encode()).decode()}"
        return headers

    async def _note_success(self) -> None:
        if not self._is_well:
            self._is_well = await self._note({}) is not None

    async def _note_failure(self, outcome: CallOutcome, batch: ReaderBatch) -> None:
        self._is_well = False
        said = plain(outcome.error, MOST_CHARACTERS)
        noted: dict[str, Value] = {"code": outcome.code, "error": said, "program": self._program}
        noted |= {"batch": batch.settled(), "ended": outcome.is_end, "url": self._subscription["url"]}
        answer = await self._note(noted)
        follows = "it is parked" if answer is not None and answer["parked"] else "it is called again"
        name = self._subscription["name"]
        extra = {"action": "callback_failed", "subscription": name, "code": outcome.code}
        log.warning("a call of the subscriber of %s failed, %s: %s", name, follows, outcome.error, extra=extra)

    async def _note(self, outcome: dict[str, Value]) -> FailedCallAnswer | None:
        """Tell the back; a back that is away hears of the next call."""
        try:
            return await self._back.note(self._reader, outcome)
        except CallError as error:
            extra = {"action": "callback_not_noted", "subscription": self._subscription["name"], "code": error.code}
            log.warning("the outcome of a call is not noted: %s", error, extra=extra)
            return None
