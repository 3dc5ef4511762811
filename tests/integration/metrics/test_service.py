"""The pages of a process: what they answer, and when a process is ready."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.support.clock import StandingClock
from xbus.broker.journal.journal import Journal
from xbus.broker.metrics.families import Family, gauge, one
from xbus.broker.metrics.of_process import ProcessReadiness, write_families
from xbus.broker.metrics.service import pages
from xbus.supervision.health import Health

OPEN_METRICS = "application/openmetrics-text"


class Source:
    """A part of a broker; two of them show the same family."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.refreshed = 0

    async def refresh_figures(self) -> None:
        self.refreshed += 1

    def families(self) -> Iterator[Family]:
        yield gauge("xbus_parts", "Parts", [({"part": self._name}, 1.0)])
        yield gauge(f"xbus_{self._name}", "One part", one(self.refreshed))


class Pages:
    """Asks for the pages."""

    def __init__(self, health: Health, readiness: ProcessReadiness, port: int) -> None:
        self.health = health
        self.readiness = readiness
        self._port = port

    async def ask(self, path: str, accept: str = OPEN_METRICS) -> tuple[int, str]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(f"GET {path} HTTP/1.1\r\nAccept: {accept}\r\n\r\n".encode())
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
        writer.close()
        return int(head.split()[1]), body


@asynccontextmanager
async def serving(url: str, *sources: Source) -> AsyncIterator[Pages]:
    clock = StandingClock()
    health = Health("broker", clock)
    readiness = ProcessReadiness(health)
    async with (
        Journal.open(url, "broker") as journal,
        pages("127.0.0.1:0", health, readiness, lambda: write_families(journal), sources) as served,
    ):
        yield Pages(health, readiness, int(served["metrics"].rpartition(":")[2]))


async def test_the_figures_of_all_parts_are_one_page(sqlite_url: str) -> None:
    front, back = Source("front"), Source("back")
    async with serving(sqlite_url, front, back) as pages:
        pages.health.trouble("parked", "one is parked", about="ledger")
        status, text = await pages.ask("/metrics")
        found = {family.name: family.samples for family in text_string_to_metric_families(text)}  # type: ignore[no-untyped-call]
        assert status == 200
        assert [(each.labels, each.value) for each in found["xbus_parts"]] == [
            ({"part": "front"}, 1),
            ({"part": "back"}, 1),
        ]
        assert found["xbus_front"][0].value == found["xbus_back"][0].value == 1
        assert [(each.labels, each.value) for each in found["xbus_problems"]] == [({"code": "parked"}, 1)]
        assert found["xbus_journal_up"][0].value == 1
        assert "# EOF" not in (await pages.ask("/metrics", "text/plain"))[1]
        assert front.refreshed == 2


async def test_a_process_is_ready_while_it_can_work(sqlite_url: str) -> None:
    async with serving(sqlite_url) as pages:
        status, text = await pages.ask("/readyz")
        assert (status, json.loads(text)["reasons"][0]["code"]) == (503, "starting")
        pages.readiness.started()
        pages.health.trouble("parked", "one is parked", about="ledger")
        assert (await pages.ask("/readyz"))[0] == 200
        pages.health.trouble("journal_full", "it is full", "attach a disk")
        status, text = await pages.ask("/readyz")
        assert (status, json.loads(text)["reasons"][0]["next_step"]) == (503, "attach a disk")
        pages.readiness.stopping()
        assert json.loads((await pages.ask("/readyz"))[1])["reasons"][0]["code"] == "stopping"


async def test_a_process_is_alive_whatever_its_problems_are(sqlite_url: str) -> None:
    async with serving(sqlite_url) as pages:
        pages.health.trouble("journal_full", "it is full", "attach a disk")
        status, text = await pages.ask("/healthz")
        told = json.loads(text)
        assert (status, told["alive"], [each["code"] for each in told["problems"]]) == (200, True, ["journal_full"])


@pytest.mark.parametrize("path", ["/", "/metrics/", "/favicon.ico"])
async def test_there_are_no_other_pages(sqlite_url: str, path: str) -> None:
    async with serving(sqlite_url) as pages:
        assert (await pages.ask(path))[0] == 404
