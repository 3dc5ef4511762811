"""Serves the pages of a process: ``/metrics``, ``/healthz`` and ``/readyz``."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Protocol

from xbus.broker.metrics.families import Family
from xbus.broker.metrics.http_server import HttpAnswer, HttpLimits, HttpRequest, HttpServer
from xbus.broker.metrics.of_process import ProcessReadiness, process_families
from xbus.supervision.health import Health

JSON = "application/json; charset=utf-8"


class FigureSource(Protocol):
    """A part of the broker that has figures."""

    async def refresh_figures(self) -> None:
        """Read the figures that are not in memory.

        The look takes a few seconds at the most. Its figures may be old when they are shown.
        """

    def families(self) -> Iterator[Family]:
        """Show the figures of this moment."""


class MetricsService:
    """The pages, and the port that serves them.

    Figures are read on the event loop, in one step, and written as text in a thread.

    Args:
        health: of this process.
        readiness: of this process.
        families: makes those of this process beyond its health.
        sources: the parts of the broker in this process.
        limits: of what clients can take.
    """

    def __init__(
        self,
        health: Health,
        readiness: ProcessReadiness,
        families: Callable[[], Iterable[Family]],
        sources: Sequence[FigureSource],
        limits: HttpLimits | None = None,
    ) -> None:
        from xbus.broker.metrics.exposition import Exposition  # here, as its library takes time and memory

        self._exposition = Exposition
        self._health = health
        self._readiness = readiness
        self._process = families
        self._sources = sources
        self._server = HttpServer(self._answer, limits)
        self._one_at_a_time = asyncio.Lock()

    async def start(self, listen: str) -> str:
        """Open the port; returns its URL.

        Raises:
            ConfigurationError: ``address_in_use`` or ``bad_address``.
        """
        return await self._server.start(listen)

    def close(self) -> None:
        """Close the port and all connections."""
        self._server.close()

    async def _answer(self, request: HttpRequest) -> HttpAnswer:
        match request.path:
            case "/metrics":
                return await self._metrics(request.headers.get("accept", ""))
            case "/healthz":
                # A restart cures no problem: who restarts what is not alive must not do so for a parked envelope.
                return _json(HTTPStatus.OK, {"alive": True, **self._health.report()})
            case "/readyz":
                reasons = self._readiness.reasons()
                status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
                brokers = [broker.told() for broker in self._readiness.brokers()]
                return _json(status, {"ready": not reasons, "reasons": reasons, "brokers": brokers})
        return HttpAnswer(HTTPStatus.NOT_FOUND, b"There are /metrics, /healthz and /readyz.\n")

    async def _metrics(self, accept: str) -> HttpAnswer:
        async with self._one_at_a_time:
            for source in self._sources:
                await source.refresh_figures()
            families = _merged(self._families())
            body, content_type = await asyncio.to_thread(self._exposition(families).write, accept)
        return HttpAnswer(HTTPStatus.OK, body, content_type)

    def _families(self) -> Iterator[Family]:
        yield from process_families(self._health, self._readiness)
        yield from self._process()
        for source in self._sources:
            yield from source.families()


@asynccontextmanager
async def pages(
    listen: str,
    health: Health,
    readiness: ProcessReadiness,
    families: Callable[[], Iterable[Family]] = tuple,
    sources: Sequence[FigureSource] = (),
) -> AsyncIterator[dict[str, str]]:
    """Serve the pages within the block if the configuration wants them, and give their address by its name.

    Args:
        listen: where; empty for nowhere.
        families: makes those of the process beyond its health.
        sources: its parts.

    Raises:
        ConfigurationError: ``address_in_use`` or ``bad_address``.
    """
    if not listen:
        yield {}
        return
    service = MetricsService(health, readiness, families, sources)
    address = await service.start(listen)
    try:
        yield {"metrics": address}
    finally:
        service.close()


def _merged(families: Iterable[Family]) -> Sequence[Family]:
    """Join the samples of families that several parts have."""
    merged: dict[str, Family] = {}
    for family in families:
        merged.setdefault(family.name, family)
        if merged[family.name] is not family:
            merged[family.name].samples.extend(family.samples)
    return list(merged.values())


def _json(status: HTTPStatus, facts: object) -> HttpAnswer:
    return HttpAnswer(status, json.dumps(facts, indent=2).encode() + b"\n", JSON)
