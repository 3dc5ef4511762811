"""Readers in the browser and for programs: how far they are, and moving, undoing, splitting and merging."""

from datetime import UTC, datetime

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from tests.integration.monitor.conftest import Monitor
from tests.support.reading_bus import PROGRAM, ReadingBus, make_reading_bus
from xbus import model
from xbus.broker.journal.audit import AuditFilters, list_acts
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.readers.status import list_moves, list_readers
from xbus.rights import Right

NOW = datetime(2026, 11, 20, tzinfo=UTC)


@pytest.fixture
def bus(database_url: str) -> ReadingBus:
    return make_reading_bus(database_url)


def test_the_list_shows_who_reads_and_the_lag(viewer: TestClient, bus: ReadingBus) -> None:
    page = viewer.get("/readers").text
    assert 'href="/readers/billing"' in page
    assert 'href="/readers/bot%2Fsummary"' in page
    assert 'href="/bots/summary"' in page
    assert "billing_1" in page
    assert '<td class="number">5</td>' in page
    assert viewer.get("/live/readers", headers={"hx-request": "true"}).text.lstrip().startswith("<div")


def test_a_reader_shows_its_ranges_and_its_history(viewer: TestClient, bus: ReadingBus) -> None:
    page = viewer.get("/readers/billing").text
    assert str(PROGRAM) in page
    assert ">out<" in page
    assert ">free<" in page
    assert "checkpoint" in page
    assert "xbus reader show billing" in page
    assert "/do/readers" not in page
    part = viewer.get("/live/reader", params={"name": "billing"}).text
    assert part.lstrip().startswith("<div")
    assert str(PROGRAM) in part


def test_the_reader_of_a_bot_has_a_page(viewer: TestClient, bus: ReadingBus) -> None:
    page = viewer.get("/readers/bot%2Fsummary")
    assert page.status_code == 200
    assert "/bots/summary" in page.text


def test_an_unknown_reader_has_no_page(viewer: TestClient, bus: ReadingBus) -> None:
    for path in ("/readers/nobody", f"/readers/{'x' * 1000}", "/live/reader?name=nobody", "/api/readers/nobody"):
        assert viewer.get(path).status_code == 404


def test_a_reader_is_moved_and_put_back(operator: TestClient, bus: ReadingBus) -> None:
    form = operator.get("/do/readers/move", params={"name": "billing"})
    assert "2 ranges of billing go on" in form.text
    form = operator.get("/do/readers/move", params={"name": "billing", "place": "2"})
    assert f"Range {bus.ranges[0]} goes on at 2; it was at 3." in form.text
    assert "xbus reader move billing 2" in form.text
    done = operator.post("/do/readers/move", data={"name": "billing", "place": "2", "reason": "wrong prices"})
    assert done.status_code == 200
    assert bus.places() == ["2", "2"]
    form = operator.get("/do/readers/undo", params={"name": "billing"})
    assert f"Range {bus.ranges[0]} goes on at 3; it was at 2." in form.text
    assert operator.post("/do/readers/undo", data={"name": "billing", "reason": "all well"}).status_code == 200
    assert bus.places() == ["3", "1"]
    with reading(bus.url) as connection:
        acts = [row.act for row in list_acts(connection, AuditFilters(object='reader "billing"'), 10)]
    assert [(act.who, act.action) for act in acts][:2] == [("ada", "move_undone"), ("ada", "moved")]


def test_one_act_of_the_history_is_undone(operator: TestClient, bus: ReadingBus) -> None:
    with reading(bus.url) as connection:
        (entry,) = list_readers(connection, "billing")
        (checkpoint,) = list_moves(connection, entry.entry.id, 10)
    page = operator.get("/readers/billing").text
    assert f"act={checkpoint.act}" in page
    fields = {"name": "billing", "act": str(checkpoint.act), "reason": "again"}
    assert operator.post("/do/readers/undo", data=fields).status_code == 200
    assert bus.places() == ["1", "1"]
    assert operator.post("/do/readers/undo", data=fields).status_code == 409


@pytest.mark.parametrize("place", ["99", "soon", "-1", "1:2", "9" * 60])
def test_a_place_that_is_none_moves_nothing(operator: TestClient, bus: ReadingBus, place: str) -> None:
    fields = {"name": "billing", "place": place, "reason": "x"}
    assert operator.post("/do/readers/move", data=fields).status_code == 422
    assert operator.get("/do/readers/move", params=fields).status_code == 422
    assert bus.places() == ["3", "1"]


def test_a_range_is_split_and_merged(operator: TestClient, bus: ReadingBus) -> None:
    first, second = bus.ranges
    form = operator.get("/do/readers/split", params={"name": "billing", "range_id": first})
    assert "two halves, which go on at 3" in form.text
    assert "in two parts" in form.text
    done = operator.post("/do/readers/split", data={"name": "billing", "range_id": first, "reason": "slow"})
    assert f"Range {first} is split into" in done.text
    assert bus.places() == ["3", "3", "1"]
    page = operator.get("/readers/billing").text
    assert f"range_ids={first}" not in page
    with reading(bus.url) as connection:
        ids = [each.range.id for each in list_readers(connection, "billing")[0].ranges]
    assert f"range_ids={ids[0]}&amp;range_ids={ids[1]}" in page
    form = operator.get("/do/readers/merge", params={"name": "billing", "range_ids": ids[:2]})
    assert "Make one range of" in form.text
    apart = {"name": "billing", "range_ids": [str(ids[0]), str(second)], "reason": "x"}
    assert operator.post("/do/readers/merge", data=apart).status_code == 409
    near = {"name": "billing", "range_ids": [str(ids[1]), str(second)], "reason": "x"}
    assert operator.post("/do/readers/merge", data=near).status_code == 200
    assert len(bus.places()) == 2


def test_who_may_only_look_moves_nothing(viewer: TestClient, bus: ReadingBus) -> None:
    range_id = str(bus.ranges[0])
    for path, fields in (
        ("move", {"place": "head"}),
        ("undo", {}),
        ("split", {"range_id": range_id}),
        ("merge", {"range_ids": range_id}),
    ):
        given = {"name": "billing", "reason": "x", **fields}
        assert viewer.post(f"/do/readers/{path}", data=given).status_code == 403
        assert viewer.get(f"/do/readers/{path}", params=given).status_code == 403
        assert viewer.post(f"/api/readers/{path}", json=given).status_code == 403
    assert bus.places() == ["3", "1"]


def test_a_program_lists_shows_and_moves(monitor: Monitor, bus: ReadingBus) -> None:
    program = monitor.program("nightly", Right.OPERATOR)
    found = program.get("/api/readers").json()["found"]
    assert [(each["reader"], each["lag"], each["state"]) for each in found] == [
        ("billing", 5, "present"),
        ("bot/summary", 5, "absent"),
        ("subscription/shop", 5, "absent"),
    ]
    shown = program.get("/api/readers/billing").json()
    assert [each["state"] for each in shown["range_list"]] == ["out", "free"]
    assert [each["action"] for each in shown["history"]] == ["checkpoint"]
    assert program.get("/api/readers/bot%2Fsummary").json()["reader"] == "bot/summary"
    moved = program.post("/api/readers/move", json={"name": "billing", "place": "head", "reason": "skip"})
    assert moved.status_code == 200
    assert bus.places() == ["6", "6"]


def test_a_subscription_shows_whom_it_calls_and_its_failures(viewer: TestClient, bus: ReadingBus) -> None:
    page = viewer.get("/readers/subscription%2Fshop").text
    assert "https://shop.example/hook" in page
    assert ">healthy<" in page
    assert "whsec" not in page
    assert "https://shop.example/hook" in viewer.get("/readers").text
    assert 'href="/readers/subscription%2Fshop"' in viewer.get("/configuration").text
    failing = {"failures": 3, "failing_since": NOW, "retry_at": NOW, "code": "http_500", "error": "<b>no</b>"}
    with writing(bus.url) as connection:
        connection.execute(sa.update(model.subscription_state).values(failing))
    page = viewer.get("/readers/subscription%2Fshop").text
    assert "3 calls failed" in page
    assert "&lt;b&gt;no" in page
    assert ">failed<" in viewer.get("/readers").text


def test_a_paused_subscription_says_who_paused_it_and_when_it_calls_again(
    operator: TestClient, bus: ReadingBus
) -> None:
    failing = {"failures": 3, "failing_since": NOW, "retry_at": NOW, "code": "http_500", "error": "no"}
    with writing(bus.url) as connection:
        connection.execute(sa.update(model.subscription_state).values(failing))
    paused = {"kind": "service", "name": "subscription/shop", "reason": "they move house"}
    assert operator.post("/do/pause", data=paused).status_code == 200
    page = operator.get("/readers/subscription%2Fshop").text
    assert "they move house" in page
    assert "called again when it is resumed" in page
    assert "/do/resume" in page
    of_shop = {"kind": "service", "name": "subscription/shop"}
    assert operator.get("/live/pauses", params=of_shop).status_code == 200
    part = operator.get("/live/reader", params={"name": "subscription/shop"}).text
    assert ">paused<" in part
    assert "3 calls failed" in part
    assert ">paused<" in operator.get("/readers").text
    assert ">paused<" in operator.get("/configuration").text


def test_an_ended_subscription_is_no_absent_reader_and_goes_on(operator: TestClient, bus: ReadingBus) -> None:
    resume = {"name": "shop", "reason": "it is back"}
    assert operator.post("/do/subscriptions/resume", data=resume).status_code == 409
    assert "subscriptions/resume" not in operator.get("/readers/subscription%2Fshop").text
    ended = {"failures": 1, "failing_since": NOW, "code": "callback_gone", "error": "410", "ended_at": NOW}
    with writing(bus.url) as connection:
        connection.execute(sa.update(model.subscription_state).values(ended))
    page = operator.get("/readers/subscription%2Fshop").text
    assert "the subscriber wanted no more" in page
    assert ">stopped<" in page
    assert ">absent<" not in page
    assert "does not wait for it" in page
    row = operator.get("/readers").text.partition("subscription/shop")[2]
    assert ">stopped<" in row
    assert ">absent<" not in row
    assert "not waited for" in row
    form = operator.get("/do/subscriptions/resume", params={"name": "shop"}).text
    assert "https://shop.example/hook" in form
    assert operator.post("/do/subscriptions/resume", data=resume).status_code == 200
    assert ">healthy<" in operator.get("/readers/subscription%2Fshop").text
    with reading(bus.url) as connection:
        (act,) = [row.act for row in list_acts(connection, AuditFilters(object='subscription "shop"'), 1)]
    assert (act.who, act.action, act.reason) == ("ada", "resumed", "it is back")


def test_a_subscription_is_edited_without_its_secret(monitor: Monitor, bus: ReadingBus) -> None:
    monitor.add("mia", Right.MANAGER)
    form = monitor.enter("mia").get("/configuration/edit", params={"section": "subscription", "name": "shop"})
    assert form.status_code == 200
    assert "whsec" not in form.text
