"""Metrics under the names of Routemaster, and their way to statsd."""

import asyncio
from typing import Any

from xbus.http.figures import MOST_DATAGRAM_BYTES, Gauge, RoutemasterCounters, StatsdReports, datagrams, gauges


def health(name: str, **facts: Any) -> Any:
    return {"name": name, "events": 0, "batch_events": 100, "failures": 0, **facts}


def test_the_gauges_are_those_of_routemaster() -> None:
    found = [health("stock", events=101), health("mailer", events=7, failures=2)]
    assert [*gauges(found)] == [
        Gauge("subscriber.queue.events", (("subscriber", "stock"),), 101),
        Gauge("subscriber.queue.batches", (("subscriber", "stock"),), 2),
        Gauge("subscriber.queue.events", (("subscriber", "mailer"),), 7),
        Gauge("subscriber.queue.batches", (("subscriber", "mailer"),), 1),
        Gauge("jobs.count", (("queue", "main"), ("status", "instant")), 2),
        Gauge("jobs.count", (("queue", "main"), ("status", "scheduled")), 1),
    ]


def test_a_datagram_fits_into_a_packet() -> None:
    lines = [b"routemaster.x:%d|c|#subscriber:stock" % number for number in range(200)]
    found = [*datagrams(lines)]
    assert all(len(datagram) <= MOST_DATAGRAM_BYTES for datagram in found)
    assert b"\n".join(found).split(b"\n") == lines


class StatsdServer(asyncio.DatagramProtocol):
    """Takes what comes by UDP."""

    def __init__(self) -> None:
        self.lines: asyncio.Queue[str] = asyncio.Queue()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        for line in data.decode().splitlines():
            self.lines.put_nowait(line)


async def test_statsd_hears_what_has_grown_with_the_tags_of_document_and_server() -> None:
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(StatsdServer, local_addr=("127.0.0.1", 0))
    host, port = transport.get_extra_info("sockname")
    counters = RoutemasterCounters()
    counters.called("st ock|1", 3, 0.02, 0.5, is_taken=True)
    counters.called("st ock|1", 3, 0.01, 0.1, is_taken=False)

    async def look() -> list[Gauge]:
        return [Gauge("jobs.count", (("queue", "main"), ("status", "instant")), 4)]

    reporting = asyncio.create_task(StatsdReports(f"{host}:{port}", counters, look, seconds=0.01).run())
    async with asyncio.timeout(30):
        first = {await server.lines.get() for _ in range(11)}
        counters.pushed("orders")
        while (grown := await server.lines.get()) in first:
            pass
        assert grown == "routemaster.events.published:1|c|#topic:orders"
        counters.ended("web")
        reporting.cancel()
        while (last := await server.lines.get()) in first:
            pass
        assert last == "routemaster.process:1|c|#status:stop,type:web", "what was counted last is told at the end"
    transport.close()
    tags = "subscriber:st_ock_1,queue:st_ock_1"
    assert first >= {
        "routemaster.jobs.count:4|g|#queue:main,status:instant",
        f"routemaster.delivery.batches:1|c|#status:success,{tags}",
        f"routemaster.delivery.events:3|c|#status:failure,{tags}",
        f"routemaster.delivery.time:20|c|#status:success,{tags}",
        f"routemaster.delivery.time2:400|c|#status:success,{tags}",
        f"routemaster.latency.batches.last_attempt:500|c|#{tags}",
        f"routemaster.events.removed:3|c|#{tags}",
    }
