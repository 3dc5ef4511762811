"""Bots in the browser and for programs: when they run, their runs, and firing, pausing and releasing them."""

import pytest
from fastapi.testclient import TestClient

from tests.integration.monitor.conftest import Monitor
from tests.support.reading_bus import ReadingBus, make_reading_bus
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.operations.bots import list_runs
from xbus.clock import SystemClock
from xbus.rights import Right

PAGE = "/bots/nightly%2Freport"
NAME = "nightly/report"


@pytest.fixture
def bus(database_url: str) -> ReadingBus:
    return make_reading_bus(database_url)


def states(bus: ReadingBus) -> list[str]:
    """The states of the runs of the bot, the newest first."""
    with reading(bus.url) as connection:
        return [run.state for run in list_runs(connection, NAME, 100)]


def test_the_list_shows_the_next_slot_and_the_last_run(viewer: TestClient, bus: ReadingBus) -> None:
    bus.run(NAME, state="failed", code="bot_failed", error="no <i>disk</i>")
    page = viewer.get("/bots").text
    assert f'href="{PAGE}"' in page
    assert "reports:nightly" in page
    assert "no &lt;i&gt;disk" in page
    assert "when orders come" in page
    assert viewer.get("/live/bots", headers={"hx-request": "true"}).text.lstrip().startswith("<div")
    assert f'href="{PAGE}"' in viewer.get("/configuration").text


def test_a_bot_shows_its_runs_its_log_and_its_settings(viewer: TestClient, bus: ReadingBus) -> None:
    now = SystemClock().now()
    old = bus.run(NAME, slot=now, log="old line\n")
    bus.run(NAME, log="\x1b[31m<script>alert(1)</script>\nsecond line\n")
    page = viewer.get(PAGE).text
    assert "<script>alert" not in page
    assert "\x1b" not in page
    assert "second line" in page
    assert "old line" not in page
    assert "&lt;b&gt;north" in page
    assert "0 3 * * *" in page
    assert "/do/" not in page.split("<main", 1)[1]
    assert "old line" in viewer.get(PAGE, params={"run": old}).text
    assert viewer.get(PAGE, params={"run": old + 10}).status_code == 404
    assert viewer.get(PAGE, params={"run": "x"}).status_code == 422
    assert "No run." in viewer.get(PAGE, params={"state": "failed"}).text


def test_a_bot_that_was_slowed_shows_until_when_and_is_released(operator: TestClient, bus: ReadingBus) -> None:
    assert operator.post("/do/bots/release", data={"name": NAME, "reason": "x"}).status_code == 409
    bus.slow(NAME)
    page = operator.get(PAGE).text
    assert "10 attempts failed" in page
    assert "in 1 min" in page
    assert "in 1 min" in operator.get("/live/bot", params={"name": NAME}).text
    assert ">slowed<" in operator.get("/bots").text
    form = operator.get("/do/bots/release", params={"name": NAME})
    assert f"{NAME} is slowed down, as 10 attempts failed" in form.text
    assert operator.post("/do/bots/release", data={"name": NAME, "reason": "mended"}).status_code == 200
    assert "Slowed down" not in operator.get(PAGE).text


def test_a_bot_is_fired_and_a_failed_run_is_tried_anew(operator: TestClient, bus: ReadingBus) -> None:
    run = bus.run(NAME, state="failed", code="bot_failed", error="no disk")
    form = operator.get("/do/bots/fire", params={"name": NAME})
    assert "xbus bot fire nightly/report" in form.text
    assert operator.post("/do/bots/fire", data={"name": NAME, "reason": "see it"}).status_code == 200
    assert states(bus) == ["due", "failed"]
    assert f"run_id={run}" in operator.get(PAGE).text
    anew = {"name": NAME, "run_id": str(run), "reason": "disk is there"}
    assert operator.get("/do/bots/fire", params=anew).status_code == 200
    assert operator.post("/do/bots/fire", data=anew).status_code == 200
    assert states(bus) == ["due", "due"]
    assert operator.get("/do/bots/fire", params=anew).status_code == 409
    assert operator.post("/do/bots/fire", data=anew).status_code == 409


def test_a_bot_that_reads_is_not_fired(operator: TestClient, bus: ReadingBus) -> None:
    assert "/do/bots/fire" not in operator.get("/bots/summary").text
    assert operator.get("/do/bots/fire", params={"name": "summary"}).status_code == 409
    assert operator.get("/bots/summary").status_code == 200


def test_a_bot_is_paused_and_resumed(operator: TestClient, bus: ReadingBus) -> None:
    subject = {"kind": "bot", "name": NAME}
    assert "/do/pause?" in operator.get(PAGE).text
    assert operator.post("/do/pause", data={**subject, "reason": "month end"}).status_code == 200
    page = operator.get(PAGE).text
    assert "month end" in page
    assert ">paused<" in page
    assert viewer_of_pauses(operator, NAME) == 200
    assert operator.post("/do/resume", data=subject).status_code == 200


def viewer_of_pauses(browser: TestClient, name: str) -> int:
    return browser.get("/live/pauses", params={"kind": "bot", "name": name}).status_code


def test_who_may_only_look_fires_nothing(viewer: TestClient, bus: ReadingBus) -> None:
    for path in ("fire", "release"):
        given = {"name": NAME, "reason": "x"}
        assert viewer.post(f"/do/bots/{path}", data=given).status_code == 403
        assert viewer.get(f"/do/bots/{path}", params=given).status_code == 403
        assert viewer.post(f"/api/bots/{path}", json=given).status_code == 403
    assert states(bus) == []


def test_a_program_lists_shows_and_fires(monitor: Monitor, bus: ReadingBus) -> None:
    program = monitor.program("nightly", Right.OPERATOR)
    found = program.get("/api/bots").json()["found"]
    assert [(each["bot"], each["state"]) for each in found] == [(NAME, "waiting"), ("summary", "waiting")]
    assert program.get(f"/api{PAGE}").json()["cron"] == "0 3 * * *"
    fired = program.post("/api/bots/fire", json={"name": NAME, "reason": "see it"})
    assert fired.status_code == 200
    run = bus.run(NAME, state="failed", log="printed\n", code="bot_failed", error="no disk")
    runs = program.get("/api/runs", params={"bot": NAME}).json()
    assert [each["state"] for each in runs["found"]] == ["failed", "due"]
    older = program.get("/api/runs", params={"limit": 1}).json()
    assert older["next"] == {"before": run}
    assert [each["state"] for each in program.get("/api/runs", params=older["next"]).json()["found"]] == ["due"]
    assert program.get("/api/runs", params={"state": "done"}).json()["found"] == []
    assert program.get(f"/api/runs/{run}").json()["log"] == "printed\n"
    assert program.get(f"/api/runs/{run + 1}").status_code == 404
    assert program.get("/api/runs", params={"bot": "nobody"}).status_code == 404


def test_an_unknown_bot_has_no_page(viewer: TestClient, bus: ReadingBus) -> None:
    for path in ("/bots/nobody", f"/bots/{'x' * 1000}", "/live/bot?name=nobody", "/api/bots/nobody"):
        assert viewer.get(path).status_code == 404
