"""An envelope with a traceparent becomes a tree of spans at a collector of OpenTelemetry."""

import http.server
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.conftest import StartDaemon
from tests.support.bus import add_bus
from tests.support.sdk import Keeps, emit
from tests.support.serving import serving
from tests.support.waiting import eventually
from xbus.emitter import Emitter
from xbus.recipient import Envelope, Event, Item, Refusal, Worker

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector:
    """Takes spans by HTTP, as a collector does."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = ExportTraceServiceRequest()
                request.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
                for resource in request.resource_spans:
                    for scope in resource.scope_spans:
                        collector.spans += scope.spans
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1/traces"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def tree(self) -> set[tuple[str, str]]:
        """Each span with its parent, by name."""
        names = {span.span_id: span.name for span in self.spans} | {bytes.fromhex(PARENT): "emitter"}
        return {(span.name, names.get(span.parent_span_id, "?")) for span in self.spans}

    def errors(self) -> set[tuple[str, str]]:
        return {(span.name, span.status.message) for span in self.spans if span.status.message}


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.close()


class Doubles(Worker):
    """Answers twice what it gets."""

    def on_item(self, event: Event, item: Item) -> Iterator[Any]:
        yield 2 * item.value


class Refuses(Keeps):
    """Refuses the value 26."""

    def commit(self, envelope: Envelope) -> None:
        if any(value == 26 for _, value in envelope.state["items"]):
            raise Refusal("no thirteens")
        super().commit(envelope)


def send(emitter: Emitter, value: int, *, traced: bool, items: int = 1) -> None:
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"} if traced else {"note": "none"}
    with emitter.envelope(headers=headers) as envelope, envelope.event("numbers") as event:
        for _ in range(items):
            event.send(value)


async def test_the_way_of_an_envelope(start_daemon: StartDaemon, sqlite_url: str, collector: Collector) -> None:
    add_bus(sqlite_url, {"numbers": {"double": ["sink"], "sink": []}})
    daemon = start_daemon(sqlite_url, {"tracing": {"endpoint": collector.endpoint}, "back": {"attempts": 1}})
    consumer = Refuses()
    async with serving(daemon, "double_1", Doubles()), serving(daemon, "sink_1", consumer):
        await emit(daemon, lambda emitter: send(emitter, 1, traced=False))
        # A small one travels in a bundle, a large one in a run.
        await emit(daemon, lambda emitter: send(emitter, 2, traced=True))
        await emit(daemon, lambda emitter: send(emitter, 13, traced=True, items=50_000))
        await eventually(lambda: len(consumer.committed) == 2, "two are delivered")
        await eventually(lambda: "not delivered" in daemon.log, "one is not")
    assert daemon.stop() == 0

    assert {
        ("receive", "emitter"),
        ("commit", "receive"),
        ("deliver", "emitter"),
        ("node", "deliver"),
        ("call send_item", "node"),
        ("call end_envelope", "deliver"),
        ("call take_event", "deliver"),
    } <= collector.tree()
    assert {span.trace_id.hex() for span in collector.spans} == {TRACE}
    assert sum(span.name == "receive" for span in collector.spans) == 2
    assert any(name == "deliver" and "no thirteens" in message for name, message in collector.errors())
    assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in collector.spans)
    (line,) = [line for line in daemon.log.splitlines() if "not delivered" in line]
    assert f"trace_id={TRACE}" in line
