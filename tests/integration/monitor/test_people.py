"""A manager adds people and says what they may do; nobody else does."""

from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient

from tests.integration.monitor.conftest import PASSWORD, Monitor, log_in
from xbus.rights import Right

NEW = "a new long password"


@pytest.fixture
def manager(monitor: Monitor) -> TestClient:
    monitor.add("root", Right.MANAGER)
    return monitor.enter("root")


def test_a_new_person_comes_in_and_gets_rights(monitor: Monitor, manager: TestClient) -> None:
    assert manager.post("/do/people/add", data={"name": "ben", "rights": ["operator", "clearer"]}).status_code == 200
    assert log_in(monitor.visit(), "ben", NEW).status_code == 403
    assert manager.post("/do/people/password", data={"name": "ben", "password": NEW}).status_code == 200
    browser = monitor.visit()
    assert log_in(browser, "ben", NEW).status_code == 303
    assert browser.get("/people").status_code == 403
    assert "clearer, operator" in manager.get("/people").text
    form = manager.get("/do/people/rights", params={"name": "ben"}).text
    assert 'value="operator" checked' in form
    manager.post("/do/people/rights", data={"name": "ben", "rights": ["manager"]})
    assert browser.get("/people").status_code == 200


def test_the_last_manager_stays(manager: TestClient) -> None:
    for path, fields in (("people/disable", {}), ("people/rights", {"rights": ["viewer"]})):
        answer = manager.post(f"/do/{path}", data={"name": "root", **fields})
        assert (answer.status_code, "last_manager" in answer.text) == (409, True)


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("add", {"name": "new", "rights": ["programmer"]}),
        ("rights", {"name": "root", "rights": ["manager", "programmer"]}),
        ("password", {"name": "grace", "password": NEW}),
        ("enable", {"name": "grace"}),
        ("token/add", {"name": "grace", "token": "t", "rights": ["programmer"]}),
    ],
)
def test_only_a_programmer_makes_programmers(
    monitor: Monitor, manager: TestClient, path: str, fields: dict[str, str | list[str]]
) -> None:
    monitor.add("grace", Right.PROGRAMMER)
    monitor.add("both", Right.MANAGER, Right.PROGRAMMER)
    refused = manager.post(f"/api/people/{path}", json=fields)
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert monitor.enter("both").post(f"/api/people/{path}", json=fields).status_code == 200


def test_a_manager_takes_the_right_of_a_programmer(monitor: Monitor, manager: TestClient) -> None:
    monitor.add("grace", Right.PROGRAMMER, Right.OPERATOR)
    for rights in (["programmer", "clearer"], ["clearer"]):
        answer = manager.post("/api/people/rights", json={"name": "grace", "rights": rights})
        assert answer.status_code == 200, answer.text


def test_a_token_is_shown_once(monitor: Monitor, manager: TestClient) -> None:
    fields = {"name": "root", "token": "nightly", "rights": ["operator"], "until": "30d"}
    made = manager.post("/api/people/token/add", json={**fields, "until": "30d"}).json()["done"][1]
    program = monitor.visit()
    program.headers["authorization"] = f"Bearer {made}"
    assert program.get("/api/envelopes").status_code == 200
    assert program.post("/api/people/add", json={"name": "x"}).status_code == 403
    page = manager.get("/people/root").text
    assert "nightly" in page
    assert made not in page
    manager.post("/do/people/token/remove", data={"name": "root", "token": "nightly"})
    assert program.get("/api/envelopes").status_code == 401


def test_a_person_changes_the_own_password(monitor: Monitor) -> None:
    monitor.add("vera")
    browser = monitor.enter("vera")
    wrong = browser.post("/do/me/password", data={"present": "guess", "password": NEW})
    assert wrong.status_code == 403
    assert browser.post("/do/me/password", data={"present": PASSWORD, "password": "short"}).status_code == 422
    assert browser.post("/do/me/password", data={"present": PASSWORD, "password": NEW}).status_code == 200
    assert browser.get("/", follow_redirects=False).status_code == 303
    assert log_in(monitor.visit(), "vera", NEW).status_code == 303


def test_of_two_sessions_of_a_person_one_may_end(monitor: Monitor) -> None:
    monitor.add("vera")
    first, second = monitor.enter("vera"), monitor.enter("vera")
    first.post("/log-out")
    assert first.get("/", follow_redirects=False).status_code == 303
    assert second.get("/", follow_redirects=False).status_code == 200


def test_a_session_that_ended_meanwhile_changes_no_password(monitor: Monitor, monkeypatch: pytest.MonkeyPatch) -> None:
    """1. A session shows the present password. 2. Another one changes it, which ends both. 3. The first goes on."""
    monitor.add("vera")
    first, second = monitor.enter("vera"), monitor.enter("vera")
    hash_password, late = monitor.bus.passwords.hash_password, "a late long password"

    def hash_late(password: str) -> str:
        if password == late:
            answer = second.post("/do/me/password", data={"present": PASSWORD, "password": NEW})
            assert answer.status_code == 200
        return hash_password(password)

    monkeypatch.setattr(monitor.bus.passwords, "hash_password", hash_late)
    assert first.post("/do/me/password", data={"present": PASSWORD, "password": late}).status_code == 403
    assert log_in(monitor.visit(), "vera", late).status_code == 403
    assert log_in(monitor.visit(), "vera", NEW).status_code == 303


@pytest.mark.parametrize("path", ["add", "rights", "password", "disable", "enable", "log-out", "token/add"])
def test_others_manage_nobody(monitor: Monitor, manager: TestClient, viewer: TestClient, path: str) -> None:
    fields = {"name": "root", "password": NEW, "token": "t"}
    assert viewer.post(f"/do/people/{path}", data=fields).status_code in (403, 422)
    assert manager.get("/people/root").text.count("disabled") == 0
    assert viewer.get("/people/root").status_code == 403
    assert "/people" not in viewer.get("/").text


def test_hostile_names_are_harmless(manager: TestClient) -> None:
    name = "<script>alert(1)</script>/../" + "x" * 200
    assert manager.post("/do/people/add", data={"name": name}).status_code == 200
    page = manager.get("/people").text
    assert "<script>alert" not in page
    for name in ("a\u202eb", "..", "."):
        assert manager.post("/do/people/add", data={"name": name}).status_code == 422
    assert manager.get("/people/nobody").status_code == 404


@pytest.mark.parametrize("name", ["a/b", "a?b#c", "\"'><svg onload=alert(1)>"])
def test_a_person_of_any_name_has_a_page(monitor: Monitor, manager: TestClient, name: str) -> None:
    monitor.add(name)
    place = f"/people/{quote(name, safe='')}"
    assert place in manager.get("/people").text
    page = manager.get(place)
    assert page.status_code == 200
    assert "<svg onload" not in page.text


@pytest.mark.parametrize("kind", ["roles", "emitters"])
def test_a_login_with_a_slash_is_looked_up(manager: TestClient, kind: str) -> None:
    answer = manager.get(f"/api/{kind}/a%2Fb/why").json()
    assert "a/b" in answer["found"][0]["cause"]


def test_each_answer_is_described_as_an_object(manager: TestClient) -> None:
    described = manager.get("/api/openapi.json").json()["paths"].values()
    answers = [operation["responses"]["200"] for path in described for operation in path.values()]
    assert {"type": "string"} not in [each["content"]["application/json"]["schema"] for each in answers]


def test_guesses_of_the_present_password_are_slowed_down(monitor: Monitor) -> None:
    monitor.add("vera")
    browser = monitor.enter("vera")
    guess = {"present": "a guess", "password": NEW}
    assert browser.post("/do/me/password", data=guess).status_code == 403
    # A busy machine waits out the first delays between two guesses; each is twice as long as the one before.
    assert any(browser.post("/do/me/password", data=guess).status_code == 429 for _ in range(100))


def test_no_link_carries_a_password(manager: TestClient) -> None:
    answer = manager.get("/do/people/password", params={"name": "root", "password": NEW})
    assert (answer.status_code, NEW in answer.text) == (422, False)
