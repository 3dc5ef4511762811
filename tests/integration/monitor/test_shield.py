"""What keeps browsers safe: headers, requests of other sites, sizes."""

import pytest
from fastapi.testclient import TestClient

from tests.integration.admin.parked_bus import ParkedBus
from tests.integration.monitor.conftest import Monitor
from xbus.monitor.shield import MOST_BODY_BYTES

RESUME = "/do/parked/resume"


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
