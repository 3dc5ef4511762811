"""Waits until nothing is to come any more by itself on a bus in memory."""

import asyncio
from collections.abc import Sequence

from xbus.broker.journal.operations.coming import (
    ComingDelivery,
    ComingRun,
    list_coming,
    list_coming_runs,
    newest_run,
    quiet_seconds,
)
from xbus.errors import TimedOut
from xbus.testing.machine import Machine

PATIENCE_SECONDS = 3600.0
"""Seconds of virtual time that ``run`` waits at the most. More lets longer retries end, and takes longer to fail."""

FIRST_LOOK_SECONDS = 0.01
LOOK_GROWTH = 1.2
"""``run`` looks first after so long, and then each time so much later: an hour takes fifty looks."""


class Settling:
    """Lets time pass until everything is delivered or parked, and bots have run.

    Args:
        machine: of the bus.
    """

    def __init__(self, machine: Machine) -> None:
        self._programs = machine.programs
        self._database = machine.database
        self._clock = machine.clock

    async def settle(self, seconds: float) -> None:
        """Wait, for so many seconds of virtual time at the most.

        Raises:
            TimedOut: something is still to come (``not_delivered``).
        """
        began, pause = self._clock.monotonic(), FIRST_LOOK_SECONDS
        while coming := self._coming() or await self._coming_to_bots():
            missing = sorted({each.waits_for or "" for each in coming} & self._programs.missing_services())
            if missing or self._clock.monotonic() - began > seconds:
                raise _not_delivered(coming, missing)
            await asyncio.sleep(pause)
            pause *= LOOK_GROWTH

    def _coming(self) -> Sequence[ComingDelivery | ComingRun]:
        stopped, services = self._programs.stopped, self._programs.stopped_services()
        busy = [ComingDelivery(login, 0, "its recipient has an envelope open") for login in self._programs.busy()]
        listed = self._database.read(list_coming)
        delivered = [each for each in listed if each.role not in stopped and each.waits_for not in services]
        return [*busy, *delivered, *self._database.read(list_coming_runs)]

    async def _coming_to_bots(self) -> Sequence[ComingDelivery | ComingRun]:
        """Wait for batches of bots that read, until no more come."""
        if (seconds := self._database.read(quiet_seconds)) is None:
            return []
        while True:
            newest = self._database.read(newest_run)
            await asyncio.sleep(seconds)
            coming = self._coming()
            if coming or newest == self._database.read(newest_run):
                return coming


def _not_delivered(coming: Sequence[ComingDelivery | ComingRun], missing: Sequence[str]) -> TimedOut:
    told = "; ".join(each.told for each in coming[:5])
    if missing:
        step = f"serve a recipient for {', '.join(missing)}: bus.serve(...)"
    else:
        step = "see the log for the failures, or stop the recipient with bus.stop(...)"
    return TimedOut(f"something is still to come ({told})", step, code="not_delivered")
