"""Counts requests, and gives the figures of the gateway: to Prometheus, to statsd, and under Routemaster's names.

No other module knows the library of Prometheus. Statsd gets the tags of DogStatsD, which Datadog's agent and others
read.
"""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from http import HTTPStatus
from typing import NamedTuple, TypeAlias

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from xbus.config import host_and_port
from xbus.extras import installed_version
from xbus.rpc.messages import SubscriptionHealthMap

PREFIX = "routemaster"
QUEUE = "main"
"""The one queue of jobs: a batch that waits for its call."""

Tags: TypeAlias = tuple[tuple[str, str], ...]


class Gauge(NamedTuple):
    """A figure of one moment."""

    name: str
    tags: Tags
    value: float


class RoutemasterCounters:
    """The counts of this gateway since it began, by name and tags."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, Tags]] = Counter()

    def began(self, kind: str) -> None:
        """Count the start of a part of the gateway: ``web``, or ``worker`` for callbacks."""
        self._add("process", 1, status="start", type=kind)

    def ended(self, kind: str) -> None:
        """Count the orderly end of a part."""
        self._add("process", 1, status="stop", type=kind)

    def pushed(self, topic: str) -> None:
        """Count an event that a publisher pushed."""
        self._add("events.published", 1, topic=topic)

    def handed_out(self, subscriber: str, events: int, waited: float) -> None:
        """Count the first call with a batch.

        Args:
            events: that are in it.
            waited: seconds since the first of them was sealed.
        """
        self._add("events.added", events, subscriber=subscriber)
        self._add("latency.batches.count", 1, subscriber=subscriber)
        self._add("latency.batches.first_attempt", _milliseconds(waited), subscriber=subscriber)

    def called(self, subscriber: str, events: int, seconds: float, waited: float, *, is_taken: bool) -> None:
        """Count a call.

        Args:
            events: that are in its batch.
            seconds: that the call took.
            waited: seconds from the seal of the first event to the call.
        """
        tags = {"status": "success" if is_taken else "failure", "subscriber": subscriber}
        took = _milliseconds(seconds)
        self._add("delivery.events", events, **tags)
        self._add("delivery.batches", 1, **tags)
        self._add("delivery.time", took, **tags)
        self._add("delivery.time2", took * took, **tags)
        if is_taken:
            self._add("events.removed", events, subscriber=subscriber)
            self._add("latency.batches.last_attempt", _milliseconds(waited), subscriber=subscriber)

    def dropped(self, subscriber: str, events: int) -> None:
        """Count events that a subscriber was made to do without."""
        if events:
            self._add("events.autodropped", events, subscriber=subscriber)
            self._add("events.removed", events, subscriber=subscriber)

    def _add(self, name: str, number: int, **tags: str) -> None:
        self.counts[name, tuple(sorted(tags.items()))] += number


def gauges(found: Sequence[SubscriptionHealthMap]) -> Iterator[Gauge]:
    """Give the gauges of subscriptions.

    The bus makes a batch when it calls. So those that wait are as many as the waiting events fill.
    """
    jobs = {"instant": 0, "scheduled": 0}
    for each in found:
        batches = -(-each["events"] // each["batch_events"])
        tags = (("subscriber", each["name"]),)
        yield Gauge("subscriber.queue.events", tags, each["events"])
        yield Gauge("subscriber.queue.batches", tags, batches)
        jobs["scheduled" if each["failures"] else "instant"] += batches
    for status, number in jobs.items():
        yield Gauge("jobs.count", (("queue", QUEUE), ("status", status)), number)


def _milliseconds(seconds: float) -> int:
    return max(0, round(seconds * 1000))


OPERATION = "xbus.operation"
"""The name in the scope of a request under which its operation is noted."""

NO_OPERATION = "none"
"""The operation of requests for what is not there, and of those that the guard turns away."""


class HttpFigures(Collector):
    """The figures of one gateway.

    Args:
        gauges: what is read when somebody asks: the name of each figure, its meaning, and how to read it.
        counters: what is counted under the names of Routemaster.

    Attributes:
        of_subscriptions: the newest gauges under the names of Routemaster.
    """

    def __init__(self, gauges: Iterable[tuple[str, str, Callable[[], float]]], counters: RoutemasterCounters) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.received_bytes = 0
        self.sent_bytes = 0
        self.of_subscriptions: Sequence[Gauge] = ()
        self._gauges = [*gauges]
        self._counters = counters

    def collect(self) -> Iterator[Metric]:
        """Give all families, with those of the operating system's process."""
        yield from ProcessCollector(registry=None).collect()
        yield InfoMetricFamily("xbus_build", "The program", {"version": installed_version(), "process": "http"})
        requests = CounterMetricFamily(
            "xbus_http_requests",
            "Requests, by what they asked for and the status of the answer",
            None,
            ["operation", "status"],
        )
        for (operation, status), number in sorted(self.requests.items()):
            requests.add_metric([operation, str(status)], number)
        yield requests
        yield CounterMetricFamily("xbus_http_received_bytes", "Bytes of the bodies of requests", self.received_bytes)
        yield CounterMetricFamily("xbus_http_sent_bytes", "Bytes of the bodies of answers", self.sent_bytes)
        for name, about, read in self._gauges:
            yield GaugeMetricFamily(name, about, read())
        yield from self._of_routemaster()

    def _of_routemaster(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for name, tags, value in self.of_subscriptions:
            family = families.setdefault(name, GaugeMetricFamily(_written(name), _about(name)))
            family.add_sample(_written(name), dict(tags), value)
        for (name, tags), number in sorted(self._counters.counts.items()):
            counted = families.setdefault(name, CounterMetricFamily(_written(name), _about(name)))
            counted.add_sample(f"{_written(name)}_total", dict(tags), number)
        yield from families.values()

    def write(self, accept: str) -> tuple[bytes, str]:
        """Write all in the form that a client asks for, OpenMetrics or the older text; returns it with its type."""
        encode, content_type = choose_encoder(accept)
        return encode(self), content_type


def _written(name: str) -> str:
    """Write a name of Routemaster as Prometheus wants names."""
    return f"{PREFIX}_{name.replace('.', '_')}"


def _about(name: str) -> str:
    return f"The metric {name} of Routemaster"


class CountedRequests:
    """Counts requests, and the bytes of their bodies and answers.

    Args:
        app: answers them.
        figures: keep the counts.
    """

    def __init__(self, app: ASGIApp, *, figures: HttpFigures) -> None:
        self._app = app
        self._figures = figures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Carry a request out."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        figures, is_answered = self._figures, False

        def count(status: int) -> None:
            figures.requests[scope.get(OPERATION, NO_OPERATION), status] += 1

        async def received() -> Message:
            message = await receive()
            figures.received_bytes += len(message.get("body", b""))
            return message

        async def sent(message: Message) -> None:
            nonlocal is_answered
            if message["type"] == "http.response.start":
                is_answered = True
                count(message["status"])
            figures.sent_bytes += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, received, sent)
        except Exception:
            if not is_answered:
                count(HTTPStatus.INTERNAL_SERVER_ERROR)
            raise


log = logging.getLogger(__name__)

REPORT_SECONDS = 10.0
"""Seconds between reports, as Routemaster has them."""

MOST_DATAGRAM_BYTES = 1_400
"""Bytes of a datagram, which fits into a packet of Ethernet."""

_SPECIAL = re.compile(r"[^\w./-]")


class StatsdReports:
    """Reports what was counted since the last report, and gauges.

    Args:
        address: of the server, host and port.
        counters: what is counted.
        look: gives the gauges of this moment.
        seconds: between reports.
    """

    def __init__(
        self,
        address: str,
        counters: RoutemasterCounters,
        look: Callable[[], Awaitable[Sequence[Gauge]]],
        seconds: float = REPORT_SECONDS,
    ) -> None:
        self._address = host_and_port(address)
        self._counters = counters
        self._look = look
        self._seconds = seconds
        self._told: Counter[tuple[str, Tags]] = Counter()

    async def run(self) -> None:
        """Report for ever, and once more when it is cancelled."""
        try:
            while True:
                await asyncio.sleep(self._seconds)
                try:
                    await self._report(await self._look())
                except Exception:
                    # Nobody's request may end for a report.
                    log.exception("a report to statsd failed", extra={"action": "statsd_fault"})
        finally:
            await self._report(())

    async def _report(self, found: Iterable[Gauge]) -> None:
        counts = self._counters.counts.copy()
        grown = counts - self._told
        lines = [
            *(_line(each.name, each.value, "g", each.tags) for each in found),
            *(_line(name, number, "c", _with_queue(tags)) for (name, tags), number in sorted(grown.items())),
        ]
        try:
            loop = asyncio.get_running_loop()
            transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=self._address)
        except (OSError, UnicodeError) as error:
            # What was not told comes with the next report.
            log.warning("no metrics to statsd: %s", error, extra={"action": "statsd_unreachable"})
            return
        for datagram in datagrams(lines):
            transport.sendto(datagram)
        transport.close()
        self._told = counts


def datagrams(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Join lines to datagrams that fit into a packet."""
    kept: list[bytes] = []
    size = 0
    for line in lines:
        if kept and size + len(line) + 1 > MOST_DATAGRAM_BYTES:
            yield b"\n".join(kept)
            kept, size = [], 0
        kept.append(line)
        size += len(line) + 1
    if kept:
        yield b"\n".join(kept)


def _with_queue(tags: Tags) -> Tags:
    """Tag a subscriber as Routemaster's document and as its server do, which calls it the queue."""
    return tags + tuple(("queue", value) for name, value in tags if name == "subscriber")


def _line(name: str, value: float, kind: str, tags: Tags) -> bytes:
    told = ",".join(f"{name}:{_SPECIAL.sub('_', value)}" for name, value in tags)
    return f"{PREFIX}.{name}:{value:.15g}|{kind}|#{told}".encode()
