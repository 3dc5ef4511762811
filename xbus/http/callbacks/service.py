"""Follows the subscriptions of the bus, and serves each: posts a batch once, and settles it with the next call.

A subscription has as many programs as it has ranges, up to a bound.
"""

import asyncio
import base64
import contextlib
import hmac
import json
import logging
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from enum import Enum, auto
from typing import Any, TypeAlias

from xbus.clock import Clock
from xbus.config import HttpSettings
from xbus.errors import CallError, Refused
from xbus.headers import HeaderValue
from xbus.http.batches import plain
from xbus.http.callbacks.client import CallbackClient, CallOutcome
from xbus.http.dialects.cloudevents import BATCHED, NAMES
from xbus.http.figures import Gauge, RoutemasterCounters, gauges
from xbus.http.front import SIGNS
from xbus.http.targets import AllowedAddresses
from xbus.reader.batch import ReaderBatch, ReadEvent, ReadItem
from xbus.recipient.refusal import Refusal
from xbus.recipient.ways import MAX_MESSAGE_BYTES
from xbus.rpc.client import Client, open_client
from xbus.rpc.codec import Value
from xbus.rpc.messages import (
    BatchAnswer,
    ClaimedBatchMap,
    FailedCallAnswer,
    MeasuredSubscriptions,
    RangesAnswer,
    SubscriptionHealthMap,
    SubscriptionMap,
    SubscriptionsAnswer,
)
from xbus.rpc.shapes import AnswerReader
from xbus.texts import MOST_CHARACTERS
from xbus.texts import plain as plain_text

PREFIX = "whsec_"


def signature_headers(secret: str, message_id: str, seconds: int, body: bytes) -> dict[str, str]:
    """Make the headers of a call.

    Args:
        secret: a key after ``whsec_``, in Base64; without one the call has no signature.
        message_id: of the batch.
        seconds: the moment of the call, in seconds since 1970.
        body: of the call.
    """
    headers = {"webhook-id": message_id, "webhook-timestamp": str(seconds)}
    if secret.startswith(PREFIX):
        signed = b".".join([message_id.encode(), str(seconds).encode(), body])
        key = base64.b64decode(secret.removeprefix(PREFIX))
        digest = base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
        headers["webhook-signature"] = f"v1,{digest}"
    return headers


_ATTRIBUTE = re.compile(r"[a-z0-9]{1,64}")
_OF_HEADERS = {header: attribute for attribute, header in NAMES.items()}


def json_body(batch: ReaderBatch) -> bytes:
    """Write a batch as ``{"events": [...]}``: each event with its items."""
    return _dumped({"events": [*map(_event, batch.events)]})


def _event(event: ReadEvent) -> dict[str, object]:
    return {
        "id": event.id,
        "type": event.type_name,
        "envelope_id": event.envelope_id,
        "position": event.position,
        "time": event.sealed_at.isoformat(),
        "emitter": event.emitter,
        "key": event.key,
        "partition_key": event.partition_key,
        "headers": plain(event.headers),
        "first_index": event.first_index,
        "items": [_plain_of(item, _value(item)) for item in event],
    }


def cloudevents_body(batch: ReaderBatch) -> bytes:
    """Write each item as an event of CloudEvents, all of them as a batch."""
    return _dumped([_cloud_event(event, item) for event in batch.events for item in event])


def _cloud_event(event: ReadEvent, item: ReadItem) -> dict[str, object]:
    found = dict(_attributes(event.headers))
    # One that came as an event of CloudEvents goes on under its own id: it has one item.
    if event.size != 1 or item.index != 0 or "id" not in found or "source" not in found:
        found |= {"id": f"{event.id}/{item.index}", "source": f"/xbus/{event.emitter}".replace(" ", "%20")}
    found |= {"specversion": "1.0", "type": event.type_name}
    found.setdefault("time", event.sealed_at.isoformat())
    if event.partition_key is not None:
        found["partitionkey"] = event.partition_key
    value = _value(item)
    if isinstance(value, bytes):
        return found | {"data_base64": base64.b64encode(value).decode()}
    return found | {"data": _plain_of(item, value)}


def _attributes(headers: Mapping[str, HeaderValue]) -> Iterator[tuple[str, object]]:
    """Give headers as the attributes as which they came, see ``xbus.http.dialects.cloudevents``."""
    for header, value in headers.items():
        name = _OF_HEADERS.get(header, header.removeprefix("ce_"))
        if _ATTRIBUTE.fullmatch(name) and (header in _OF_HEADERS or header != name or name.startswith("trace")):
            yield name, plain(value)


def routemaster_body(batch: ReaderBatch) -> bytes:
    """Write each item as an event of its topic. Items that did not come by Routemaster's dialect are ``noop``."""
    return _dumped([_topic_event(event, item) for event in batch.events for item in event])


def _topic_event(event: ReadEvent, item: ReadItem) -> dict[str, object]:
    value = _value(item)
    fields: Mapping[Any, object] = value if isinstance(value, Mapping) else {}
    sealed = int(event.sealed_at.timestamp() * 1000)
    told = {
        "topic": event.type_name,
        "type": str(fields.get("type", "noop")),
        "url": str(fields.get("url", "")),
        "t": _plain_of(item, fields.get("timestamp", sealed)),
    }
    data = fields.get("data")
    return told if data is None else told | {"data": _plain_of(item, data)}


def _value(item: ReadItem) -> object:
    """Give the value of an item; its bytes where they are no msgpack."""
    try:
        value: object = item.value
    except Refusal:
        return item.data
    return value


def _plain_of(item: ReadItem, value: object) -> object:
    """Give a value of an item as JSON, or the whole item in Base64 if it is nested too deep."""
    try:
        return plain(value)
    except RecursionError:
        return plain(item.data)


def _dumped(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


FORMATS: Mapping[str, tuple[str, Callable[[ReaderBatch], bytes]]] = {
    "json": ("application/json", json_body),
    "cloudevents": (BATCHED, cloudevents_body),
    "routemaster": ("application/json", routemaster_body),
}
"""The media type of each format, and how its bodies are written."""


ANSWER_SECONDS = 10.0
"""Seconds to wait for an answer, beside those for which a call may wait at the back."""

WAIT_SECONDS = 20.0
"""Seconds that a call waits for a batch. More make fewer calls of idle subscriptions."""

MOST_BATCH_BYTES = 512 * 1024
"""Bytes of items at which a batch ends. A gateway keeps a batch of each subscriber that does not answer."""

_RANGES = AnswerReader("xbus.renew_ranges", RangesAnswer)
_LIST = AnswerReader("xbus.list_subscriptions", SubscriptionsAnswer)
_MEASURED = AnswerReader("xbus.measure_subscriptions", MeasuredSubscriptions)
_BATCH = AnswerReader("xbus.read_batch", BatchAnswer)
_NOTED = AnswerReader("xbus.note_callback", FailedCallAnswer)


class GatewayBack:
    """Calls the back by the token of a gateway.

    Each call raises ``CallError``: ``Refused`` where the back refuses it, ``Failed`` where it does not answer.

    Args:
        client: the connection to the back.
        token: an API token of a role whose service is of kind gateway.
    """

    def __init__(self, client: Client, token: str) -> None:
        self._client = client
        self._token = token

    async def subscriptions(self, known: int, wait: float) -> SubscriptionsAnswer:
        """List the subscriptions that are to be served, once something may have changed or the time is over.

        Args:
            known: the ``changes`` of the answer before; -1 for none.
            wait: seconds to wait.
        """
        return _LIST.read(await self._call("xbus.list_subscriptions", known, wait, wait=wait))

    async def measure(self) -> list[SubscriptionHealthMap]:
        """Ask how all subscriptions are; what they were made to do without is told to one gateway only."""
        return _MEASURED.read(await self._call("xbus.measure_subscriptions", True))["subscriptions"]

    async def read(self, program: str, reader: str, done: list[Value] | None) -> BatchAnswer:
        """Settle a batch, and wait for the next one.

        Args:
            program: the UUID of the program that reads.
            reader: the key of the subscription's reader.
            done: of the former batch, see ``ReaderBatch.settled``.
        """
        options: dict[str, Value] = {"reader": reader, "wait": WAIT_SECONDS, "max_bytes": MOST_BATCH_BYTES}
        if done is not None:
            options["done"] = done
        return _BATCH.read(await self._call("xbus.read_batch", program, options, wait=WAIT_SECONDS))

    async def renew(self, program: str, reader: str) -> Sequence[Sequence[int]]:
        """Give a sign of life, which keeps the ranges; returns the number and the counter of each."""
        return _RANGES.read(await self._call("xbus.renew_ranges", program, reader))["ranges"]

    async def settle(self, program: str, reader: str, done: list[Value]) -> None:
        """Settle a batch, and ask for none.

        Args:
            done: as of ``read``.
        """
        await self._call("xbus.checkpoint", program, *done, reader)

    async def leave(self, program: str, reader: str) -> None:
        """Give the ranges up."""
        await self._call("xbus.leave_ranges", program, reader)

    async def note(self, reader: str, outcome: dict[str, Value]) -> FailedCallAnswer:
        """Tell how a call of the subscriber went, without a code for a success. The back decides what follows."""
        return _NOTED.read(await self._call("xbus.note_callback", reader, outcome))

    async def _call(self, verb: str, *arguments: object, wait: float = 0.0) -> Value:
        return await self._client.call(verb, self._token, *arguments, timeout=wait + ANSWER_SECONDS)


log = logging.getLogger(__name__)

FRESH_SECONDS = 5.0
"""Seconds for which a look is good enough. Less shows newer figures, and costs looks."""

PAUSE_SHARE = 100
"""The pause after a look, as a multiple of its time."""


Measure: TypeAlias = Callable[[], Awaitable[Sequence[SubscriptionHealthMap]]]


class SubscriptionLook:
    """The newest gauges of subscriptions; there are none while this gateway calls nobody.

    Args:
        counters: hear of what subscriptions were made to do without.
        clock: tells how old a look is.
    """

    def __init__(self, counters: RoutemasterCounters, clock: Clock) -> None:
        self._measure: Measure | None = None
        self._counters = counters
        self._clock = clock
        self._found: Sequence[Gauge] = ()
        self._next_at = 0.0

    @contextmanager
    def measuring(self, measure: Measure) -> Iterator[None]:
        """Look for as long as the block lasts.

        Args:
            measure: asks the back how subscriptions are.
        """
        self._measure = measure
        try:
            yield
        finally:
            self._measure, self._found = None, ()

    async def gauges(self) -> Sequence[Gauge]:
        """Give the gauges of this moment, or of a short while ago; none while the back does not answer."""
        began = self._clock.monotonic()
        if self._measure is None or began < self._next_at:
            return self._found
        self._next_at = began + FRESH_SECONDS
        try:
            found = await self._measure()
        except CallError as error:
            self._found = ()
            extra = {"action": "subscriptions_not_measured", "code": error.code}
            log.info("subscriptions not measured: %s", error, extra=extra)
            return self._found
        for each in found:
            self._counters.dropped(each["name"], each["dropped"])
        self._found = [*gauges(found)]
        ended = self._clock.monotonic()
        self._next_at = ended + max(FRESH_SECONDS, PAUSE_SHARE * (ended - began))
        return self._found


BACK_SECONDS = 1.0
"""Seconds until the back is asked again that does not answer, or did not note a failure."""

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
        self._done: list[Value] | None = None
        """The batch that the subscriber has taken, until the back knows it."""

    async def run(self) -> None:
        """Call the subscriber with each batch until it wants no more."""
        while True:
            try:
                answer = await self._back.read(self._program, self._reader, self._done)
                self._done = None
                if answer["batch"] is None:
                    continue
                began, batch = self._clock.monotonic(), ReaderBatch(answer["batch"])
                delivery = await self._deliver_while_owned(answer["batch"], batch, answer["lease"])
                if delivery is _Delivery.ENDED:
                    return
                if len(batch) < FEW_EVENTS:
                    await asyncio.sleep(max(0.0, began + GATHER_SECONDS - self._clock.monotonic()))
            except CallError as error:
                if isinstance(error, Refused):
                    # The range is another gateway's by now, or the reader is new: what is read next tells.
                    self._done = None
                extra = {"action": "callback_batch_not_read", "subscription": self._subscription["name"]}
                log.info("no batch: %s", error, extra=extra | {"code": error.code})
                await asyncio.sleep(BACK_SECONDS)

    async def leave(self) -> None:
        """Settle what the subscriber has taken, and give the ranges up, so that another gateway has them at once."""
        with contextlib.suppress(CallError):
            if self._done is not None:
                # A range that was lost is left all the same; a back that is away is asked once.
                with contextlib.suppress(Refused):
                    await self._back.settle(self._program, self._reader, self._done)
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
            self._done = None
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
            self._done = batch.settled()
            return _Delivery.TAKEN
        outcome = await self._counted_call(told, batch)
        if outcome.is_taken:
            self._done = batch.settled()
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
            self._is_well = await self._note({"settings": self._subscription["settings"]}) is not None

    async def _note_failure(self, outcome: CallOutcome, batch: ReaderBatch) -> None:
        self._is_well = False
        said = plain_text(outcome.error, MOST_CHARACTERS)
        noted: dict[str, Value] = {"code": outcome.code, "error": said, "program": self._program}
        noted |= {"batch": batch.settled(), "ended": outcome.is_end, "settings": self._subscription["settings"]}
        answer = await self._note(noted)
        follows = "it is parked" if answer is not None and answer["parked"] else "it is called again"
        if outcome.is_end:
            follows = "the subscription ends"
        name = self._subscription["name"]
        extra = {"action": "callback_failed", "subscription": name, "code": outcome.code}
        log.warning("a call of the subscriber of %s failed, %s: %s", name, follows, outcome.error, extra=extra)
        if answer is None:
            # The back knows of no failure, so it hands the batch out again at once.
            await asyncio.sleep(BACK_SECONDS)

    async def _note(self, outcome: dict[str, Value]) -> FailedCallAnswer | None:
        """Tell the back; a back that is away hears of the next call."""
        try:
            return await self._back.note(self._reader, outcome)
        except CallError as error:
            extra = {"action": "callback_not_noted", "subscription": self._subscription["name"], "code": error.code}
            log.warning("the outcome of a call is not noted: %s", error, extra=extra)
            return None


LOOK_SECONDS = 2.0
"""Seconds between looks at the subscriptions while none changes: the back tells of changes at once. Less begins those
anew sooner that ended by a fault, and asks the back more often."""

MOST_PROGRAMS = 8
"""The most calls of one subscription that are under way at once. More let one subscriber take much of a gateway."""


class CallbackService:
    """Serves all subscriptions.

    Args:
        back: tells them, and gives their batches.
        client: makes the calls.
        clock: tells the time.
        counters: count calls.
    """

    def __init__(self, back: GatewayBack, client: CallbackClient, clock: Clock, counters: RoutemasterCounters) -> None:
        self._back = back
        self._client = client
        self._clock = clock
        self._counters = counters
        self._served: dict[str, tuple[SubscriptionMap, asyncio.Task[None]]] = {}

    async def run(self) -> None:
        """For ever: serve the subscriptions that there are; one that changes begins anew."""
        known = -1
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    try:
                        found = await self._back.subscriptions(known, LOOK_SECONDS)
                    except CallError as error:
                        extra = {"action": "subscriptions_not_read", "code": error.code}
                        log.warning("subscriptions not read: %s", error, extra=extra)
                        await asyncio.sleep(LOOK_SECONDS)
                        continue
                    self._follow(found["subscriptions"], tasks)
                    known = found["changes"]
        finally:
            self._served.clear()

    def _follow(self, found: Sequence[SubscriptionMap], tasks: asyncio.TaskGroup) -> None:
        wanted = {each["reader"]: each for each in found}
        for reader, (subscription, task) in [*self._served.items()]:
            # One that has ended by itself begins anew, if it is still wanted.
            if task.done() or wanted.get(reader) != subscription:
                del self._served[reader]
                task.cancel()
        for reader, subscription in wanted.items():
            if reader not in self._served:
                task = tasks.create_task(self._serve(subscription), name=f"subscription {subscription['name']}")
                self._served[reader] = (subscription, task)

    async def _serve(self, subscription: SubscriptionMap) -> None:
        programs = [
            SubscriptionCalls(subscription, self._back, self._client, self._clock, self._counters)
            for _ in range(min(subscription["ranges"], MOST_PROGRAMS))
        ]
        try:
            async with asyncio.TaskGroup() as tasks:
                for program in programs:
                    tasks.create_task(program.run())
        except Exception:
            # The calls of all other subscriptions go on; the next look begins these anew.
            extra = {"action": "subscription_fault", "subscription": subscription["name"]}
            log.exception("the calls of a subscription ended by a fault", extra=extra)
        finally:
            await asyncio.gather(*(program.leave() for program in programs))


@asynccontextmanager
async def call_subscribers(
    settings: HttpSettings, address: str, clock: Clock, counters: RoutemasterCounters, look: SubscriptionLook
) -> AsyncIterator[None]:
    """Call subscribers for as long as the block lasts, if the configuration says so.

    Args:
        settings: the section of the configuration.
        address: of the broker's back.
        clock: tells the time.
        counters: count calls.
        look: measures subscriptions for as long.
    """
    if not settings.callbacks:
        yield
        return
    with ExitStack() as exit_stack:
        connection = open_client(exit_stack, address, clock, SIGNS, MAX_MESSAGE_BYTES)
        async with (
            CallbackClient(AllowedAddresses(settings.callback_hosts), verifies=settings.callback_verify) as client,
            asyncio.TaskGroup() as tasks,
        ):
            back = GatewayBack(connection, settings.callback_token)
            service = CallbackService(back, client, clock, counters)
            serving = tasks.create_task(service.run(), name="subscriptions")
            counters.began("worker")
            with look.measuring(back.measure):
                yield
            counters.ended("worker")
            serving.cancel()
