"""Serves one subscription: reads a batch, posts it until it is taken, and settles it with the call for the next one."""

import asyncio
import base64
import contextlib
import logging
import random
import uuid

from xbus.backoff import Backoff
from xbus.clock import Clock
from xbus.errors import CallError, Refused
from xbus.http.callbacks.back import GatewayBack
from xbus.http.callbacks.client import CallbackClient, CallOutcome
from xbus.http.callbacks.formats import FORMATS
from xbus.http.callbacks.signing import batch_id, signature_headers
from xbus.reader.claimed import ReaderBatch
from xbus.rpc.codec import Value
from xbus.rpc.messages import ClaimedBatchMap
from xbus.rpc.messages.subscriptions import SubscriptionMap

log = logging.getLogger(__name__)

FIRST_DELAY_SECONDS = 1.0
LONGEST_DELAY_SECONDS = 60.0
"""Seconds between calls that fail: the delay doubles up to here. More spare a dead subscriber, and find it later."""

JITTER = 0.2
"""The part by which a delay varies, so that the calls of many subscriptions of one subscriber spread."""

BACK_SECONDS = 1.0
"""Seconds until the back is asked again that does not answer."""

RENEWALS_PER_LEASE = 3


class SubscriptionCalls:
    """A program of a subscription's reader. It has one batch at a time.

    Args:
        subscription: as the back told it.
        back: gives batches.
        client: makes the calls.
        clock: tells the time.
    """

    def __init__(self, subscription: SubscriptionMap, back: GatewayBack, client: CallbackClient, clock: Clock) -> None:
        self._subscription = subscription
        self._reader = subscription["reader"]
        self._back = back
        self._client = client
        self._clock = clock
        self._program = str(uuid.uuid4())
        self._backoff = Backoff(FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS)
        self._is_well = False
        """Whether the back knows that the last call went well."""

    async def run(self) -> None:
        """Call the subscriber with each batch until it wants no more."""
        done: list[Value] | None = None
        while True:
            try:
                answer = await self._back.read(self._program, self._reader, done)
                done = None
                if answer["batch"] is None:
                    continue
                batch = ReaderBatch(answer["batch"])
                async with asyncio.TaskGroup() as tasks:
                    renewing = tasks.create_task(self._renew(answer["lease"] / RENEWALS_PER_LEASE))
                    is_taken = await self._deliver(answer["batch"], batch)
                    renewing.cancel()
                if not is_taken:
                    return
                done = batch.settled()
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

    async def _renew(self, seconds: float) -> None:
        """Keep the range while the subscriber is called."""
        while True:
            await asyncio.sleep(seconds)
            try:
                await self._back.renew(self._program, self._reader)
            except CallError as error:
                extra = {"action": "callback_lease_not_renewed", "subscription": self._subscription["name"]}
                log.info("lease not renewed: %s", error, extra=extra | {"code": error.code})

    async def _deliver(self, told: ClaimedBatchMap, batch: ReaderBatch) -> bool:
        """Call until the batch is taken; false where the subscriber wants no more."""
        if not told["events"]:
            return True
        media_type, write = FORMATS[self._subscription["format"]]
        body = await asyncio.to_thread(write, batch)
        message_id = batch_id(self._reader, told["range"], told["from"], told["to"])
        while True:
            outcome = await self._call(media_type, message_id, body)
            if outcome.is_taken:
                await self._note_success()
                return True
            delay = self._backoff.next() * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311  No secret.
            await self._note_failure(outcome, delay)
            if outcome.is_end:
                return False
            await asyncio.sleep(delay)

    async def _call(self, media_type: str, message_id: str, body: bytes) -> CallOutcome:
        subscription = self._subscription
        seconds = int(self._clock.now().timestamp())
        headers = {
            "content-type": media_type,
            "user-agent": "xbus",
            **signature_headers(subscription["secret"], message_id, seconds, body),
        }
        if subscription["format"] == "routemaster" and subscription["secret"]:
            word = base64.b64encode(f"{subscription['secret']}:x".encode()).decode()
            headers["authorization"] = f"Basic {word}"
        return await self._client.post(subscription["url"], headers, body, verify=subscription["verify"])

    async def _note_success(self) -> None:
        self._backoff.reset()
        if not self._is_well:
            await self._note({})
            self._is_well = True

    async def _note_failure(self, outcome: CallOutcome, delay: float) -> None:
        self._is_well = False
        name = self._subscription["name"]
        extra = {"action": "callback_failed", "subscription": name, "code": outcome.code}
        log.warning("a call of the subscriber of %s failed: %s", name, outcome.error, extra=extra)
        noted: dict[str, Value] = {"code": outcome.code, "error": outcome.error, "retry_seconds": delay}
        await self._note(noted | {"ended": outcome.is_end})

    async def _note(self, outcome: dict[str, Value]) -> None:
        """Tell the back; a back that is away hears of the next call."""
        try:
            await self._back.note(self._reader, outcome)
        except CallError as error:
            extra = {"action": "callback_not_noted", "subscription": self._subscription["name"], "code": error.code}
            log.warning("the outcome of a call is not noted: %s", error, extra=extra)
