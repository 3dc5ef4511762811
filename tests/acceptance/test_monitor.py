"""The monitor in a real browser, beside a real broker: persons see, understand and repair."""

import re
from typing import Any

import pytest
from playwright.async_api import expect

from tests.conftest import StartDaemon
from tests.support.browser import add_persons, browsing, enter, monitoring
from tests.support.bus import add_bus
from tests.support.sdk import Keeps
from tests.support.serving import serving
from tests.support.showing import become
from xbus.broker.journal.people import Right
from xbus.emitter import AsyncEmitter
from xbus.recipient import Event, Item, Refusal

HOSTILE = "<img src=x onerror=alert(1)>\u202e<script>alert(2)</script>"


class Ledger(Keeps):
    """Keeps invoices, but for those without a number."""

    def on_item(self, event: Event, item: Item) -> None:
        value: Any = item.value
        if "number" not in value:
            raise Refusal(f"the invoice of {value['client']} has no number")
        super().on_item(event, item)


@pytest.fixture
def parked_invoice() -> list[dict[str, Any]]:
    return [{"client": "ada", "number": 1}, {"client": HOSTILE}]


async def test_a_failing_item_is_followed_corrected_and_delivered(
    database_url: str, start_daemon: StartDaemon, parked_invoice: list[dict[str, Any]]
) -> None:
    add_bus(database_url, {"invoices": {"ledger": []}})
    add_persons(database_url, olga=Right.OPERATOR, vera=Right.VIEWER)
    daemon = start_daemon(database_url, {"monitor": {"listen": "127.0.0.1:0"}})
    ledger = Ledger()
    with monitoring(daemon.config) as address:
        async with (
            serving(daemon, "ledger_1", ledger),
            AsyncEmitter(daemon.front, "emitter_1", "password") as emitter,
            browsing(address) as context,
        ):
            receipt = await emitter.put("invoices", parked_invoice)
            await become(database_url, str(receipt.envelope_id), ledger_1="parked")
            page = await enter(context, "olga")

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
            assert ledger.committed[receipt.envelope_id] == [
                (0, {"client": "ada", "number": 1}),
                (1, {"client": "ben", "number": 2}),
            ]
            await page.goto(f"/envelopes/{receipt.envelope_id}")
            await expect(page.get_by_role("region", name="Consumers")).to_contain_text("done")


async def test_the_home_page_lives(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"invoices": {"ledger": []}})
    add_persons(sqlite_url, vera=Right.VIEWER)
    daemon = start_daemon(sqlite_url, {"monitor": {"listen": "127.0.0.1:0"}})
    with monitoring(daemon.config) as address:
        async with (
            serving(daemon, "ledger_1", Ledger()),
            AsyncEmitter(daemon.front, "emitter_1", "password") as emitter,
            browsing(address) as context,
        ):
            page = await enter(context, "vera")
            await expect(page.get_by_text("parked for ledger_1")).to_have_count(0)
            await emitter.put("invoices", [{"client": "ada"}])
            # Nobody asks for the page again.
            await expect(page.get_by_text("parked for ledger_1")).to_be_visible(timeout=60_000)


async def test_a_viewer_is_refused_on_the_server(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"invoices": {"ledger": []}})
    add_persons(sqlite_url, vera=Right.VIEWER)
    daemon = start_daemon(sqlite_url, {"monitor": {"listen": "127.0.0.1:0"}})
    with monitoring(daemon.config) as address:
        async with (
            serving(daemon, "ledger_1", Ledger()),
            AsyncEmitter(daemon.front, "emitter_1", "password") as emitter,
            browsing(address) as context,
        ):
            receipt = await emitter.put("invoices", [{"client": "ada"}])
            await become(sqlite_url, str(receipt.envelope_id), ledger_1="parked")
            page = await enter(context, "vera")
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
    add_bus(sqlite_url, {"invoices": {"ledger": []}})
    add_persons(sqlite_url, olga=Right.OPERATOR)
    daemon = start_daemon(sqlite_url, {"monitor": {"listen": "127.0.0.1:0"}})
    ledger = Ledger()
    with monitoring(daemon.config) as address:
        async with (
            serving(daemon, "ledger_1", ledger),
            AsyncEmitter(daemon.front, "emitter_1", "password") as emitter,
            browsing(address) as context,
        ):
            receipt = await emitter.put("invoices", [{"client": "ada"}], key="invoice 7")
            await become(sqlite_url, str(receipt.envelope_id), ledger_1="parked")
            page = await enter(context, "olga")
            await page.keyboard.press("/")
            await page.keyboard.type("invoice 7")
            await page.keyboard.press("Enter")
            await expect(page).to_have_url(re.compile(str(receipt.envelope_id)))
            await page.keyboard.press("g")
            await page.keyboard.press("p")
            await expect(page).to_have_url(re.compile("/parked$"))

            without = await context.browser.new_context(base_url=address, java_script_enabled=False)  # type: ignore[union-attr]
            plain = await enter(without, "olga")
            await plain.goto(f"/parked/{receipt.envelope_id}")
            await plain.get_by_role("link", name="Drop", exact=True).click()
            await plain.get_by_label("Reason").fill("nobody needs it")
            await plain.get_by_role("button", name="Drop for good").click()
            await expect(plain.get_by_role("status")).to_contain_text("ledger_1 goes without envelope")
            await plain.get_by_role("link", name="Go on").click()
            await without.close()
