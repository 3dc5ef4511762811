"""Pages of envelopes, items and parked work, and the repairs on them."""

import html
import json
from uuid import UUID

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import update

from tests.integration.admin.parked_bus import ParkedBus
from tests.integration.monitor.conftest import Monitor
from xbus.admin.repair.view import view
from xbus.broker.journal.audit import AuditFilters, list_acts
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.operations.envelopes.details import show_envelope
from xbus.model import event_type
from xbus.rights import Right

UNKNOWN = UUID(int=7)


def states(parked: ParkedBus, envelope_id: UUID) -> dict[str | None, str]:
    """The states of an envelope at its roles."""
    with reading(parked.url) as connection:
        detail = show_envelope(connection, envelope_id)
    assert detail is not None
    return {role.role: role.state for role in detail.summary.roles}


def test_the_list_shows_envelopes(viewer: TestClient, parked: ParkedBus) -> None:
    page = viewer.get("/envelopes")
    assert page.status_code == 200
    assert all(f"/envelopes/{each}" in page.text for each in (parked.both, parked.alone, parked.done))
    only = viewer.get("/envelopes", params={"undelivered": "true"})
    assert str(parked.done) not in only.text


def test_a_filter_that_names_nothing_says_so(viewer: TestClient, parked: ParkedBus) -> None:
    for name in ("type", "emitter", "role"):
        page = viewer.get("/envelopes", params={name: "nobody"})
        assert page.status_code == 404
        assert "nobody" in page.text


def test_an_envelope_shows_why_and_where(viewer: TestClient, parked: ParkedBus) -> None:
    page = viewer.get(f"/envelopes/{parked.both}").text
    assert "parked" in page
    assert "no name" in page
    assert f"xbus why {parked.both}" in page
    assert f"/parked/{parked.both}" in page


def test_an_unknown_envelope_is_explained(viewer: TestClient, parked: ParkedBus) -> None:
    page = viewer.get(f"/envelopes/{UNKNOWN}")
    assert page.status_code == 404
    assert "xbus why" in page.text


@pytest.mark.parametrize("path", ["/envelopes/xyz", "/envelopes/..%2f..%2fetc", f"/parked/{UNKNOWN}", "/parked/zz"])
def test_ids_that_are_none_are_refused(viewer: TestClient, parked: ParkedBus, path: str) -> None:
    assert viewer.get(path).status_code in (404, 422)


def test_the_search_box_leads_to_an_id_a_key_or_items(viewer: TestClient, parked: ParkedBus) -> None:
    found = viewer.get("/envelopes/find", params={"text": f" {parked.both} "}, follow_redirects=False)
    assert found.headers["location"] == f"/envelopes/{parked.both}"
    event = viewer.get("/envelopes/find", params={"text": str(parked.event_id(parked.alone))}, follow_redirects=False)
    assert event.headers["location"] == f"/envelopes/{parked.alone}"
    hexadecimal = viewer.get("/envelopes/find", params={"text": "abcdef0123"}, follow_redirects=False)
    assert hexadecimal.headers["location"] == "/items?text=abcdef0123"
    text = viewer.get("/envelopes/find", params={"text": "ada & co"}, follow_redirects=False)
    assert text.headers["location"] == "/items?text=ada+%26+co"


def test_items_are_found_by_a_text_in_them(viewer: TestClient, parked: ParkedBus) -> None:
    page = viewer.get("/items", params={"type": "clients", "text": "LIN"}).text
    assert f"/envelopes/{parked.both}/items?event=1&amp;from=2" in page
    assert "from=0" not in page
    by_field = viewer.get("/items", params={"type": "clients", "text": "number=4"}).text
    assert "from=1" in by_field


def test_items_are_shown_as_what_they_are(viewer: TestClient, parked: ParkedBus) -> None:
    page = viewer.get(f"/envelopes/{parked.both}/items").text
    assert html.escape('{"name": "ada", "number": 1}', quote=True).replace("&quot;", "&#34;") in page
    assert "ff 00 fe" in page


def test_an_operator_resumes_what_is_parked(operator: TestClient, parked: ParkedBus) -> None:
    form = operator.get("/do/parked/resume", params={"envelope_id": str(parked.both), "role": "store_1"}).text
    assert f"store_1 gets envelope {parked.both} again." in form
    assert f"xbus parked resume {parked.both} --role store_1" in form
    done = operator.post(
        "/do/parked/resume", data={"envelope_id": str(parked.both), "role": "store_1", "reason": "it is back"}
    )
    assert f"Resumed envelope {parked.both} for store_1." in done.text
    assert states(parked, parked.both)["store_1"] == "retry"
    again = operator.post("/do/parked/resume", data={"envelope_id": str(parked.both), "role": "store_1"})
    assert (again.status_code, "not_parked" in again.text) == (409, True)


def test_a_repair_is_the_persons_in_the_audit(operator: TestClient, parked: ParkedBus) -> None:
    operator.post("/do/parked/drop", data={"envelope_id": str(parked.both), "reason": "nobody needs it"})
    with reading(parked.url) as connection:
        acts = [row.act for row in list_acts(connection, AuditFilters(), 100)]
    dropped = [act for act in acts if act.action == "dropped"]
    assert {(act.who, act.origin, act.reason) for act in dropped} == {("ada", "testclient", "nobody needs it")}


def test_several_are_dropped_at_once_or_none(operator: TestClient, parked: ParkedBus) -> None:
    named = {"envelope_id": [str(parked.both), str(parked.done)], "reason": "old"}
    assert operator.post("/do/parked/drop", data=named).status_code == 409
    assert states(parked, parked.both)["store_1"] == "parked"
    named["envelope_id"] = [str(parked.both), str(parked.alone)]
    assert operator.post("/do/parked/drop", data=named).status_code == 200
    assert operator.get("/parked").text.count("/do/parked/resume-all") == 0


def test_a_drop_wants_a_reason(operator: TestClient, parked: ParkedBus) -> None:
    for reason in ({}, {"reason": ""}, {"reason": "   "}):
        answer = operator.post("/do/parked/drop", data={"envelope_id": str(parked.both), **reason})
        assert answer.status_code == 422
    assert states(parked, parked.both)["store_1"] == "parked"


def test_all_of_a_group_are_resumed(operator: TestClient, parked: ParkedBus) -> None:
    form = operator.get("/do/parked/resume-all", params={"role": "counter_1", "code": "refused"}).text
    assert "counter_1 gets 1 envelope and 2 items that were parked alone again that failed with refused." in form
    done = operator.post("/do/parked/resume-all", data={"role": "counter_1", "code": "refused"})
    assert "Resumed 1 envelope and 2 items" in done.text
    assert states(parked, parked.both) == {"store_1": "parked", "counter_1": "retry"}


@pytest.fixture
def secret(parked: ParkedBus) -> ParkedBus:
    """Names of clients are secret."""
    with writing(parked.url) as connection:
        connection.execute(update(event_type).where(event_type.c.name == "clients").values(secret="name"))
    return parked


def test_nobody_sees_or_guesses_a_secret_field(monitor: Monitor, viewer: TestClient, secret: ParkedBus) -> None:
    program = monitor.program("bot", Right.MANAGER)
    shown = (
        viewer.get(f"/envelopes/{secret.both}/items"),
        viewer.get(f"/parked/{secret.both}", params={"event": "1"}),
        viewer.get("/items", params={"type": "clients", "text": "number=1"}),
        program.get(f"/api/envelopes/{secret.both}/items"),
        program.get("/api/items", params={"type": "clients", "text": "number=1"}),
    )
    for answer in shown:
        assert answer.status_code == 200, answer.text
        assert "***" in answer.text
        assert "ada" not in answer.text.replace("data", "")
    for guess in ("ad", "name=ada"):
        found = program.get("/api/items", params={"type": "clients", "text": guess}).json()
        assert "***" not in str(found)


def test_a_secret_stays_as_it_is_in_a_correction(operator: TestClient, secret: ParkedBus) -> None:
    target = {"envelope_id": str(secret.both), "event": "1", "item": "0"}
    form = operator.get("/do/parked/correct", params=target).text
    assert "***1" in form
    assert "&#34;ada&#34;" not in form
    typed = {**target, "value": '{"name": "***1", "number": 2}', "reason": "a typo"}
    assert operator.post("/do/parked/correct", data=typed).status_code == 200
    with reading(secret.url) as connection:
        (item,) = view(connection, secret.both, None, "1", (0, 0), show_secrets=True).items
    assert [item.corrected(each).value for each in item.corrections] == [{"name": "ada", "number": 2}]
    guessed = operator.post("/do/parked/correct", data={**target, "value": '{"name": "***7"}', "reason": "x"})
    assert (guessed.status_code, "bad_mask" in guessed.text) == (422, True)


def test_an_item_is_corrected_and_resumed(operator: TestClient, parked: ParkedBus) -> None:
    target = {"envelope_id": str(parked.both), "event": "1", "item": "1", "resume": "true"}
    form = operator.get("/do/parked/correct", params=target).text
    assert "&#34;number&#34;: 4" in form
    assert "Corrects item 1 of event 1 for all roles that lack it" in form
    typed = {**target, "value": '{"number": 4, "name": "lou"}', "reason": "asked the client"}
    done = operator.post("/do/parked/correct", data=typed)
    assert done.status_code == 200, done.text
    assert set(states(parked, parked.both).values()) == {"retry"}


@pytest.mark.parametrize(("value", "code"), [("{", "bad_json"), ("NaN", "bad_json")])
def test_a_bad_correction_is_refused(operator: TestClient, parked: ParkedBus, value: str, code: str) -> None:
    typed = {"envelope_id": str(parked.both), "event": "1", "item": "1", "value": value, "reason": "x"}
    answer = operator.post("/do/parked/correct", data=typed)
    assert (answer.status_code, code in answer.text) == (422, True)


ACTIONS: list[tuple[str, dict[str, object]]] = [
    ("parked/resume", {"envelope_id": ["{both}"]}),
    ("parked/resume-all", {"role": "store_1"}),
    ("parked/drop", {"envelope_id": ["{both}"], "reason": "x"}),
    ("parked/correct", {"envelope_id": "{both}", "event": "1", "item": 1, "value": "1", "reason": "x"}),
]


@pytest.mark.parametrize(("path", "fields"), ACTIONS)
def test_a_viewer_changes_nothing(viewer: TestClient, parked: ParkedBus, path: str, fields: dict[str, object]) -> None:
    request = json.loads(json.dumps(fields).replace("{both}", str(parked.both)))
    before = states(parked, parked.both)
    assert viewer.get(f"/do/{path}", params=request).status_code == 403
    assert viewer.post(f"/do/{path}", data=request).status_code == 403
    answer = viewer.post(f"/api/{path}", json=request)
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert states(parked, parked.both) == before
    assert "/do/parked" not in viewer.get("/parked").text


def test_a_token_has_no_more_than_its_rights(monitor: Monitor, parked: ParkedBus) -> None:
    watcher, repairer = monitor.program("watcher", Right.VIEWER), monitor.program("repairer", Right.OPERATOR)
    request = {"envelope_id": [str(parked.both)], "role": "store_1"}
    assert watcher.post("/api/parked/resume", json=request).status_code == 403
    done = repairer.post("/api/parked/resume", json=request).json()
    assert done["done"] == [f"Resumed envelope {parked.both} for store_1."]
    assert done["command"] == f"xbus parked resume {parked.both} --role store_1"


def test_a_misspelt_field_is_no_field(monitor: Monitor, parked: ParkedBus) -> None:
    program = monitor.program("repairer", Right.OPERATOR)
    answer = program.post("/api/parked/resume", json={"envelope_id": [str(parked.both)], "rolle": "store_1"})
    assert (answer.status_code, answer.json()["code"]) == (422, "bad_request")
    assert states(parked, parked.both)["counter_1"] == "parked"
