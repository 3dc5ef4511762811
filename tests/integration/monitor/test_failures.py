"""Pages of failures: groups, one group, one failure, and what an operator does with them."""

import json
from collections.abc import Sequence
from html import unescape
from uuid import UUID

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from tests.integration.admin.conftest import NOON
from tests.integration.admin.parked_bus import ParkedBus
from tests.integration.monitor.conftest import Monitor
from xbus import model
from xbus.broker.journal.audit import AuditFilters, list_acts
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.operations.failures import FailureDetail, show_failure
from xbus.broker.journal.writes.fingerprint import fingerprint

HOSTILE = "<script>alert(1)</script>\u202e\x1b[2J " + "x" * 1000
UNKNOWN = ("/failures/999999", f"/failures/{10**30}", "/failures/x", "/failures/0", "/failures/groups/x")


def add(url: str, envelope_id: UUID, messages: Sequence[str], code: str = "refused") -> list[int]:
    """Add failures of nobody."""
    told = {"at": NOON, "envelope_id": envelope_id, "verb": "send_item", "code": code}
    with writing(url) as connection:
        for message in messages:
            of = fingerprint(None, code, message)
            connection.execute(sa.insert(model.failure).values(**told, message=message, fingerprint=of))
        newest = sa.select(model.failure.c.id).order_by(model.failure.c.id.desc()).limit(len(messages))
        return sorted(connection.execute(newest).scalars())


def read(url: str, failure_id: int) -> FailureDetail:
    with reading(url) as connection:
        detail = show_failure(connection, failure_id)
    assert detail is not None
    return detail


def test_two_clicks_lead_from_the_list_to_the_item(viewer: TestClient, parked: ParkedBus) -> None:
    page = viewer.get("/failures", params={"state": "unprocessed", "role": "counter_1", "code": "refused"})
    item = f"/envelopes/{parked.both}/items?event={parked.event_id(parked.both)}&from=1"
    assert page.status_code == 200
    assert item in unescape(page.text)
    assert viewer.get(item).status_code == 200
    of_it = read(parked.url, 1).summary.fingerprint
    assert f"/failures/groups/{of_it}" in page.text
    group = viewer.get(f"/failures/groups/{of_it}").text
    assert item in unescape(group)
    assert "/failures/1" in group
    one = viewer.get("/failures/1").text
    assert item in unescape(one)
    assert f"/envelopes/{parked.both}" in one
    assert "xbus failure show 1" in one


def test_failures_of_one_trouble_are_one_row(viewer: TestClient, parked: ParkedBus) -> None:
    add(parked.url, parked.both, [f"no client {number}" for number in range(1200)], "absent_client")
    page = viewer.get("/failures").text
    assert page.count("no client") == 1
    assert "at least</small> 1,000" in page
    assert "no client" not in viewer.get("/failures", params={"role": "counter_1"}).text
    assert "no client" not in viewer.get("/failures", params={"code": "refused"}).text
    assert "No failure matches" in viewer.get("/failures", params={"state": "corrected"}).text


def test_a_failure_is_tracked_assigned_and_commented(operator: TestClient, parked: ParkedBus) -> None:
    form = operator.get("/do/failures/track", params={"failure_id": 1, "state": "corrected", "back": "/failures/1"})
    assert "xbus failure track 1 corrected" in form.text
    answer = operator.post("/do/failures/track", data={"failure_id": 1, "state": "corrected", "comment": "a <b>"})
    assert answer.status_code == 200
    assert "processing" not in answer.text
    assert 'value="ada"' in operator.get("/do/failures/assign", params={"failure_id": 1, "owner": "ada"}).text
    assert operator.post("/do/failures/assign", data={"failure_id": 1, "owner": "ada"}).status_code == 200
    assert operator.post("/api/failures/comment", json={"failure_id": [1], "comment": HOSTILE}).status_code == 200
    detail = read(parked.url, 1)
    assert (detail.summary.tracking, detail.summary.owner) == ("corrected", "ada")
    assert [(move.who, move.told) for move in detail.history] == [
        ("ada", "corrected"),
        ("ada", "assigned ada"),
        ("ada", "commented"),
    ]
    page = operator.get("/failures/1").text
    assert "a &lt;b&gt;" in page
    assert "<script>alert" not in page
    assert "\u202e" not in page
    assert operator.get("/failures", params={"owner": "ada"}).text.count("/failures/groups/") == 1
    assert operator.post("/do/failures/release", data={"failure_id": 1}).status_code == 200
    assert read(parked.url, 1).summary.owner is None


def test_a_group_is_moved_as_far_as_the_person_saw_it(operator: TestClient, parked: ParkedBus) -> None:
    ids = add(parked.url, parked.both, [f"no client {number}" for number in range(1203)])
    of_it = read(parked.url, ids[0]).summary.fingerprint
    seen = ids[-2]
    operator.post("/do/failures/track", data={"failure_id": ids[3], "state": "corrected"})
    named = {"fingerprint": of_it, "until": str(seen)}
    form = operator.get("/do/failures/track", params={**named, "state": "corrected"}).text
    assert "at least 1,001 failures" in form
    assert f"xbus failure track --group {of_it} corrected" in form
    done = operator.post("/do/failures/track", data={**named, "state": "corrected", "comment": "all"}).text
    assert "1,201 failures of the group" in done
    assert [read(parked.url, each).summary.tracking for each in (ids[0], seen, ids[-1])] == [
        *("corrected", "corrected"),
        "unprocessed",
    ]
    assert operator.post("/do/failures/comment", data={**named, "comment": "asked Ben"}).status_code == 200
    assert operator.post("/do/failures/assign", data={**named, "owner": "ada"}).status_code == 200
    page = operator.get(f"/failures/groups/{of_it}").text
    assert all(told in page for told in ("1,000 corrected", "1 unprocessed", "asked Ben", "assigned ada"))
    assert f"before={ids[-50]}" in page
    assert operator.get(f"/failures/groups/{of_it}", params={"before": ids[-50]}).text.count("no client") == 51
    with reading(parked.url) as connection:
        acts = list_acts(connection, AuditFilters(), 5000)
    assert [sum(act.act.action == each for act in acts) for each in ("tracked", "commented", "assigned")] == [
        *(1202, 1202),
        1202,
    ]
    assert {act.act.who for act in acts if act.act.action == "assigned"} == {"ada"}


@pytest.mark.parametrize("path", UNKNOWN)
def test_unknown_ids_are_not_found(viewer: TestClient, parked: ParkedBus, path: str) -> None:
    answer = viewer.get(path)
    assert answer.status_code == 404
    assert "/failures" in answer.text or "There is no" in answer.text or "not possible" in answer.text


@pytest.mark.parametrize("name", ["nobody", "\u202e", "x" * 255])
def test_filters_that_name_nobody_say_so(viewer: TestClient, parked: ParkedBus, name: str) -> None:
    for which in ("role", "owner"):
        assert viewer.get("/failures", params={which: name}).status_code == 404
    assert viewer.get("/failures", params={"owner": "x" * 1000}).status_code == 422


@pytest.mark.parametrize("path", ["track", "assign", "release", "comment"])
def test_a_viewer_moves_nothing(viewer: TestClient, parked: ParkedBus, path: str) -> None:
    fields = {"failure_id": "1", "state": "corrected", "owner": "vera", "comment": "x"}
    wanted = {"track": ("state",), "assign": ("owner",), "release": (), "comment": ("comment",)}[path]
    data = {name: value for name, value in fields.items() if name in ("failure_id", *wanted)}
    assert viewer.post(f"/do/failures/{path}", data=data).status_code == 403
    assert viewer.get(f"/do/failures/{path}", params=data).status_code == 403
    assert viewer.post(f"/api/failures/{path}", json=data | {"failure_id": [1]}).status_code == 403
    assert read(parked.url, 1).history == ()
    assert "/do/failures" not in viewer.get("/failures/1").text


@pytest.mark.parametrize(
    ("path", "fields", "status"),
    [
        ("track", {"failure_id": [999999], "state": "corrected"}, 404),
        ("track", {"failure_id": [1], "state": "unprocessed"}, 409),
        ("track", {"failure_id": [1], "state": "lost"}, 422),
        ("track", {"state": "corrected"}, 422),
        ("track", {"failure_id": [1], "fingerprint": "0" * 16, "state": "corrected"}, 422),
        ("track", {"fingerprint": "0" * 16, "state": "corrected"}, 404),
        ("track", {"fingerprint": "a\x00b", "state": "corrected"}, 422),
        ("assign", {"failure_id": [1], "owner": "nobody"}, 404),
        ("assign", {"failure_id": [1], "owner": "a\x00b"}, 422),
        ("assign", {"failure_id": [1], "owner": "\ud800"}, 422),
        ("release", {"failure_id": [1]}, 409),
        ("comment", {"failure_id": [1], "comment": " "}, 422),
        ("comment", {"failure_id": [2**63], "comment": "x"}, 422),
    ],
)
def test_moves_that_can_not_be_are_refused(
    monitor: Monitor, operator: TestClient, parked: ParkedBus, path: str, fields: dict[str, object], status: int
) -> None:
    content = json.dumps(fields).encode("ascii")
    answer = operator.post(f"/api/failures/{path}", content=content, headers={"content-type": "application/json"})
    assert answer.status_code == status, answer.text
    assert read(parked.url, 1).history == ()


def test_hostile_messages_are_harmless(viewer: TestClient, parked: ParkedBus) -> None:
    (failure_id,) = add(parked.url, parked.both, [HOSTILE], "<b>" * 20)
    of_it = read(parked.url, failure_id).summary.fingerprint
    for path in ("/failures", f"/failures/groups/{of_it}", f"/failures/{failure_id}"):
        page = viewer.get(path)
        assert page.status_code == 200
        assert "<script>alert" not in page.text
        assert "<b>" not in page.text
        assert not set("\u202e\x1b") & set(page.text)


def test_a_program_reads_failures_and_their_groups(viewer: TestClient, parked: ParkedBus) -> None:
    one = viewer.get("/api/failures/1").json()
    listed = viewer.get("/api/failures", params={"group": one["fingerprint"], "limit": 1}).json()
    assert [each["fingerprint"] for each in listed["found"]] == [one["fingerprint"]]
    assert listed["next"] == {"before": listed["found"][0]["failure_id"]}
    assert one["history"] == []
    groups = viewer.get("/api/failures/groups", params={"role": "counter_1"}).json()["found"]
    assert one["fingerprint"] in [group["fingerprint"] for group in groups]
    group = viewer.get(f"/api/failures/groups/{one['fingerprint']}").json()
    assert [each["failure_id"] for each in group["failures"]] == [1]
    of_envelope = viewer.get("/api/failures", params={"envelope": one["envelope_id"]}).json()["found"]
    assert {each["envelope_id"] for each in of_envelope} == {one["envelope_id"]}


@pytest.mark.parametrize("path", UNKNOWN)
def test_a_program_is_told_of_failures_that_are_none(viewer: TestClient, path: str) -> None:
    answer = viewer.get(f"/api{path}")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
