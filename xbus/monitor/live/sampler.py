"""Takes the samples: one task of the monitor, however many look.

After each look it leaves the journal alone for many times as long as the look took, so that it never slows the broker.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from xbus.broker.journal.log.catalog import read_version
from xbus.broker.journal.samples import keeping
from xbus.broker.journal.samples.attention import Attention, read_attention
from xbus.broker.journal.samples.lags import LagReader
from xbus.broker.journal.samples.outline import BusOutline, read_bus
from xbus.broker.journal.samples.readers import ReaderFigures, read_reader_figures
from xbus.broker.journal.samples.sample import Delivered, Sample, join
from xbus.broker.journal.samples.taking import TakenSample, take
from xbus.clock import span
from xbus.errors import XbusError
from xbus.monitor.bus import BusAccess
from xbus.monitor.live.audience import Audience
from xbus.monitor.live.bus_now import BrokerHealth, BusNow
from xbus.monitor.live.delivered import DeliveryCounts
from xbus.rpc.messages import HealthProblem, HealthReport

log = logging.getLogger(__name__)

SAMPLE_SECONDS = float(keeping.STEP)
"""Seconds between two samples. Fewer show changes sooner, and ask the journal more often."""

PAUSE_SHARE = 20
"""The pause after a look as a multiple of its time. More takes less of the database, and shows changes later."""

LONGEST_PAUSE_SECONDS = 30.0
"""The longest pause. After :data:`~xbus.broker.journal.samples.keeping.GAP` counting would begin anew."""

MINUTE = timedelta(seconds=60)


class _LookedAt(NamedTuple):
    """The parts of one look at the journal."""

    taken: TakenSample
    outline: BusOutline
    attention: Attention
    readers: Sequence[ReaderFigures]


class Sampler:
    """Looks at the bus again and again.

    Args:
        bus: what is asked.
        audience: is told of each sample.
        seconds: between two samples.
    """

    def __init__(self, bus: BusAccess, audience: Audience, seconds: float = SAMPLE_SECONDS) -> None:
        self._bus = bus
        self.audience = audience
        self._seconds = seconds
        self._took = 0.0
        """Seconds of the last look at the journal."""
        self._lags = LagReader()
        self._deliveries = DeliveryCounts()
        self._outline: BusOutline | None = None
        self.newest: BusNow | None = None
        self.trouble: XbusError | None = None
        """The reason why the last look failed; None if it went well."""

    async def run(self, pause: Callable[[float], Awaitable[object]] = asyncio.sleep) -> None:
        """Look for ever; a journal that can't be read only delays it."""
        while True:
            await self._try_to_look()
            self.audience.tell()
            await pause(max(self._seconds, min(PAUSE_SHARE * self._took, LONGEST_PAUSE_SECONDS)))

    async def _try_to_look(self) -> None:
        try:
            await self.look()
            self.trouble = None
        except XbusError as error:
            self.trouble = error
            log.warning("no sample taken: %s", error, extra={"action": "sample_missed", "code": error.code})
        except Exception:
            # A fault of ours: all other pages go on.
            self.trouble = XbusError("the monitor could not look at the bus", "its log says why", code="sample_failed")
            log.exception("no sample taken", extra={"action": "sample_missed"})

    async def look(self) -> None:
        """Take a sample, keep it, and ask the broker how it is.

        Raises:
            JournalUnavailable: the database can't be reached.
        """
        health = asyncio.gather(self._ask("front"), self._ask("back"))
        try:
            now, began = self._bus.now(), self._bus.clock.monotonic()
            taken, outline, attention, readers = await asyncio.to_thread(self._read, now)
            sample = replace(taken.sample, delivered=await self._delivered(taken, began))
            minute = await asyncio.to_thread(self._keep, sample, now)
            self._took = self._bus.clock.monotonic() - began
        finally:
            reports = await health
        self.newest = BusNow(now, outline, minute, taken.roles, attention, _health(reports), readers)

    async def _delivered(self, taken: TakenSample, at: float) -> Mapping[int, Delivered]:
        """Ask the back what it delivered in the time of a sample."""
        role_ids = [role.role_id for role in taken.roles]
        counts = await asyncio.to_thread(self._bus.broker.delivered, role_ids)
        return self._deliveries.since_last(counts, at, taken.sample.observed)

    def _read(self, now: datetime) -> _LookedAt:
        open_before = now - span(60 * self._bus.config.health.open_minutes)
        with self._bus.reading() as connection:
            taken = take(connection, self._lags, now)
            if self._outline is None or self._outline.version != read_version(connection):
                self._outline = read_bus(connection)
            attention, readers = read_attention(connection, open_before), read_reader_figures(connection)
            return _LookedAt(taken, self._outline, attention, readers)

    def _keep(self, sample: Sample, now: datetime) -> Sample | None:
        """Keep a sample, and give what the samples of the last minute came to."""
        with self._bus.writing_itself() as connection:
            keeping.keep(connection, sample)
        with self._bus.reading() as connection:
            found = keeping.read_samples(connection, keeping.STEP, now - MINUTE)
        return join(found, 60, found[0].began_at) if found else None

    async def _ask(self, side: Literal["front", "back"]) -> tuple[str, HealthReport | None]:
        with suppress(XbusError):
            return side, await asyncio.to_thread(self._bus.broker.health, side)
        return side, None


def _health(reports: Iterable[tuple[str, HealthReport | None]]) -> BrokerHealth:
    """Join the reports of both sides; one process that runs both tells the same twice."""
    asked = [*reports]
    by_process = {report["name"]: report for _, report in asked if report is not None}
    problems: list[HealthProblem] = [problem for report in by_process.values() for problem in report["problems"]]
    return BrokerHealth(problems, [side for side, report in asked if report is None])
