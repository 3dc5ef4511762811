"""Watches over outputs that are being made: gives up what nobody is heard of, and breaks off what nobody wants."""

import asyncio

from xbus.broker.back.bulk.attempt import WantedOutput
from xbus.broker.back.bulk.attempts import OutputAttempts
from xbus.broker.back.bulk.outputs import BulkOutputs
from xbus.broker.back.bulk.waiting import WaitingDeliveries
from xbus.broker.back.recipients import no_output
from xbus.clock import Clock

UNWANTED_SECONDS = 3.0
"""Seconds after which an output that no delivery waits for is broken off. A redelivery may want it once more."""

FORGET_SECONDS = 600.0
"""Seconds between looks for outputs that were removed with their envelopes."""


class Leases:
    """Keeps an attempt alive while its worker gives signs of life and deliveries wait for it.

    Args:
        attempts: the attempts that count.
        waiting: the deliveries that wait for outputs.
        outputs: fails attempts, and cancels them.
        clock: measures leases.
        look_seconds: the most seconds between two looks at the leases.
    """

    def __init__(
        self,
        attempts: OutputAttempts,
        waiting: WaitingDeliveries,
        outputs: BulkOutputs,
        clock: Clock,
        look_seconds: float,
    ) -> None:
        self._attempts = attempts
        self._waiting = waiting
        self._outputs = outputs
        self._clock = clock
        self._look_seconds = look_seconds
        self._unwanted: dict[WantedOutput, float] = {}

    async def watch(self) -> None:
        """Look at all attempts in the making, for ever."""
        forget_at = self._clock.monotonic() + FORGET_SECONDS
        while True:
            await self._pause()
            now = self._clock.monotonic()
            self._fail_overdue(now)
            await self._give_up_unwanted(now)
            if now > forget_at:
                forget_at = now + FORGET_SECONDS
                await self._attempts.forget_removed()

    async def _pause(self) -> None:
        seconds = min(self._look_seconds, self._attempts.lease / 4)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.sleep(seconds)
        # While the broker itself stood still it heard nobody.
        self._attempts.extend(loop.time() - began - seconds)

    def _fail_overdue(self, now: float) -> None:
        for attempt in self._attempts.in_hand():
            if attempt.deadline < now:
                cause = f"its worker gave no sign of life for {self._attempts.lease:g} seconds"
                failure = no_output(attempt.role_id, attempt.output.event_id, "lease_over", cause)
                self._outputs.spawn(self._outputs.fail(attempt, failure), "end of a lease")

    async def _give_up_unwanted(self, now: float) -> None:
        unwanted = [output for output in self._outputs.unfinished() if not self._waiting.is_wanted(output)]
        self._unwanted = {output: self._unwanted.get(output, now) for output in unwanted}
        for output in [output for output, since in self._unwanted.items() if now - since >= UNWANTED_SECONDS]:
            # Ending another one may have taken a while: it may be wanted, ready or over by now.
            if not self._waiting.is_wanted(output):
                await self._outputs.give_up(output)
