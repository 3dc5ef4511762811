"""Pages of clearing where nobody can be asked; the acceptance tests clear items at a real consumer."""

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.integration.monitor.conftest import CHEAP, PASSWORD, Monitor, log_in
from tests.support.daemon import write_config
from tests.support.ports import free_port
from xbus.admin.repair.payload import mask_details
from xbus.broker.journal.audit import AuditFilters, list_acts
from xbus.broker.journal.database.connection import reading
from xbus.clock import SystemClock
from xbus.config import load
from xbus.monitor.bus import BusAccess
from xbus.monitor.program import build
from xbus.rights import Right
from xbus.rpc.codec import Value

CLEAR = {"type": "data_clearing", "item_id": "1", "values": '{"email": "a@b"}'}


def test_a_monitor_without_an_emitter_says_so(monitor: Monitor, viewer: TestClient) -> None:
    page = viewer.get("/clearing")
    assert page.status_code == 200
    assert "clearing_login" in page.text
    assert viewer.get("/clearing/data_clearing/1").status_code == 404
    assert [viewer.get(f"/api/clearing{path}").json()["code"] for path in ("", "/data_clearing/1")] == [
        "no_clearing_login"
    ] * 2
    monitor.add("cleo", Right.CLEARER)
    assert monitor.enter("cleo").post("/do/clearing/clear", data=CLEAR).status_code == 404


def test_only_a_clearer_clears(monitor: Monitor, viewer: TestClient, operator: TestClient) -> None:
    for browser in (viewer, operator):
        assert browser.post("/do/clearing/clear", data=CLEAR).status_code == 403
        assert browser.post("/api/clearing/clear", json=CLEAR).status_code == 403
    with reading(monitor.url) as connection:
        assert [row for row in list_acts(connection, AuditFilters(), 100) if row.act.action == "cleared"] == []


@pytest.mark.parametrize("path", ["/clearing/x/y", f"/clearing/x/{2**70}", "/clearing/a/b/c", "/clearing?state=lost"])
def test_addresses_that_are_none_are_refused(viewer: TestClient, path: str) -> None:
    assert viewer.get(path).status_code in (404, 422)


def test_a_broker_that_is_away_is_told(monitor: Monitor, tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("x")
    secret.chmod(0o600)
    options: dict[str, dict[str, object]] = {
        "zmq": {"frontsocket": f"tcp://127.0.0.1:{free_port()}"},
        "monitor": {"clearing_login": "shop_1", "clearing_password_file": secret},
    }
    config = load(write_config(tmp_path / "other.ini", monitor.url, options))
    app = build(BusAccess(config, monitor.bus.journal, SystemClock(), CHEAP), is_encrypted=False)
    monitor.add("vera")
    browser = TestClient(app, "http://monitor", raise_server_exceptions=False)
    log_in(browser, "vera", PASSWORD)
    page = browser.get("/clearing")
    assert (page.status_code, 'role="alert"' in page.text) == (503, True)


def test_secret_fields_are_hidden_in_details() -> None:
    details: list[Value] = [
        {"id": 1, "source_data": {"name": "Ada", "card": {"number": 4}}, "out_data": {"card": {"number": 5}}}
    ]
    assert mask_details(details, {"order": {"card.number"}}) == [
        {"id": 1, "source_data": {"name": "Ada", "card": {"number": "***"}}, "out_data": {"card": {"number": "***"}}}
    ]
