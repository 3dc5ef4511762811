"""The pages of the monitor in a browser, examined by axe-core, in light and in dark colours."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page

from tests.support.browser import add_persons, browsing, enter, find_browser, monitoring
from tests.support.daemon import write_config
from tests.support.ports import free_port
from tests.support.reading_bus import make_reading_bus
from xbus.rights import Right

AXE = Path(__file__).parents[1] / "browser" / "node_modules" / "axe-core" / "axe.min.js"

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]

PAGES = (
    "/",
    "/figures",
    "/envelopes",
    "/envelopes/00000000-0000-0000-0000-000000000001",
    "/envelopes/00000000-0000-0000-0000-000000000001/items",
    "/parked",
    "/failures",
    "/clearing",
    "/recipients",
    "/readers",
    "/readers/billing",
    "/readers/subscription%2Fshop",
    "/batches",
    "/bots",
    "/bots/nightly%2Freport",
    "/configuration",
    "/configuration/edit?section=event_type&name=orders",
    "/configuration/edit?section=bot",
    "/configuration/file",
    "/types/orders",
    "/audit",
    "/people",
    "/upload",
    "/do/pause?kind=role&name=billing_1",
    "/do/readers/move?name=billing",
    "/no/such/page",
)


@pytest.fixture
async def page(sqlite_url: str, tmp_path: Path) -> AsyncIterator[Page]:
    """A page in which a manager has logged in."""
    find_browser()
    if not AXE.exists():
        pytest.skip("axe-core is not installed: npm install --prefix tests/browser")
    bus = make_reading_bus(sqlite_url)
    bus.run("nightly/report", state="failed", code="bot_failed", error="no disk", log="tried\n")
    bus.slow("nightly/report")
    add_persons(sqlite_url, mia=Right.MANAGER)
    zmq = {f"{part}socket": f"tcp://127.0.0.1:{free_port()}" for part in ("front", "back")}
    settings = {"zmq": zmq, "monitor": {"listen": f"127.0.0.1:{free_port()}"}}
    config = write_config(tmp_path / "config.ini", sqlite_url, settings)
    with monitoring(config) as address:
        async with browsing(address) as context:
            yield await enter(context, "mia")


async def examined(page: Page, address: str) -> list[str]:
    """The faults of a page: the rule, and where."""
    await page.goto(address)
    # A policy of the page keeps scripts of others out; what the browser's driver evaluates is none of its business.
    await page.evaluate(AXE.read_text())
    found: dict[str, Any] = await page.evaluate("(tags) => axe.run(document, {runOnly: tags})", RULES)
    return [
        f"{address}: {each['id']}: {each['help']}: {node['target']} {node['html'][:120]}"
        for each in found["violations"]
        for node in each["nodes"]
    ]


@pytest.mark.parametrize("colours", ["light", "dark"])
async def test_pages_are_for_everybody(page: Page, colours: Any) -> None:
    await page.emulate_media(color_scheme=colours)
    faults = [fault for address in PAGES for fault in await examined(page, address)]
    assert faults == []


async def test_a_fault_would_be_found(page: Page) -> None:
    await page.goto("/")
    await page.evaluate("document.querySelector('main').append(document.createElement('input'))")
    await page.evaluate(AXE.read_text())
    found: dict[str, Any] = await page.evaluate("(tags) => axe.run(document, {runOnly: tags})", RULES)
    assert "label" in [each["id"] for each in found["violations"]]
