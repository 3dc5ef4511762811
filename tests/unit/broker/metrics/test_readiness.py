"""A process is ready while it takes work; what waits for people keeps nobody from working."""

import pytest

from tests.support.clock import StandingClock
from xbus.broker.metrics.of_process import PREVENTING, ProcessReadiness
from xbus.supervision.health import Health


def test_from_start_to_end() -> None:
    readiness = ProcessReadiness(Health("broker", StandingClock()))
    assert [reason["code"] for reason in readiness.reasons()] == ["starting"]
    readiness.started()
    assert readiness.reasons() == []
    readiness.stopping()
    assert [reason["code"] for reason in readiness.reasons()] == ["stopping"]


@pytest.mark.parametrize("code", PREVENTING)
def test_a_problem_with_which_work_is_refused(code: str) -> None:
    health = Health("broker", StandingClock())
    readiness = ProcessReadiness(health)
    readiness.started()
    health.trouble(code, "the cause", "the next step")
    assert readiness.reasons() == [{"code": code, "cause": "the cause", "next_step": "the next step"}]
    health.over(code)
    assert readiness.reasons() == []


def test_what_is_parked_makes_nobody_unready() -> None:
    health = Health("broker", StandingClock())
    readiness = ProcessReadiness(health)
    readiness.started()
    health.trouble("parked", "one envelope is parked", about="ledger")
    assert readiness.reasons() == []
