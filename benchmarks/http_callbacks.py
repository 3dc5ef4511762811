"""Events from a POST to the gateway to the call of a subscriber, and the processor time of gateway and broker for each.

Sender and subscriber are one process, beside those two. The floor of the times is a POST to the subscriber itself. That
of the rate is the rate at which the gateway takes events; that of a thousand subscriptions is the work with one.
"""

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.bus import EMITTER, running_bus, set_up
from benchmarks.databases import Databases
from benchmarks.percentiles import percentile
from benchmarks.processes import cpu_seconds, peaks_mib
from benchmarks.result import Result
from benchmarks.sizes import Sizes
from tests.support.gateway import Gate
from tests.support.ports import free_port
from xbus.broker.journal.api_tokens import add_api_token
from xbus.broker.journal.configuration import (
    BusSpec,
    EmitterSpec,
    EventTypeSpec,
    ProfileSpec,
    ReaderSpec,
    RoleSpec,
    ServiceSpec,
    SubscriptionSpec,
)
from xbus.broker.journal.database.connection import writing
from xbus.clock import SystemClock

GATEWAY = "gateway"
READER = "followers"
RATE = 1_000
"""Events a second at which times are measured."""

CONNECTIONS = 16
BATCH = 100
MOST = 1_000
"""The events of a request, and the most of a call, where rates are measured."""

ALL_FOLLOWERS = 10_000
"""For so many the memory is projected: their descriptors are more than most machines give a process."""


@dataclass
class Calls:
    """The calls that the subscriber took, as their seconds since the POST, and the events in them."""

    seconds: list[float] = field(default_factory=list)
    events: int = 0
    number: int = 0
    came: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True)
class Site:
    """Broker, gateway and subscriber, ready for events."""

    gate: Gate
    broker_pid: int
    token: str
    reading_token: str
    calls: Calls

    def cpu(self) -> tuple[float, float]:
        """Processor seconds so far, of gateway and broker."""
        return cpu_seconds(self.gate.pid), cpu_seconds(self.broker_pid)

    async def wait_for(self, events: int) -> None:
        """Wait until so many events have been called."""
        async with asyncio.timeout(120):
            while self.calls.events < events:
                self.calls.came.clear()
                await self.calls.came.wait()


def with_requests(events: int) -> Callable[[Databases, Sizes], Result]:
    """Make the scenario that tells the median of the milliseconds from POST to call, at a thousand events a second.

    Args:
        events: of each request.
    """

    def measure(databases: Databases, sizes: Sizes) -> Result:
        with databases() as url:
            set_up(url, _bus(port := free_port(), 1))
            return asyncio.run(_times(url, port, events, sizes.http_seconds))

    return measure


async def _times(url: str, port: int, events: int, passing: float) -> Result:
    async with _site(url, port) as site:
        await _paced(site, events, passing / 6)
        site.calls.seconds.clear()
        before, began, base = site.cpu(), time.monotonic(), site.calls.events
        count = await _paced(site, events, passing)
        rate = count / (time.monotonic() - began)
        seconds = sorted(site.calls.seconds)
        gateway, broker = (1_000 * (after - was) / count for after, was in zip(site.cpu(), before, strict=True))
        floor = await _bare(port)
        assert site.calls.events - base == count
    more = {"p99_ms": 1_000 * percentile(seconds, 99), "events_per_s": rate}
    more |= {"gateway_cpu_ms": gateway, "broker_cpu_ms": broker}
    return Result(1_000 * percentile(seconds, 50), floor, "ms", more)


def measure_rate(databases: Databases, sizes: Sizes) -> Result:
    """Events a second in and out, in requests of a hundred and calls of up to a thousand."""
    with databases() as url:
        set_up(url, _bus(port := free_port(), 1))
        return asyncio.run(_rates(url, port, ["t0"], sizes.http_requests, with_floor=True))


def measure_many(databases: Databases, sizes: Sizes) -> Result:
    """Events a second with a thousand subscriptions, each of a type of its own; the floor is one, with such calls."""
    with databases() as url:
        set_up(url, _bus(port := free_port(), 1, most=BATCH))
        one = asyncio.run(_rates(url, port, ["t0"], sizes.http_many, with_floor=False))
    with databases() as url:
        set_up(url, _bus(port := free_port(), sizes.http_many, most=BATCH))
        types = [f"t{number}" for number in range(sizes.http_many)]
        many = asyncio.run(_rates(url, port, types, len(types), with_floor=False))
    return Result(many.value, one.value, many.unit, many.more)


async def _rates(url: str, port: int, types: Sequence[str], requests: int, *, with_floor: bool) -> Result:
    async with _site(url, port) as site:
        publishes = [_publishes(site.token, name, BATCH) for name in types]
        # Everything is read and connected by then.
        await _all(site.gate.address, [next(each) for each in publishes])
        await site.wait_for(base := len(types) * BATCH)
        before, began = site.cpu(), time.monotonic()
        await _all(site.gate.address, [next(publishes[number % len(types)]) for number in range(requests)])
        taken = time.monotonic() - began
        await site.wait_for(base + requests * BATCH)
        passed = time.monotonic() - began
        events = requests * BATCH
        gateway, broker = (1e6 * (after - was) / events for after, was in zip(site.cpu(), before, strict=True))
    floor = events / taken if with_floor else None
    more = {"gateway_cpu_us": gateway, "broker_cpu_us": broker, "calls": float(site.calls.number)}
    return Result(events / passed, floor, "events/s", more)


def measure_followers(databases: Databases, sizes: Sizes) -> Result:
    """MiB of the gateway for ten thousand followers, projected; the floor is the gateway without any."""
    with databases() as url:
        set_up(url, _bus(port := free_port(), 1))
        return asyncio.run(_followers(url, port, sizes.http_followers))


async def _followers(url: str, port: int, followers: int) -> Result:
    async with _site(url, port) as site:
        bare = peaks_mib(site.gate.pid)
        place = urlsplit(site.gate.address)
        head = f"GET /v1/types/t0/tail HTTP/1.1\r\nHost: bus\r\nAuthorization: Bearer {site.reading_token}\r\n\r\n"
        opened = []
        for _ in range(followers):
            reader, writer = await asyncio.open_connection(place.hostname, place.port)
            writer.write(head.encode())
            opened.append((reader, writer))
        for reader, _ in opened:
            await reader.readuntil(b"\r\n\r\n")
        await _all(site.gate.address, [next(_publishes(site.token, "t0", 1))])
        began = time.monotonic()
        await asyncio.gather(*(reader.readuntil(b"data:") for reader, _ in opened))
        reached = time.monotonic() - began
        found = peaks_mib(site.gate.pid)
        for _, writer in opened:
            writer.close()
    all_of_them = bare + (found - bare) * ALL_FOLLOWERS / followers
    more = {"opened": float(followers), "opened_mib": found, "reached_s": reached}
    return Result(all_of_them, bare, "MiB", more)


def _bus(port: int, subscriptions: int, most: int = MOST) -> BusSpec:
    types = [f"t{number}" for number in range(subscriptions)]
    return BusSpec(
        event_types={name: EventTypeSpec(name, False, {}) for name in types},
        services={GATEWAY: ServiceSpec(GATEWAY, "gateway")},
        readers={READER: ReaderSpec(READER, frozenset({"t0"}))},
        roles={GATEWAY: RoleSpec(GATEWAY, GATEWAY), READER: RoleSpec(READER, READER)},
        profiles={"shops": ProfileSpec("shops", frozenset(types))},
        emitters={EMITTER: EmitterSpec(EMITTER, "shops")},
        subscriptions={
            name: SubscriptionSpec(name, frozenset({name}), f"http://127.0.0.1:{port}/{name}", max=most, timeout=0)
            for name in types
        },
    )


@asynccontextmanager
async def _site(url: str, port: int) -> AsyncIterator[Site]:
    at = SystemClock().now()
    with writing(url) as connection:
        token = add_api_token(connection, "benchmark", emitter=EMITTER, at=at)
        own = add_api_token(connection, "gateway", role=GATEWAY, at=at)
        reading = add_api_token(connection, "followers", role=READER, at=at)
    http = {"listen": "127.0.0.1:0", "callbacks": "yes", "callback_token": own, "callback_hosts": "127.0.0.0/8"}
    http |= {"max_connections": "20000"}
    calls = Calls()
    with running_bus(url, None, {"http": http}) as daemon, _gate(daemon.config) as gate:
        async with _subscriber(port, calls):
            yield Site(gate, daemon.pid, token, reading, calls)


@contextmanager
def _gate(config: Path) -> Iterator[Gate]:
    gate = Gate(config, "gateway").start()
    try:
        yield gate
    finally:
        gate.kill()


@asynccontextmanager
async def _subscriber(port: int, calls: Calls) -> AsyncIterator[None]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = json.loads(await reader.readexactly(_length(head)))
                now = time.monotonic()
                sent = [item["at"] for event in body.get("events", ()) for item in event["items"]]
                calls.seconds += [now - at for at in sent]
                calls.events += len(sent)
                calls.number += 1
                calls.came.set()
                writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port, backlog=1024)
    try:
        yield
    finally:
        server.close()


def _publishes(token: str, name: str, events: int) -> Iterator[bytes]:
    """Requests of so many events, each with the moment at which it is taken."""
    while True:
        body = json.dumps([{"at": time.monotonic(), "number": number} for number in range(events)]).encode()
        yield _request(f"/v1/types/{name}/envelopes", token, body)


def _request(path: str, token: str, body: bytes) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _paced(site: Site, events: int, seconds: float) -> int:
    """Send events at the pace of ``RATE``, so many a request, and wait until all are called; returns their number."""
    expected, count = site.calls.events, 0
    requests = _publishes(site.token, "t0", events)
    async with _senders(site.gate.address, 4 * CONNECTIONS) as senders:
        began = time.monotonic()
        while (now := time.monotonic() - began) < seconds:
            while count < now * RATE:
                senders.send(next(requests))
                count += events
            await asyncio.sleep(0.001)
        await senders.all_answered()
    await site.wait_for(expected + count)
    return count


async def _all(address: str, requests: Sequence[bytes]) -> None:
    """Send requests by several connections, each as soon as one is free."""
    async with _senders(address, CONNECTIONS) as senders:
        for request in requests:
            senders.send(request)
        await senders.all_answered()


class Senders:
    """Connections to the gateway, each with one request at a time.

    They are protocols without a task for each request: what sends must not be what is measured.
    """

    def __init__(self) -> None:
        self.free: list[Sender] = []
        self._waiting: deque[bytes] = deque()
        self._unanswered = 0
        self._all_answered = asyncio.Event()

    def send(self, request: bytes) -> None:
        """Send a request as soon as a connection is free."""
        self._unanswered += 1
        self._all_answered.clear()
        if self.free:
            self.free.pop().send(request)
        else:
            self._waiting.append(request)

    def answered(self, sender: "Sender") -> None:
        """Have a connection that has its answer take the next request."""
        self._unanswered -= 1
        if self._waiting:
            sender.send(self._waiting.popleft())
        else:
            self.free.append(sender)
        if not self._unanswered:
            self._all_answered.set()

    async def all_answered(self) -> None:
        """Wait until every request is answered."""
        async with asyncio.timeout(120):
            await self._all_answered.wait()


class Sender(asyncio.Protocol):
    """One connection of many."""

    def __init__(self, senders: Senders) -> None:
        self._senders = senders
        self._answer = b""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Be ready for a request."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._senders.free.append(self)

    def send(self, request: bytes) -> None:
        """Send a request; the answer to the one before is there."""
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Take a part of the answer."""
        self._answer += data
        head, end, body = self._answer.partition(b"\r\n\r\n")
        if end and len(body) >= _length(head):
            # Any other answer is noticed by the end of the time: nobody counts it.
            assert head.startswith(b"HTTP/1.1 20"), head
            self._answer = b""
            self._senders.answered(self)


@asynccontextmanager
async def _senders(address: str, count: int) -> AsyncIterator[Senders]:
    place = urlsplit(address)
    assert place.hostname is not None
    assert place.port is not None
    senders, loop = Senders(), asyncio.get_running_loop()
    opened = [await loop.create_connection(lambda: Sender(senders), place.hostname, place.port) for _ in range(count)]
    try:
        yield senders
    finally:
        for transport, _ in opened:
            transport.close()


async def _bare(port: int) -> float:
    """The milliseconds of a POST to the subscriber itself, in the median."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    seconds = []
    for _ in range(500):
        began = time.monotonic()
        writer.write(_request("/", "bare", b'{"events": []}'))
        await reader.readuntil(b"\r\n\r\n")
        seconds.append(time.monotonic() - began)
    writer.close()
    return 1_000 * percentile(seconds, 50)


def _length(head: bytes) -> int:
    lines = head.lower().split(b"\r\n")
    return next((int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:")), 0)
