"""``make screenshots``: draws the pictures of ``docs/monitor/`` from a bus that runs."""

import asyncio
import itertools
import tempfile
from pathlib import Path
from typing import Any

from playwright.async_api import Page

from tests.support.browser import add_persons, browsing, enter, monitoring
from tests.support.bus import add_bus
from tests.support.daemon import Daemon
from tests.support.serving import serving
from xbus.broker.journal.database import schema
from xbus.emitter import AsyncEmitter
from xbus.recipient import Consumer, Event, Item, Refusal, Worker
from xbus.rights import Right

PICTURES = Path(__file__).parents[1] / "docs" / "monitor"

SECONDS_OF_TRAFFIC = 45.0
"""Shorter leaves plots empty."""


class Prices(Worker):
    """Hands items on."""

    def on_item(self, event: Event, item: Item) -> list[Item]:
        return [item]


class Ledger(Consumer):
    """Takes invoices that have a number."""

    def on_item(self, event: Event, item: Item) -> None:
        if "number" not in item.value:
            raise Refusal(f"the invoice of {item.value['client']} has no number")


class Store(Consumer):
    """Takes everything."""


async def main() -> None:
    """Run a bus, send invoices and orders, and take the pictures."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/xbus.db"
        schema.upgrade(url)
        add_bus(
            url,
            {
                "invoices": {"prices": ["ledger", "warehouse"], "ledger": [], "warehouse": []},
                "orders": {"prices": ["shop"], "shop": []},
                "clients": {"ledger": [], "shop": [], "warehouse": []},
            },
        )
        add_persons(url, ada=Right.MANAGER)
        daemon = Daemon(Path(folder) / "daemon", url, {"monitor": {"listen": "127.0.0.1:0"}}).start()
        try:
            await _picture(daemon)
        finally:
            daemon.stop()


async def _picture(daemon: Daemon) -> None:
    with monitoring(daemon.config) as address:
        async with (
            serving(daemon, "prices_1", Prices()),
            serving(daemon, "ledger_1", Ledger()),
            serving(daemon, "warehouse_1", Store()),
            serving(daemon, "shop_1", Store()),
            AsyncEmitter(daemon.front, "emitter_1", "password") as emitter,
            browsing(address) as context,
        ):
            await _send(emitter)
            page = await enter(context, "ada")
            await page.wait_for_timeout(3_000)
            await _take(page, "/", "home")
            await _take(page, "/envelopes", "envelopes")
            await _take(page, "/recipients", "recipients")
            await _take(page, "/types/invoices", "type")
            await page.goto("/parked")
            await page.locator("tbody a").first.click()
            await page.get_by_role("link", name="Correct", exact=True).first.click()
            await page.get_by_role("dialog").wait_for()
            await page.screenshot(path=PICTURES / "parked.png")


async def _send(emitter: AsyncEmitter) -> None:
    """Send as a shop does in a busy minute; three invoices have no number."""
    loop = asyncio.get_running_loop()
    end = loop.time() + SECONDS_OF_TRAFFIC
    for number in itertools.count():
        if loop.time() > end:
            return
        invoice: dict[str, Any] = {"client": f"client {number % 17}", "number": number, "total": 19.9 * (number % 7)}
        await emitter.put("invoices", [invoice] * (1 + number % 5), key=f"invoice {number}")
        if number % 3 == 0:
            await emitter.put("orders", [{"client": invoice["client"], "article": number % 11}])
        if number in (20, 60, 90):
            await emitter.put("invoices", [{"client": "ben", "total": 12.5}], key=f"late invoice {number}")
        await asyncio.sleep(0.2 + 0.15 * (number % 4))


async def _take(page: Page, path: str, name: str) -> None:
    await page.goto(path)
    await page.wait_for_timeout(500)
    await page.screenshot(path=PICTURES / f"{name}.png")


if __name__ == "__main__":
    asyncio.run(main())
