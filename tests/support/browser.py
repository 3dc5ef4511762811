"""The monitor in a process of its own, and a browser of this machine that looks at it."""

import json
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from playwright.async_api import BrowserContext, Page, async_playwright

from tests.support.daemon import READY_SECONDS
from tests.support.processes import Process, script
from tests.support.waiting import wait_until
from xbus.broker.journal.database.connection import writing
from xbus.broker.journal.people import add_person
from xbus.clock import SystemClock
from xbus.passwords import Passwords
from xbus.rights import Right

PERSONS_PASSWORD = "a long password"

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

DEADLINE_MS = 60_000


def find_browser() -> str:
    """The path of a browser; without one the test is skipped."""
    found = next((path for name in NAMES if (path := shutil.which(name)) is not None), None)
    if found is None:
        pytest.skip("no Chromium to look at pages with: apt-get install chromium")
    return found


def add_persons(url: str, **rights: Right) -> None:
    """Add persons by name, each with one right."""
    hashed = Passwords().hash_password(PERSONS_PASSWORD)
    with writing(url) as connection:
        for name, right in rights.items():
            add_person(connection, name, [right], hashed, SystemClock().now())


@contextmanager
def monitoring(config: Path) -> Iterator[str]:
    """Run the monitor of a configuration; its address."""
    ready = config.with_name("monitor.json")
    output = config.with_name("monitor.log")
    process = Process(script("start_xbusmonitor"), "-c", config, "--ready-file", ready, output=output)
    try:

        def is_ready() -> bool:
            assert process.runs, f"the monitor ended:\n{process.text}"
            return ready.exists()

        wait_until(is_ready, "the monitor is ready", READY_SECONDS)
        yield json.loads(ready.read_text())["monitor"]
    finally:
        process.kill()


@asynccontextmanager
async def browsing(address: str) -> AsyncIterator[BrowserContext]:
    """A browser without a past, for one monitor."""
    path = find_browser()
    async with async_playwright() as playwright:
        # The tests may run as root, for whom Chromium has no sandbox.
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        context = await browser.new_context(base_url=address, viewport={"width": 1280, "height": 900})
        context.set_default_timeout(DEADLINE_MS)
        yield context
        await context.close()
        await browser.close()


async def enter(context: BrowserContext, name: str) -> Page:
    """A page in which a person has logged in; nothing that a stranger wrote may run in it."""
    page = await context.new_page()
    page.on("dialog", lambda dialog: pytest.fail(f"a text of a stranger ran: {dialog.message}"))
    await page.goto("/log-in")
    await page.get_by_label("Name").fill(name)
    await page.get_by_label("Password").fill(PERSONS_PASSWORD)
    await page.get_by_role("button", name="Log in").click()
    await page.get_by_role("heading", level=1, name="The bus").wait_for()
    return page
