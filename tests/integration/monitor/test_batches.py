"""Parked batches of subscriptions in the browser and for programs: seen, resumed and dropped."""

import pytest
from fastapi.testclient import TestClient

from tests.integration.monitor.conftest import Monitor
from tests.support.reading_bus import ReadingBus, make_reading_bus
from xbus.broker.journal.audit import AuditFilters, list_acts
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.readers.parked import list_parked_batches
from xbus.rights import Right


@pytest.fixture
def bus(database_url: str) -> ReadingBus:
    return make_reading_bus(database_url)


def parked(bus: ReadingBus) -> list[str]:
    with reading(bus.url) as connection:
        return [each.id for each in list_parked_batches(connection)]


def test_nothing_is_parked(viewer: TestClient, bus: ReadingBus) -> None:
    assert "No batch is parked" in viewer.get("/batches").text
    assert viewer.get("/batches/msg_00").status_code == viewer.get("/api/batches/msg_00").status_code == 404


def test_a_batch_is_found_from_its_subscription(viewer: TestClient, bus: ReadingBus) -> None:
    batch = bus.park("<script>alert(1)</script>")
    of_shop = "subscription%2Fshop"
    for path in (f"/readers/{of_shop}", "/batches", "/batches?subscription=shop"):
        page = viewer.get(path).text
        assert f"/batches/{batch}" in page
        assert "<script>alert" not in page
        # A viewer may not act.
        assert "/do/batches" not in page
    shown = viewer.get(f"/batches/{batch}").text
    assert "after 3 attempts" in shown
    assert "/envelopes/00000000-0000-0000-0000-000000000001" in shown
    assert f"xbus parked batch show {batch}" in shown
    assert batch not in viewer.get("/batches?subscription=other").text
    assert viewer.post("/do/batches/resume", data={"batch": batch}).status_code == 403
    assert parked(bus) == [batch]


def test_batches_are_resumed_and_dropped(operator: TestClient, bus: ReadingBus) -> None:
    one, other, third = bus.park(), bus.park(position=2), bus.park(position=3)
    assert "/do/batches/drop" in operator.get("/batches").text
    form = operator.get("/do/batches/resume", params={"batch": [one, other]}).text
    assert f"shop gets {one} again." in form
    assert f"xbus parked batch resume {one} {other}" in form
    # All or none.
    assert operator.post("/do/batches/resume", data={"batch": [one, "msg_00"]}).status_code == 404
    assert len(parked(bus)) == 3
    assert operator.post("/do/batches/resume", data={"batch": [one, other]}).status_code == 200
    assert parked(bus) == [third]
    assert operator.post("/do/batches/drop", data={"batch": third, "reason": ""}).status_code == 422
    assert operator.post("/do/batches/drop", data={"batch": third, "reason": "sold"}).status_code == 200
    assert parked(bus) == []
    assert operator.post("/do/batches/drop", data={"batch": third, "reason": "sold"}).status_code == 404
    with reading(bus.url) as connection:
        acts = [row.act for row in list_acts(connection, AuditFilters(), 10)]
    assert ("ada", "dropped", "sold") in [(act.who, act.action, act.reason) for act in acts]
    assert len([act for act in acts if act.action == "resumed"]) == 2


def test_programs_see_them_and_act(monitor: Monitor, bus: ReadingBus) -> None:
    batch = bus.park()
    program = monitor.program("shop", Right.OPERATOR)
    (told,) = program.get("/api/batches").json()["found"]
    assert (told["batch"], told["subscription"], told["attempts"]) == (batch, "shop", 3)
    assert program.get(f"/api/batches/{batch}").json()["envelope_ids"] == ["00000000-0000-0000-0000-000000000001"]
    assert program.post("/api/batches/resume", json={"batch": [batch]}).status_code == 200
    assert parked(bus) == []
