"""The home page: what the sampler found, the way to what fails, and names of strangers."""

import asyncio
import html
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from tests.integration.admin.parked_bus import ParkedBus
from tests.integration.monitor.conftest import CHEAP, PASSWORD, Monitor
from tests.support.clock import StandingClock
from xbus import model
from xbus.broker.journal.database.connection import ConnectionPool, reading, writing
from xbus.broker.journal.people import add_person, find_session
from xbus.broker.journal.samples.sample import STEP, Sample, keep, read_samples
from xbus.broker.logins import Caller
from xbus.config import MonitorSettings
from xbus.monitor.live.sampler import Sampler
from xbus.monitor.people import Door, GuardedPasswords, NotLoggedIn
from xbus.rights import Right

FRAGMENT = {"hx-request": "true"}


def sampler_of(browser: TestClient) -> Sampler:
    app: Any = browser.app
    sampler: Sampler = app.state.parts.sampler
    return sampler


def look(browser: TestClient) -> TestClient:
    """Have the monitor of a browser take a sample."""
    asyncio.run(sampler_of(browser).look())
    return browser


def links(page: str, beginning: str) -> list[str]:
    """The addresses of a page that begin so."""
    found = [html.unescape(each) for each in re.findall(r'href="([^"]*)"', page)]
    return [each for each in found if each.startswith(beginning)]


def test_before_the_first_sample_the_page_says_so(viewer: TestClient) -> None:
    page = viewer.get("/")
    assert page.status_code == 200
    assert "takes its first sample" in page.text
    assert "takes its first sample" in viewer.get("/figures").text


@pytest.mark.parametrize("path", ["/", "/live", "/live/graph", "/live/plots", "/live/decisions", "/figures"])
def test_nobody_sees_it_without_a_session(monitor: Monitor, path: str) -> None:
    answer = monitor.visit().get(path, follow_redirects=False)
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/log-in")


def test_from_home_to_what_fails_in_two_clicks(viewer: TestClient, parked: ParkedBus) -> None:
    page = look(viewer).get("/").text
    assert "The front does not answer" in page
    (first, *_) = links(page, "/parked?")
    listed = viewer.get(first)
    assert listed.status_code == 200
    (item, *_) = links(listed.text, f"/parked/{parked.both}")
    shown = viewer.get(item)
    assert shown.status_code == 200
    assert str(parked.both) in shown.text


def test_the_graph_leads_to_pages(viewer: TestClient, parked: ParkedBus) -> None:
    drawn = look(viewer).get("/").text
    for address in links(drawn, "/recipients/"):
        assert viewer.get(address).status_code == 200
    assert {"/recipients/store_1", "/recipients/counter_1"} <= {*links(drawn, "/recipients/")}
    assert "2 parked" in drawn or "1 parked" in drawn
    assert 'style="' not in drawn
    assert "<script>" not in drawn


def test_parts_of_the_page_are_fetched_alone(viewer: TestClient, parked: ParkedBus) -> None:
    look(viewer)
    for part, word in (("graph", "<svg"), ("plots", "<figure"), ("decisions", 'class="card')):
        found = viewer.get(f"/live/{part}", headers=FRAGMENT)
        assert found.status_code == 200
        assert word in found.text
        assert "<html" not in found.text


@pytest.mark.parametrize("name", ["15min", "6h", "1d", "1w", "5w"])
def test_plots_show_each_range(viewer: TestClient, monitor: Monitor, name: str) -> None:
    now = monitor.bus.now()
    with writing(monitor.url) as connection:
        for step, number in ((10, 30), (60, 30), (900, 12), (5400, 12)):
            for place in range(number, 0, -1):
                at = now - place * timedelta(seconds=step)
                keep(connection, Sample(step, at, at + timedelta(seconds=step), step, 1, items=3 * step))
    page = viewer.get("/", params={"range": name}).text
    assert 'class="line"' in page
    assert "Z: 3" in page
    assert f"/live/plots?range={name}" in page
    assert viewer.get("/figures", params={"range": name}).text.count("<tr>") > 1


@pytest.mark.parametrize("path", ["/", "/live/plots", "/figures"])
def test_a_range_that_is_none_is_refused(viewer: TestClient, path: str) -> None:
    assert viewer.get(path, params={"range": "<b>"}).status_code == 422


HOSTILE = [
    "<script>alert(1)</script>",
    "x" * 1000,
    "\u202egnp.exe\u2066",
    "\"'><img src=x onerror=alert(1)>",
    "a/../b?c#d",
]


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_names_of_strangers_do_no_harm(viewer: TestClient, parked: ParkedBus, name: str) -> None:
    with writing(parked.url) as connection:
        for table in (model.role, model.emitter):
            first = sa.select(sa.func.min(table.c.id)).scalar_subquery()
            connection.execute(sa.update(table).where(table.c.id == first).values(login=name))
        for table in (model.service, model.event_type):
            first = sa.select(sa.func.min(table.c.id)).scalar_subquery()
            connection.execute(sa.update(table).where(table.c.id == first).values(name=name))
        connection.execute(sa.update(model.delivery).values(code=name[:64]))
        connection.execute(sa.update(model.failure).values(code=name[:64]))
    look(viewer)
    for path in ("/", "/figures"):
        page = viewer.get(path).text
        assert "<script>alert" not in page
        assert "<img" not in page
        assert not {"\u202e", "\u2066"} & {*page}
    for address in links(viewer.get("/").text, "/recipients/"):
        assert viewer.get(address).status_code == 200


def test_a_sample_is_kept_and_the_next_one_goes_on(viewer: TestClient, monitor: Monitor, parked: ParkedBus) -> None:
    look(look(viewer))
    with reading(monitor.url) as connection:
        first, second = read_samples(connection, STEP, monitor.bus.now() - timedelta(hours=1))
    assert (first.observed, second.began_at) == (0, first.ended_at)
    assert second.parked > 0
    newest = sampler_of(viewer).newest
    assert newest is not None
    assert newest.minute is not None
    assert newest.health.silent == ["front", "back"]


async def test_a_database_that_is_away_only_delays_samples(viewer: TestClient, monitor: Monitor) -> None:
    class Over(Exception):
        pass

    looks = 0

    async def pause(seconds: float) -> None:
        nonlocal looks
        assert seconds > 0
        looks += 1
        if looks == 2:
            raise Over

    path = Path(str(sa.make_url(monitor.url).database))
    await asyncio.to_thread(viewer.get, "/")
    with writing(monitor.url) as connection:
        connection.execute(sa.text("ALTER TABLE sample RENAME TO away"))
    with pytest.raises(Over):
        await sampler_of(viewer).run(pause)
    assert path.exists()
    assert sampler_of(viewer).trouble is not None
    assert "notice bad" in (await asyncio.to_thread(viewer.get, "/live/decisions")).text


def test_an_open_page_prolongs_no_session(database_url: str) -> None:
    clock = StandingClock()
    pool = ConnectionPool(database_url)
    with writing(database_url) as connection:
        add_person(connection, "ada", (Right.VIEWER,), CHEAP.hash_password(PASSWORD), clock.now())
    door = Door(pool, MonitorSettings(idle_minutes=60), GuardedPasswords(CHEAP, clock), clock)
    token = asyncio.run(door.enter("ada", PASSWORD, Caller(b"", "")))
    for _ in range(3):
        clock.go_on(1200)
        with reading(database_url) as connection:
            session = find_session(connection, token, clock.now(), timedelta(days=1))
        assert session is not None
        assert session.used_at == StandingClock().now()
        if clock.now() - session.used_at < timedelta(hours=1):
            assert door.known(token, "", is_by_itself=True).person.name == "ada"
    clock.go_on(1)
    with pytest.raises(NotLoggedIn):
        door.known(token, "", is_by_itself=True)
    pool.close()


def test_it_tells_which_brokers_lead_and_which_are_gone(viewer: TestClient, monitor: Monitor) -> None:
    now = datetime.now(UTC)
    with writing(monitor.url) as connection:
        for name, ago in ("bus-1", 0), ("bus-2", 60):
            place = {"front": "tcp://a:1984", "back": "tcp://a:4891", "version": "0.3.0", "process": "1"}
            connection.execute(
                sa.insert(model.broker).values(name=name, looked_at=now - timedelta(seconds=ago), **place)
            )
        until = now + timedelta(hours=1)
        connection.execute(
            sa.insert(model.lease).values(what="broker", broker="bus-1", epoch=7, until=until, since=now)
        )
    look(viewer)
    assert "The broker bus-2 is gone" in viewer.get("/").text
    assert "bus-1 is gone" not in viewer.get("/").text
    figures = " ".join(re.sub(r"<[^>]*>", " ", viewer.get("/figures").text).split())
    assert "bus-1 leads 20" in figures
    assert "bus-2 is gone" in figures
