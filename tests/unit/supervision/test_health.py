"""What is wrong, and since when."""

from tests.support.clock import StandingClock
from xbus.supervision.health import Health, Problem


def test_healthy_at_first() -> None:
    health = Health("back", StandingClock())
    assert health.report() == {
        "healthy": True,
        "name": "back",
        "since": "2020-02-29T12:00:00+00:00",
        "problems": [],
        "pauses": [],
    }


def test_bad_and_good_again() -> None:
    clock = StandingClock()
    health = Health("broker", clock)
    clock.go_on(60)
    health.trouble("journal_unavailable", "the database is away", "start it")
    clock.go_on(60)
    assert health.report() == {
        "healthy": False,
        "name": "broker",
        "since": "2020-02-29T12:01:00+00:00",
        "problems": [
            {
                "code": "journal_unavailable",
                "about": "",
                "cause": "the database is away",
                "since": "2020-02-29T12:01:00+00:00",
                "next_step": "start it",
            }
        ],
        "pauses": [],
    }
    health.over("journal_unavailable")
    assert (health.healthy, health.report()["since"]) == (True, "2020-02-29T12:02:00+00:00")


def test_what_goes_on_keeps_its_beginning_and_says_its_newest_cause() -> None:
    clock = StandingClock()
    health = Health("broker", clock)
    health.trouble("journal_unavailable", "no route to host")
    clock.go_on(60)
    health.trouble("journal_unavailable", "connection refused")
    (problem,) = health.problems
    assert (problem.cause, problem.since) == ("connection refused", StandingClock().now())


def test_healthy_only_when_nothing_is_left() -> None:
    health = Health("back", StandingClock())
    health.trouble("owed_too_long", "one waits", about="store_1")
    health.trouble("owed_too_long", "two wait", about="store_2")
    health.over("owed_too_long", about="store_1")
    health.over("journal_full")
    assert [problem.about for problem in health.problems] == ["store_2"]
    assert not health.healthy


def test_all_problems_of_some_codes_are_told_anew() -> None:
    clock = StandingClock()
    health = Health("back", clock)
    began = clock.now()
    clock.go_on(60)
    health.trouble("journal_full", "no room")
    absent = [Problem("absent", name, f"{name} is away", began, "start it") for name in ("a", "b")]
    health.replace(["absent", "parked"], absent)
    assert [(problem.about, problem.since) for problem in health.problems[:2]] == [("a", began), ("b", began)]
    health.replace(["absent", "parked"], [absent[1], Problem("parked", "a", "one is parked", clock.now(), "look")])
    assert [(problem.code, problem.about) for problem in health.problems] == [
        ("absent", "b"),
        ("journal_full", ""),
        ("parked", "a"),
    ]
    health.replace(["absent", "parked"], [])
    assert [problem.code for problem in health.problems] == ["journal_full"]
