"""Waits until nothing is to come any more by itself on a bus in memory."""

import asyncio
from collections.abc import Sequence

from xbus.broker.journal.operations import coming
from xbus.errors import TimedOut
from xbus.testing.machine import Machine

PATIENCE_SECONDS = 3600.0
"""Seconds of virtual time that ``run`` waits at the most. More lets longer retries end, and takes longer to fail."""

FIRST_LOOK_SECONDS = 0.01
LOOK_GROWTH = 1.2
"""``run`` looks first after so long, and then each time so much later: an hour takes fifty looks."""


async def settle(machine: Machine, seconds: float) -> None:
    """Let time pass until everything is delivered or parked, and bots have run.

    Args:
        machine: of the bus.
        seconds: of virtual time, at the most.

    Raises:
        TimedOut: something is still to come (``not_delivered``).
    """
    began, pause = machine.clock.monotonic(), FIRST_LOOK_SECONDS
    while found := _coming(machine) or await _coming_to_bots(machine):
        missing = sorted({each.waits_for or "" for each in found} & machine.programs.missing_services())
        if missing or machine.clock.monotonic() - began > seconds:
            raise _not_delivered(found, missing)
        await asyncio.sleep(pause)
        pause *= LOOK_GROWTH


def _coming(machine: Machine) -> Sequence[coming.ComingDelivery | coming.ComingRun]:
    programs, services = machine.programs, machine.programs.stopped_services()
    busy = [coming.ComingDelivery(login, 0, "its recipient has an envelope open") for login in programs.busy()]
    listed = machine.database.read(coming.list_coming)
    delivered = [each for each in listed if each.role not in programs.stopped and each.waits_for not in services]
    return [*busy, *delivered, *machine.database.read(coming.list_coming_runs)]


async def _coming_to_bots(machine: Machine) -> Sequence[coming.ComingDelivery | coming.ComingRun]:
    """Wait for batches of bots that read, until no more come."""
    database = machine.database
    if (seconds := database.read(coming.quiet_seconds)) is None:
        return []
    while True:
        newest = database.read(coming.newest_run)
        await asyncio.sleep(seconds)
        found = _coming(machine)
        if found or newest == database.read(coming.newest_run):
            return found


def _not_delivered(found: Sequence[coming.ComingDelivery | coming.ComingRun], missing: Sequence[str]) -> TimedOut:
    told = "; ".join(each.told for each in found[:5])
    if missing:
        step = f"serve a recipient for {', '.join(missing)}: bus.serve(...)"
    else:
        step = "see the log for the failures, or stop the recipient with bus.stop(...)"
    return TimedOut(f"something is still to come ({told})", step, code="not_delivered")
