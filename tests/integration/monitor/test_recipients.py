"""Roles in the browser: how they are, and pausing, draining, detaching and attaching them."""

from datetime import timedelta

import pytest
from fastapi.testclient import TestClient

from tests.integration.admin.parked_bus import ParkedBus
from tests.integration.monitor.conftest import CHEAP, Monitor
from xbus.broker.journal.audit import AuditFilters, list_acts
from xbus.broker.journal.configuration import Section, read_stored
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.log.catalog import read_pauses
from xbus.broker.journal.operations.roles import list_roles
from xbus.broker.journal.samples.sample import Delivered, RoleLag, Sample, keep
from xbus.broker.journal.writes import PauseKind
from xbus.rights import Right

SUBJECTS = {"role": "store_1", "service": "store", "type": "clients", "emitter": "shop_1"}


def paused(url: str) -> set[tuple[PauseKind, str]]:
    with reading(url) as connection:
        return {(each.kind, each.name) for each in read_pauses(connection).values()}


def test_the_list_shows_state_lag_and_parked_work(viewer: TestClient, parked: ParkedBus) -> None:
    page = viewer.get("/recipients").text
    assert "/recipients/store_1" in page
    assert "absent" in page
    assert "/parked?role=counter_1" in page
    assert viewer.get("/live/recipients", headers={"hx-request": "true"}).text.lstrip().startswith("<div")


def test_a_role_shows_why_and_what_failed(viewer: TestClient, parked: ParkedBus) -> None:
    page = viewer.get("/recipients/counter_1").text
    assert "xbus why --role counter_1" in page
    assert "/live/why?role=counter_1" in page
    assert "parked for counter_1" in viewer.get("/live/why", params={"role": "counter_1"}).text
    assert "/audit?object=role+%22counter_1%22" in page


def test_a_role_shows_its_rates_and_its_lag_over_time(viewer: TestClient, monitor: Monitor, parked: ParkedBus) -> None:
    with writing(parked.url) as connection:
        roles = {role.role: role.role_id for role in list_roles(connection)}
        now = monitor.bus.now()
        for place in range(60, 0, -1):
            at = now - place * timedelta(seconds=10)
            delivered = {roles["store_1"]: Delivered(40, 700), roles["counter_1"]: Delivered(1, 10)}
            lags = {roles["store_1"]: RoleLag(23, 7.0, 5)}
            keep(connection, Sample(10, at, at + timedelta(seconds=10), 10, 1, roles=lags, delivered=delivered))
    page = viewer.get("/recipients/store_1").text
    plots = viewer.get("/live/role-plots", params={"role": "store_1"}, headers={"hx-request": "true"}).text
    for shown in (page, plots):
        assert "Z: 70, 4 envelopes/s" in shown
        assert "Z: 7 s" in shown
        assert "Z: 23, 5 parked" in shown
    assert "/live/role-plots?role=store_1&amp;range=15min" in page
    assert "Items delivered each second" in viewer.get("/recipients/store_1", params={"range": "5w"}).text
    assert viewer.get("/live/role-plots", params={"role": "nobody"}).status_code == 404


@pytest.mark.parametrize("path", ["/recipients/nobody", "/recipients/a/b/../c", f"/recipients/{'x' * 1000}"])
def test_an_unknown_role_has_no_page(viewer: TestClient, parked: ParkedBus, path: str) -> None:
    assert viewer.get(path).status_code == 404


@pytest.mark.parametrize(("kind", "name"), SUBJECTS.items())
def test_each_kind_is_paused_and_resumed(operator: TestClient, parked: ParkedBus, kind: str, name: str) -> None:
    subject = {"kind": kind, "name": name}
    form = operator.get("/do/pause", params=subject).text
    assert "goes on" in form
    done = operator.post("/do/pause", data={**subject, "reason": "<b>tired</b>", "until": "2h"})
    assert "&lt;b&gt;tired" in done.text
    assert paused(parked.url) == {(PauseKind(kind), name)}
    state = operator.get("/live/pauses", params=subject)
    assert state.status_code == 200
    assert "tired" in operator.get("/do/resume", params=subject).text
    assert operator.post("/do/resume", data=subject).status_code == 200
    assert paused(parked.url) == set()
    assert operator.post("/do/resume", data=subject).status_code == 409


def test_draining_pauses_and_tells_what_is_under_way(operator: TestClient, parked: ParkedBus) -> None:
    subject = {"kind": "role", "name": "store_1"}
    assert operator.post("/do/drain", data={**subject, "reason": "release"}).status_code == 200
    page = operator.get("/recipients/store_1").text
    assert "/live/pauses?kind=role&amp;name=store_1" in page
    state = operator.get("/live/pauses", params=subject, headers={"hx-request": "true"}).text
    assert "learns" in state or "Drained" in state


def test_unknown_ones_are_explained(viewer: TestClient, parked: ParkedBus) -> None:
    for kind in ("role", "emitter"):
        assert "<script>" not in viewer.get("/live/why", params={kind: "<script>nobody"}).text
        assert "nobody" in viewer.get("/live/why", params={kind: "<script>nobody"}).text


def test_the_audit_has_the_person(operator: TestClient, parked: ParkedBus) -> None:
    operator.post("/do/pause", data={"kind": "role", "name": "store_1", "reason": "tired"})
    with reading(parked.url) as connection:
        act = list_acts(connection, AuditFilters(action="paused"), 1)[0].act
    assert (act.who, act.origin, act.object, act.reason) == ("ada", "testclient", 'role "store_1"', "tired")


def test_a_role_is_detached_with_a_preview_and_attached_again(operator: TestClient, parked: ParkedBus) -> None:
    form = operator.get("/do/recipients/detach", params={"login": "store_1"}).text
    assert "will miss" in form
    done = operator.post("/do/recipients/detach", data={"login": "store_1", "reason": "gone"})
    assert done.status_code == 200
    assert "detached" in operator.get("/recipients/store_1").text
    assert operator.post("/do/recipients/detach", data={"login": "store_1", "reason": "gone"}).status_code == 409
    assert "position 4" in operator.post("/do/recipients/attach", data={"login": "store_1"}).text


def test_who_may_only_look_changes_nothing(viewer: TestClient, parked: ParkedBus) -> None:
    for path, fields in (
        ("pause", {"kind": "role", "name": "store_1", "reason": "x"}),
        ("drain", {"kind": "role", "name": "store_1", "reason": "x"}),
        ("resume", {"kind": "role", "name": "store_1"}),
        ("recipients/detach", {"login": "store_1", "reason": "x"}),
        ("recipients/attach", {"login": "store_1"}),
        ("configuration/password", {"kind": "role", "login": "store_1", "password": "secret"}),
        ("configuration/apply", {"file": ""}),
    ):
        assert viewer.post(f"/do/{path}", data=fields).status_code == 403
        assert viewer.get(f"/do/{path}", params=fields).status_code == 403
        assert viewer.post(f"/api/{path}", json=fields).status_code == 403
    assert "/do/pause" not in viewer.get("/recipients/store_1").text
    assert paused(parked.url) == set()


def test_an_operator_sets_no_password(operator: TestClient, parked: ParkedBus) -> None:
    fields = {"kind": "role", "login": "store_1", "password": "secret"}
    assert operator.post("/do/configuration/password", data=fields).status_code == 403


def test_a_password_is_set_as_it_is_typed(monitor: Monitor, parked: ParkedBus) -> None:
    monitor.add("root", Right.MANAGER)
    manager = monitor.enter("root")
    typed = " of blanks "
    done = manager.post("/do/configuration/password", data={"kind": "emitter", "login": "shop_1", "password": typed})
    assert done.status_code == 200
    assert typed.strip() not in done.text
    with reading(parked.url) as connection:
        password_hash = connection.exec_driver_sql("select password_hash from emitter").scalar_one()
        assert "shop_1" in read_stored(connection).in_use.section(Section.EMITTER)
    assert CHEAP.verify(typed, password_hash)
    unknown = manager.post("/do/configuration/password", data={"kind": "role", "login": "shop_1", "password": "x"})
    assert unknown.status_code == 404
