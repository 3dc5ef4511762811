"""What keeps browsers safe: headers, requests of other sites, sizes."""

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from tests.integration.admin.parked_bus import ParkedBus
from tests.integration.monitor.conftest import Monitor
from xbus.monitor.shield import MOST_BODY_BYTES, MOST_PARSED_BYTES

RESUME = "/do/parked/resume"
FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize("path", ["/", "/log-in", "/assets/style.css", "/api/envelopes", "/nothing"])
def test_every_answer_lets_nothing_foreign_run(monitor: Monitor, path: str) -> None:
    policy = monitor.visit().get(path, follow_redirects=False).headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "origin": "http://monitor"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://["},
    ],
)
@pytest.mark.parametrize("path", [RESUME, "/api/parked/resume", "/log-out", "/log-in"])
def test_a_page_of_another_site_changes_nothing(
    operator: TestClient, parked: ParkedBus, path: str, headers: dict[str, str]
) -> None:
    answer = operator.post(path, data={"envelope_id": str(parked.both)}, headers=headers, follow_redirects=False)
    assert answer.status_code == 403
    assert "cross_origin" in answer.text
    assert operator.get(f"/api/parked/{parked.both}").status_code == 200


@pytest.mark.parametrize("headers", [{"sec-fetch-site": "same-origin"}, {"origin": "http://monitor"}, {}])
def test_its_own_pages_change_things(operator: TestClient, parked: ParkedBus, headers: dict[str, str]) -> None:
    answer = operator.post(RESUME, data={"envelope_id": str(parked.both)}, headers=headers)
    assert answer.status_code == 200, answer.text


def test_a_request_that_is_too_large_is_refused(operator: TestClient) -> None:
    answer = operator.post(RESUME, headers={"content-length": str(MOST_BODY_BYTES + 1)})
    assert answer.status_code == 413


def test_a_request_that_hides_its_size_is_refused(operator: TestClient) -> None:
    block = b"x" * (1 << 20)
    sent = (block for _ in range((MOST_BODY_BYTES >> 20) + 1))
    answer = operator.post(RESUME, content=sent, headers={"content-type": "application/x-www-form-urlencoded"})
    assert answer.status_code in (400, 413), answer.text


def test_a_stranger_sends_no_more_than_a_log_in(monitor: Monitor, operator: TestClient) -> None:
    large = {"name": "ada", "password": "x" * 20_000}
    assert monitor.visit().post("/log-in", data=large).status_code == 413
    assert monitor.visit().post("/api/parked/resume", json=large).status_code == 413
    assert operator.post("/api/parked/resume", json=large).status_code == 422


@pytest.mark.parametrize("path", [RESUME, "/api/parked/resume", "/configuration/check", "/upload"])
@pytest.mark.parametrize("who", ["a stranger", "a viewer"])
def test_who_may_not_has_nothing_read(monitor: Monitor, viewer: TestClient, path: str, who: str) -> None:
    read = []

    def content() -> Iterator[bytes]:
        for number in range(4):
            read.append(number)
            yield b"x" * 4096

    browser = viewer if who == "a viewer" else monitor.visit()
    if who == "a stranger":
        browser.cookies.set("xbus_session", "guessed")
    answer = browser.post(path, content=content(), headers={"content-type": FORM}, follow_redirects=False)
    assert answer.status_code in (303, 401, 403)
    assert answer.status_code == 403 or who == "a stranger"
    assert read == []


def test_a_log_in_is_small_whatever_cookie_comes_with_it(operator: TestClient) -> None:
    assert operator.post("/log-in", data={"name": "ada", "password": "x" * 20_000}).status_code == 413


def test_a_form_is_smaller_than_a_file(operator: TestClient) -> None:
    answer = operator.post(RESUME, headers={"content-type": FORM, "content-length": str(MOST_PARSED_BYTES + 1)})
    assert answer.status_code == 413


@pytest.mark.parametrize("path", ["/", "/api/types", "/assets/style.css", "/nothing"])
def test_head_answers_as_get_without_the_content(viewer: TestClient, path: str) -> None:
    whole, head = viewer.get(path), viewer.head(path)
    assert (head.status_code, head.headers["content-type"]) == (whole.status_code, whole.headers["content-type"])
    assert head.content == b""


@pytest.mark.parametrize("path", ["/api/clearing?type=%00", "/api/parked/%00"])
def test_a_program_is_refused_as_by_the_interface(monitor: Monitor, path: str) -> None:
    answer = monitor.visit().get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json")
    assert answer.json()["code"] == "bad_request"
