"""Persons come in by their password, and nobody else does."""

import asyncio

import pytest

from tests.integration.monitor.conftest import CHEAP, PASSWORD, Monitor, log_in
from xbus.broker.journal.audit import AuditFilters, list_acts
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.people import disable_person, set_password
from xbus.broker.logins import Caller
from xbus.clock import SystemClock
from xbus.config import MonitorSettings
from xbus.errors import Failed, Refused
from xbus.monitor.people import Door
from xbus.rights import Right


@pytest.mark.parametrize(
    "path", ["/", "/envelopes", "/parked", "/do/parked/resume", "/items", "/envelopes/find?text=0198"]
)
def test_a_stranger_is_led_to_the_log_in(monitor: Monitor, path: str) -> None:
    answer = monitor.visit().get(path, follow_redirects=False)
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/log-in")


@pytest.mark.parametrize("path", ["/api/envelopes", "/api/openapi.json", "/api/health", "/api/parked"])
def test_a_strangers_program_gets_a_problem(monitor: Monitor, path: str) -> None:
    answer = monitor.visit().get(path)
    assert (answer.status_code, answer.json()["code"]) == (401, "not_logged_in")
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["www-authenticate"] == "Bearer"


def test_a_person_logs_in_and_out(monitor: Monitor) -> None:
    monitor.add("ada")
    browser = monitor.visit()
    answer = log_in(browser, "ada", then="/parked?role=a")
    assert answer.headers["location"] == "/parked?role=a"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert browser.get("/envelopes").status_code == 200
    browser.post("/log-out")
    assert browser.get("/envelopes", follow_redirects=False).status_code == 303


def test_a_session_that_was_logged_out_stays_out(monitor: Monitor) -> None:
    monitor.add("ada")
    browser = monitor.enter("ada")
    stolen = dict(browser.cookies)
    browser.post("/log-out")
    thief = monitor.visit()
    thief.cookies.update(stolen)
    assert thief.get("/", follow_redirects=False).status_code == 303


@pytest.mark.parametrize(("name", "password"), [("ada", "wrong"), ("nobody", PASSWORD), ("ada\x00", PASSWORD)])
def test_a_wrong_name_and_a_wrong_password_look_alike(monitor: Monitor, name: str, password: str) -> None:
    monitor.add("ada")
    answer = log_in(monitor.visit(), name, password)
    assert answer.status_code == 403
    assert "the name or the password is wrong" in answer.text
    assert "set-cookie" not in answer.headers


async def test_who_guesses_a_name_keeps_nobody_out(monitor: Monitor) -> None:
    monitor.add("ada")
    door = Door(monitor.bus.journal, MonitorSettings(), monitor.bus.passwords, monitor.bus.clock)

    async def guess(number: int) -> None:
        with pytest.raises((Refused, Failed)):
            await door.enter("ada", f"guess {number}", Caller(f"guesser {number}".encode(), "192.0.2.1"))

    guessing = [asyncio.create_task(guess(number)) for number in range(40)]
    await asyncio.wait(guessing, return_when=asyncio.FIRST_COMPLETED)
    assert await door.enter("ada", PASSWORD, Caller(b"ada", "192.0.2.2")), "while most guesses still wait"
    assert not all(task.done() for task in guessing)
    for task in guessing:
        task.cancel()
    await asyncio.gather(*guessing, return_exceptions=True)


def test_guesses_of_strangers_do_not_keep_a_person_from_a_new_password(monitor: Monitor) -> None:
    monitor.add("ada")
    with monitor.visit() as browser:
        log_in(browser, "ada")
        for number in range(5):
            assert log_in(monitor.visit(), "ada", f"guess {number}").status_code == 403
        given = {"present": PASSWORD, "password": "another horse"}
        assert browser.post("/do/me/password", data=given).status_code == 200


def test_guesses_in_a_session_are_slowed_down(monitor: Monitor) -> None:
    passwords, right = monitor.bus.passwords, CHEAP.hash_password(PASSWORD)
    with pytest.raises(Failed, match="slow_down"):
        for number in range(12):
            assert not passwords.confirm(7, f"guess {number}", right)
    assert passwords.confirm(8, PASSWORD, right)


def test_refused_log_ins_are_summed_up_in_the_audit(monitor: Monitor) -> None:
    monitor.add("ada")
    with monitor.visit() as browser:
        for name in ("ada", "ada", "ada", "nobody"):
            assert log_in(browser, name, "guess").status_code in (403, 429)
    with reading(monitor.url) as connection:
        acts = [row.act for row in list_acts(connection, AuditFilters(), 100) if row.act.action == "login_refused"]
    told = [(act.object, act.origin) for act in acts]
    assert ('person "ada"', "testclient") in told
    assert len(told) <= 3


@pytest.mark.parametrize("target", ["https://evil.example/", "//evil.example", "/\\evil.example", "evil"])
def test_a_log_in_leads_nowhere_else(monitor: Monitor, target: str) -> None:
    monitor.add("ada")
    assert log_in(monitor.visit(), "ada", then=target).headers["location"] == "/"


def test_a_disabled_person_is_out_at_once(monitor: Monitor) -> None:
    monitor.add("root", Right.MANAGER)
    monitor.add("ada")
    browser = monitor.enter("ada")
    with writing(monitor.url) as connection:
        disable_person(connection, "ada", SystemClock().now())
    assert browser.get("/envelopes", follow_redirects=False).status_code == 303
    assert log_in(monitor.visit(), "ada").status_code == 403


def test_a_new_password_ends_sessions(monitor: Monitor) -> None:
    monitor.add("ada")
    browser = monitor.enter("ada")
    with writing(monitor.url) as connection:
        set_password(connection, "ada", "some hash", SystemClock().now())
    assert browser.get("/envelopes", follow_redirects=False).status_code == 303


def test_a_token_is_a_program(monitor: Monitor) -> None:
    program = monitor.program("batch", Right.VIEWER)
    assert program.get("/api/envelopes").json() == {"found": [], "next": None}
    program.headers["authorization"] = "Bearer " + "x" * 43
    assert program.get("/api/envelopes").status_code == 401
