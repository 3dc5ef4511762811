"""The monitor in a real browser, beside a real broker: persons see, understand and repair."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.async_api import BrowserContext, expect

from tests.conftest import StartDaemon
from tests.support.browser import add_persons, browsing, enter, monitoring
from tests.support.bus import PASSWORD, add_bus
from tests.support.sdk import Keeps
from tests.support.serving import serving
from tests.support.showing import become
from tests.support.waiting import DEADLINE_SECONDS, eventually
from xbus.broker.journal.configuration import read_stored
from xbus.broker.journal.database.connection import reading
from xbus.emitter import AsyncEmitter
from xbus.errors import Refused
from xbus.recipient import Event, Item, Refusal
from xbus.rights import Right

HOSTILE = "<img src=x onerror=alert(1)>\u202e<script>alert(2)</script>"


class Ledger(Keeps):
    """Keeps invoices, but for those without a number."""

    def on_item(self, event: Event, item: Item) -> None:
        value: Any = item.value
        if "number" not in value:
            raise Refusal(f"the invoice of {value['client']} has no number")
        super().on_item(event, item)


@dataclass(frozen=True)
class Shop:
    """A shop whose invoices go to a ledger, and a browser that looks at its monitor."""

    emitter: AsyncEmitter
    ledger: Ledger
    browser: BrowserContext
    address: str


@asynccontextmanager
async def open_shop(url: str, start_daemon: StartDaemon, **persons: Right) -> AsyncIterator[Shop]:
    """Run everything of a shop: broker, monitor, ledger, emitter and browser; persons come by name and right."""
    add_bus(url, {"invoices": {"ledger": []}, "forbidden_orders": {"ledger": []}})
    add_persons(url, **persons)
    daemon = start_daemon(url, {"monitor": {"listen": "127.0.0.1:0"}})
    ledger = Ledger()
    with monitoring(daemon.config) as address:
        async with (
            serving(daemon, "ledger_1", ledger),
            AsyncEmitter(daemon.front, "emitter_1", PASSWORD) as emitter,
            browsing(address) as browser,
        ):
            yield Shop(emitter, ledger, browser, address)


@pytest.fixture
def parked_invoice() -> list[dict[str, Any]]:
    return [{"client": "ada", "number": 1}, {"client": HOSTILE}]


async def test_a_failing_item_is_followed_corrected_and_delivered(
    database_url: str, start_daemon: StartDaemon, parked_invoice: list[dict[str, Any]]
) -> None:
    async with open_shop(database_url, start_daemon, olga=Right.OPERATOR, vera=Right.VIEWER) as shop:
        receipt = await shop.emitter.put("invoices", parked_invoice)
        await become(database_url, str(receipt.envelope_id), ledger_1="parked")
        page = await enter(shop.browser, "olga")

        # Two clicks from the home page to the failing item.
        await page.get_by_role("link", name=re.compile("parked for ledger_1")).click()
        await page.locator(f'a[href^="/parked/{receipt.envelope_id}"]').click()
        await expect(page.get_by_text("named as bad")).to_be_visible()
        await expect(page.get_by_text("onerror=alert(1)").first).to_be_visible()

        await page.get_by_role("link", name="Correct", exact=True).click()
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text("Corrects item 1 of event 1")
        await dialog.get_by_label("Value").fill('{"client": "ben", "number": 2}')
        await dialog.get_by_label("Reason").fill("asked the client")
        await dialog.get_by_label("Resume it at once").check()
        await dialog.get_by_role("button", name="Correct").click()
        await expect(dialog).to_contain_text("Resumed envelope")
        await expect(dialog).to_contain_text(f"xbus parked correct {receipt.envelope_id}")

        await become(database_url, str(receipt.envelope_id), ledger_1="done")
        assert shop.ledger.committed[receipt.envelope_id] == [
            (0, {"client": "ada", "number": 1}),
            (1, {"client": "ben", "number": 2}),
        ]
        await page.goto(f"/envelopes/{receipt.envelope_id}")
        await expect(page.get_by_role("region", name="Consumers")).to_contain_text("done")


async def test_the_home_page_lives(sqlite_url: str, start_daemon: StartDaemon) -> None:
    async with open_shop(sqlite_url, start_daemon, vera=Right.VIEWER) as shop:
        page = await enter(shop.browser, "vera")
        await expect(page.get_by_text("parked for ledger_1")).to_have_count(0)
        await shop.emitter.put("invoices", [{"client": "ada"}])
        # Nobody asks for the page again.
        await expect(page.get_by_text("parked for ledger_1")).to_be_visible(timeout=60_000)


async def test_a_viewer_is_refused_on_the_server(sqlite_url: str, start_daemon: StartDaemon) -> None:
    async with open_shop(sqlite_url, start_daemon, vera=Right.VIEWER) as shop:
        receipt = await shop.emitter.put("invoices", [{"client": "ada"}])
        await become(sqlite_url, str(receipt.envelope_id), ledger_1="parked")
        page = await enter(shop.browser, "vera")
        await page.goto(f"/parked/{receipt.envelope_id}")
        await expect(page.get_by_role("link", name="Correct")).to_have_count(0)
        answer = await page.request.post(
            "/do/parked/drop", form={"envelope_id": str(receipt.envelope_id), "reason": "x"}
        )
        assert answer.status == 403
        await page.goto(f"/do/parked/drop?envelope_id={receipt.envelope_id}")
        await expect(page.get_by_role("alert")).to_contain_text("vera lacks the right operator")
        await become(sqlite_url, str(receipt.envelope_id), ledger_1="parked")


async def test_a_page_works_by_keyboard_and_without_scripts(sqlite_url: str, start_daemon: StartDaemon) -> None:
    async with open_shop(sqlite_url, start_daemon, olga=Right.OPERATOR) as shop:
        receipt = await shop.emitter.put("invoices", [{"client": "ada"}], key="invoice 7")
        await become(sqlite_url, str(receipt.envelope_id), ledger_1="parked")
        page = await enter(shop.browser, "olga")
        await page.keyboard.press("/")
        await page.keyboard.type("invoice 7")
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(re.compile(str(receipt.envelope_id)))
        await page.keyboard.press("g")
        await page.keyboard.press("p")
        await expect(page).to_have_url(re.compile("/parked$"))

        without = await shop.browser.browser.new_context(base_url=shop.address, java_script_enabled=False)  # type: ignore[union-attr]
        plain = await enter(without, "olga")
        await plain.goto(f"/parked/{receipt.envelope_id}")
        await plain.get_by_role("link", name="Drop", exact=True).click()
        await plain.get_by_label("Reason").fill("nobody needs it")
        await plain.get_by_role("button", name="Drop for good").click()
        await expect(plain.get_by_role("status")).to_contain_text("ledger_1 goes without envelope")
        await plain.get_by_role("link", name="Go on").click()
        await without.close()


async def test_a_profile_is_edited_and_the_next_event_is_accepted(sqlite_url: str, start_daemon: StartDaemon) -> None:
    async with open_shop(sqlite_url, start_daemon, mia=Right.MANAGER) as shop:
        with pytest.raises(Refused):
            await shop.emitter.put("forbidden_orders", [{"client": "ada", "number": 1}])
        page = await enter(shop.browser, "mia")
        profile = read_profile(sqlite_url)
        await page.goto(f"/configuration/edit?section=emitter_profile&name={profile}")
        await page.get_by_label("forbidden_orders").check()
        await page.get_by_role("button", name="Show the plan", exact=True).last.click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Plan")
        await expect(page.locator(".changes")).to_contain_text("forbidden_orders")
        await page.get_by_role("button", name="Apply", exact=True).click()
        await expect(page.get_by_text("Applied: the configuration is at version")).to_be_visible()

        async def is_accepted() -> bool:
            try:
                await shop.emitter.put("forbidden_orders", [{"client": "ada", "number": 2}], key="order 2")
            except Refused:
                return False
            return True

        async with asyncio.timeout(DEADLINE_SECONDS):
            while not await is_accepted():
                await asyncio.sleep(0.1)
        await eventually(lambda: shop.ledger.committed, "the ledger has the order")


async def test_two_managers_edit_one_entry(sqlite_url: str, start_daemon: StartDaemon) -> None:
    async with open_shop(sqlite_url, start_daemon, mia=Right.MANAGER, max=Right.MANAGER) as shop:
        profile = read_profile(sqlite_url)
        # Each has a browser, since one keeps one session.
        other = await shop.browser.browser.new_context(base_url=shop.address)  # type: ignore[union-attr]
        mia, max_ = await enter(shop.browser, "mia"), await enter(other, "max")
        for page in (mia, max_):
            await page.goto(f"/configuration/edit?section=emitter_profile&name={profile}")
        await mia.get_by_label("forbidden_orders").check()
        await mia.get_by_role("button", name="Show the plan", exact=True).last.click()
        await mia.get_by_role("button", name="Apply", exact=True).click()
        await expect(mia.get_by_text("Applied: the configuration is at version")).to_be_visible()
        await max_.get_by_label("invoices").uncheck()
        await max_.get_by_role("button", name="Show the plan", exact=True).last.click()
        # Nothing is undone unseen.
        await expect(max_.get_by_role("alert")).to_contain_text("Somebody else has changed this since you began")
        await expect(max_.get_by_role("alert")).to_contain_text("forbidden_orders")
        await expect(max_.get_by_role("button", name="Apply", exact=True)).to_have_count(0)
        await other.close()


def read_profile(url: str) -> str:
    """The profile of the shop's emitter."""
    with reading(url) as connection:
        return read_stored(connection).in_use.emitters["emitter_1"].profile
