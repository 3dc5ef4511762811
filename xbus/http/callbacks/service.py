"""Follows the subscriptions of the bus: each has as many programs as it has ranges, up to a bound."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from xbus.clock import Clock
from xbus.config import HttpSettings
from xbus.errors import CallError
from xbus.http.callbacks.back import GatewayBack
from xbus.http.callbacks.calling import SubscriptionCalls
from xbus.http.callbacks.client import CallbackClient
from xbus.http.callbacks.look import SubscriptionLook
from xbus.http.figures import RoutemasterCounters
from xbus.http.front import connected
from xbus.http.targets import AllowedAddresses
from xbus.recipient.ways import MAX_MESSAGE_BYTES
from xbus.rpc.messages.subscriptions import SubscriptionMap

log = logging.getLogger(__name__)

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
    async with (
        connected(address, clock, MAX_MESSAGE_BYTES) as connection,
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
