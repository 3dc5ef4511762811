"""Takes samples of the bus, however many look, and tells the open pages of each.

A sample is a value, of which pages and drawings are made.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from xbus.broker.journal.leadership import KnownBroker, read_brokers
from xbus.broker.journal.log.catalog import read_version
from xbus.broker.journal.samples.attention import Attention, read_attention
from xbus.broker.journal.samples.outline import BusOutline, ReaderFigures, read_bus, read_reader_figures
from xbus.broker.journal.samples.sample import STEP, Count, Delivered, Sample, join, keep, most_of, read_samples
from xbus.broker.journal.samples.taking import LagReader, RoleFigures, TakenSample, take
from xbus.clock import span
from xbus.errors import Failed, XbusError
from xbus.monitor.bus import BusAccess
from xbus.rpc.messages import HealthProblem, HealthReport


@dataclass(frozen=True, slots=True)
class BrokerHealth:
    """The health of the broker's processes.

    Args:
        problems: as they report them.
        silent: the sides of the broker that do not answer, ``front`` or ``back``.
    """

    problems: Sequence[HealthProblem] = ()
    silent: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class BusNow:
    """The bus at one moment.

    Args:
        at: the moment.
        outline: who sends what, and where it goes.
        minute: what came in the last minute, as far as a monitor ran.
        roles: all in use, by login.
        attention: what waits for a person.
        readers: all in use, by name.
        brokers: of the journal, where one stands by for another; the leader first.
    """

    at: datetime
    outline: BusOutline
    minute: Sample | None
    roles: Sequence[RoleFigures]
    attention: Attention
    health: BrokerHealth
    readers: Sequence[ReaderFigures] = ()
    brokers: Sequence[KnownBroker] = ()

    @property
    def event_rates(self) -> Mapping[tuple[int, int], float]:
        """The events each second by the ids of emitter and event type."""
        return {pair: rate for pair, (rate, _) in self.rates.items()}

    @property
    def rates(self) -> Mapping[tuple[int, int], tuple[float, float]]:
        """The events and items each second by the ids of emitter and event type."""
        if self.minute is None or not self.minute.observed:
            return {}
        seconds = self.minute.observed
        return {pair: _each_second(count, seconds) for pair, count in self.minute.traffic.items()}

    @property
    def delivered_rates(self) -> Mapping[int, tuple[float, float]]:
        """The envelopes and items that a role commits each second, by role id."""
        if self.minute is None or not self.minute.observed:
            return {}
        seconds = self.minute.observed
        return {role_id: _each_second(each, seconds) for role_id, each in self.minute.delivered.items()}


def _each_second(count: Count | Delivered, seconds: float) -> tuple[float, float]:
    number, items = count
    return number / seconds, items / seconds


NONE = Delivered(0, 0)


class DeliveryCounts:
    """The counts of the last look."""

    def __init__(self) -> None:
        self._last: Mapping[int, Delivered] | None = None
        self._at = 0.0

    def since_last(self, counts: Mapping[int, Delivered] | None, at: float, observed: float) -> Mapping[int, Delivered]:
        """Give the deliveries within the seconds of a sample, by role id, without roles that committed nothing.

        Beside another monitor a sample is shorter than the time since the last look. So it gets its share.

        Args:
            counts: what the back tells; None where it tells nothing.
            at: the moment of a clock that only goes on.
            observed: the seconds of the sample.
        """
        last, seconds = self._last, at - self._at
        self._last, self._at = counts, at
        if counts is None or last is None or seconds <= 0:
            return {}
        share = min(1.0, observed / seconds)
        found = {role_id: _part(_grown(last.get(role_id, NONE), count), share) for role_id, count in counts.items()}
        return most_of({role_id: each for role_id, each in found.items() if any(each)}, lambda each: each.envelopes)


def _grown(before: Delivered, now: Delivered) -> Delivered:
    """Give the growth of counts; where one fell, the back began anew, and counts from 0."""
    if now.envelopes < before.envelopes:
        return now
    return Delivered(now.envelopes - before.envelopes, now.items - before.items)


def _part(number: Delivered, share: float) -> Delivered:
    return Delivered(round(number.envelopes * share), round(number.items * share))


MOST_STREAMS = 200
"""Streams at once. Each takes some memory, and a look at its session each few seconds."""

MOST_OF_A_PERSON = 12
"""Streams of one person at once, so that nobody takes the place of all others."""

HEARTBEAT_SECONDS = 15.0
"""Seconds without a sample after which a stream shows that it is alive. More notices later that a viewer is gone."""

NEWS = "event: sample\ndata:\n\n"
ALIVE = ": alive\n\n"
END = "event: end\ndata:\n\n"


class Audience:
    """All who look just now; it belongs to one event loop.

    Args:
        heartbeat_seconds: between two signs of life.
        most: streams at once.
        most_of_a_person: those of one person.
    """

    def __init__(
        self,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        most: int = MOST_STREAMS,
        most_of_a_person: int = MOST_OF_A_PERSON,
    ) -> None:
        self._heartbeat_seconds = heartbeat_seconds
        self._most = most
        self._most_of_a_person = most_of_a_person
        self._streams: Counter[str] = Counter()
        self._news = asyncio.Event()
        self._is_over = False

    @property
    def streams(self) -> int:
        """The number of open streams."""
        return self._streams.total()

    def tell(self) -> None:
        """Tell all who look that there is something new."""
        self._news.set()
        self._news = asyncio.Event()

    def end(self) -> None:
        """End all streams: the monitor stops."""
        self._is_over = True
        self.tell()

    def check_room(self, person: str) -> None:
        """Let a person pass for whom one more stream may be opened.

        Raises:
            Failed: too many are open (``slow_down``).
        """
        if self._streams.total() >= self._most or self._streams[person] >= self._most_of_a_person:
            raise Failed("too many pages are open", "close some of them", code="slow_down")

    async def stream(self, person: str, is_in_force: Callable[[], Awaitable[bool]]) -> AsyncIterator[str]:
        """Give the events of one stream.

        Args:
            person: the name of the person who looks.
            is_in_force: tells whether the session of the person goes on; the stream ends with it.
        """
        with self._seat(person):
            yield NEWS
            while not self._is_over:
                has_news = await self._wait()
                if self._is_over or not await is_in_force():
                    break
                yield NEWS if has_news else ALIVE
            yield END

    async def _wait(self) -> bool:
        """Wait for something new; False after the time for a sign of life."""
        try:
            async with asyncio.timeout(self._heartbeat_seconds):
                await self._news.wait()
        except TimeoutError:
            return False
        return True

    @contextmanager
    def _seat(self, person: str) -> Iterator[None]:
        self._streams[person] += 1
        try:
            yield
        finally:
            self._streams[person] -= 1
            if not self._streams[person]:
                del self._streams[person]


log = logging.getLogger(__name__)

SAMPLE_SECONDS = float(STEP)
"""Seconds between two samples. Fewer show changes sooner, and ask the journal more often."""

PAUSE_SHARE = 20
"""The pause after a look as a multiple of its time. More takes less of the database, and shows changes later."""

LONGEST_PAUSE_SECONDS = 30.0
"""The longest pause. After :data:`~xbus.broker.journal.samples.sample.GAP` counting would begin anew."""

MINUTE = timedelta(seconds=60)


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
            brokers = await asyncio.to_thread(self._bus.read, read_brokers)
            self._took = self._bus.clock.monotonic() - began
        finally:
            reports = await health
        self.newest = BusNow(now, outline, minute, taken.roles, attention, _health(reports), readers, brokers)

    async def _delivered(self, taken: TakenSample, at: float) -> Mapping[int, Delivered]:
        """Ask the back what it delivered in the time of a sample."""
        role_ids = [role.role_id for role in taken.roles]
        counts = await asyncio.to_thread(self._bus.broker.delivered, role_ids)
        return self._deliveries.since_last(counts, at, taken.sample.observed)

    def _read(self, now: datetime) -> tuple[TakenSample, BusOutline, Attention, Sequence[ReaderFigures]]:
        open_before = now - span(60 * self._bus.config.health.open_minutes)
        with self._bus.reading() as connection:
            taken = take(connection, self._lags, now)
            if self._outline is None or self._outline.version != read_version(connection):
                self._outline = read_bus(connection)
            attention, readers = read_attention(connection, open_before), read_reader_figures(connection)
            return taken, self._outline, attention, readers

    def _keep(self, sample: Sample, now: datetime) -> Sample | None:
        """Keep a sample, and give what the samples of the last minute came to."""
        with self._bus.writing_itself() as connection:
            keep(connection, sample)
        found = self._bus.read(lambda connection: read_samples(connection, STEP, now - MINUTE))
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
