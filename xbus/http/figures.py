"""Counts requests, and writes the figures of the gateway for Prometheus; no other module knows its library."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from http import HTTPStatus

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from xbus.extras import installed_version
from xbus.http.counters import PREFIX, Gauge, RoutemasterCounters

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
