"""Envelopes of one item by HTTP, over several connections. The floor is the same gateway without the bus."""

import asyncio
import time
from urllib.parse import urlsplit

from benchmarks.bus import EMITTER, EVENT_TYPE, ONE_CONSUMER, running_bus, set_up
from benchmarks.databases import Databases
from benchmarks.percentiles import percentile
from benchmarks.result import Result
from benchmarks.sizes import Sizes
from tests.support.gateway import serving_http
from xbus.broker.journal.api_tokens import add_api_token
from xbus.broker.journal.database.connection import writing
from xbus.clock import SystemClock

CONNECTIONS = 16
BODY = b'{"number": 4711, "client": "Ann", "total": "12.50"}'


def measure(databases: Databases, sizes: Sizes) -> Result:
    """Rounds of envelopes and of bare requests, by the same connections."""
    options = {"http": {"listen": "127.0.0.1:0"}}
    with databases() as url:
        set_up(url, ONE_CONSUMER)
        with writing(url) as connection:
            token = add_api_token(connection, "benchmark", emitter=EMITTER, at=SystemClock().now())
        with running_bus(url, None, options) as daemon, serving_http(daemon.config) as address:
            publish = _request("POST", f"/v1/types/{EVENT_TYPE}/envelopes", token, BODY)
            bare = _request("GET", "/healthz", token, b"")
            taken: list[float] = []
            rounds = []
            for _ in range(sizes.rounds):
                rate, seconds = asyncio.run(_rate(address, publish, sizes.small_pipelined))
                floor, _ = asyncio.run(_rate(address, bare, sizes.small_pipelined))
                taken += seconds
                rounds.append((rate, floor))
    found = Result.median(rounds, "envelopes/s")
    more = {"median_ms": percentile(taken, 50) * 1000, "p99_ms": percentile(taken, 99) * 1000}
    return Result(found.value, found.floor, found.unit, more)


def _request(method: str, path: str, token: str, body: bytes) -> bytes:
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _rate(address: str, request: bytes, count: int) -> tuple[float, list[float]]:
    """Send requests one after another by each connection; how many a second, and the seconds of each."""
    place = urlsplit(address)
    each = max(1, count // CONNECTIONS)
    began = time.perf_counter()
    lists = await asyncio.gather(
        *(_ask(place.hostname or "", place.port or 0, request, each) for _ in range(CONNECTIONS))
    )
    seconds = [second for found in lists for second in found]
    return len(seconds) / (time.perf_counter() - began), seconds


async def _ask(host: str, port: int, request: bytes, count: int) -> list[float]:
    reader, writer = await asyncio.open_connection(host, port)
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 20"), head
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.partition(b":")[2]))
        seconds.append(time.perf_counter() - began)
    writer.close()
    await writer.wait_closed()
    return seconds
