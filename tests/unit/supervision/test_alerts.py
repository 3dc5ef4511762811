"""Alerts: each change of health reaches each way once, in order, and a broken way is told on the others."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from tests.support.clock import StandingClock
from tests.support.waiting import eventually
from xbus.supervision.alerts import FAILED, MOST_WAITING, Alert, AlertNotSent, AlertRefused, Alerts, AlertTimes
from xbus.supervision.health import Health

RESULTS = ("sent", "dropped")

AT_ONCE = AlertTimes(attempt=60, first_delay=0, longest_delay=0, patience=1, told_after=3)


class Way:
    """Keeps what it gets, or fails."""

    def __init__(self, name: str = "command") -> None:
        self.name = name
        self.got: list[Alert] = []
        self.failing: Callable[[], Exception] | None = None
        self.attempts = 0

    async def send(self, alert: Alert) -> None:
        self.attempts += 1
        await asyncio.sleep(0)
        if self.failing is not None:
            raise self.failing()
        self.got.append(alert)

    @property
    def told(self) -> list[tuple[str, str, str]]:
        return [(alert["state"], alert["code"], alert["about"]) for alert in self.got]


@asynccontextmanager
async def running(
    *ways: Way, times: AlertTimes = AT_ONCE, clock: StandingClock | None = None
) -> AsyncIterator[tuple[Health, Alerts]]:
    clock = clock or StandingClock()
    health = Health("broker", clock)
    alerts = Alerts(health, ways, clock, times)
    watching = asyncio.create_task(alerts.watch())
    try:
        yield health, alerts
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def test_a_problem_is_told_when_it_begins_and_when_it_ends() -> None:
    way, other = Way(), Way("url")
    async with running(way, other) as (health, alerts):
        health.trouble("journal_full", "it is full", "attach a disk")
        health.trouble("journal_full", "it is very full", "attach a disk")
        health.over("journal_full")
        health.over("journal_full")
        await eventually(lambda: alerts.counts.total() == 4, "both are told twice")
        sent_and_dropped = [
            alerts.counts[name, result] for name in ("command", "url") for result in ("sent", "dropped")
        ]
        assert sent_and_dropped == [2, 0, 2, 0]
    assert way.told == other.told == [("trouble", "journal_full", ""), ("over", "journal_full", "")]
    first, last = way.got
    assert (first["cause"], first["next_step"], first["process"]) == ("it is full", "attach a disk", "broker")
    assert (first["since"], first["at"]) == ("2020-02-29T12:00:00+00:00",) * 2
    assert first["text"].endswith(": it is full. Next: attach a disk [journal_full]")
    assert last["text"].endswith(": over: it is very full [journal_full]")


async def test_a_thread_may_report() -> None:
    way = Way()
    async with running(way) as (health, _):
        await asyncio.to_thread(health.trouble, "journal_full", "it is full")
        await eventually(lambda: way.got, "it is told")


@pytest.mark.parametrize("error", [AlertNotSent("no route"), RuntimeError("a fault of ours")])
async def test_what_fails_is_tried_again_and_told_by_health_and_by_other_ways(error: Exception) -> None:
    broken, well = Way(), Way("url")
    broken.failing = lambda: error
    async with running(broken, well) as (health, _):
        health.trouble("parked", "one is parked", about="ledger")
        await eventually(lambda: not broken.got and len(well.got) == 2, "the other way tells of the broken one")
        assert well.told == [("trouble", "parked", "ledger"), ("trouble", FAILED, "command")]
        broken.failing = None
        await eventually(lambda: broken.got, "the alert is tried again")
        await eventually(lambda: len(well.got) == 3, "the way is well again")
        assert {problem.code for problem in health.problems} == {"parked"}
    # The broken way gets no alerts about itself.
    assert broken.told == [("trouble", "parked", "ledger")]


async def test_an_alert_is_dropped_in_the_end_and_the_next_one_is_tried() -> None:
    way, clock = Way(), StandingClock()
    way.failing = lambda: AlertNotSent("no route")
    async with running(way, clock=clock) as (health, alerts):
        health.trouble("parked", "one is parked")
        await eventually(lambda: way.attempts > 1, "it is tried again")
        clock.go_on(2)
        await eventually(lambda: alerts.counts["command", "dropped"] == 1, "it is dropped")
        way.failing = None
        health.over("parked")
        await eventually(lambda: way.got, "the next one is sent")
        assert (way.told, health.healthy) == ([("over", "parked", "")], True)


async def test_one_that_is_refused_for_good_keeps_no_other_waiting() -> None:
    way = Way()
    way.failing = lambda: AlertRefused("too long for the chat")
    async with running(way) as (health, alerts):
        health.trouble("parked", "one is parked")
        await eventually(lambda: alerts.counts["command", "dropped"] == 1, "it is dropped at once")
        assert way.attempts == 1
        way.failing = None
        health.over("parked")
        await eventually(lambda: way.got, "the next one is sent")


async def test_the_patience_of_one_that_waits_behind_another_runs_out_too() -> None:
    way, clock = Way(), StandingClock()
    way.failing = lambda: AlertNotSent("no route")
    async with running(way, clock=clock) as (health, alerts):
        health.trouble("parked", "one is parked")
        health.over("parked")
        await eventually(lambda: way.attempts > 1, "the first is tried again")
        clock.go_on(2)
        await eventually(lambda: alerts.counts["command", "dropped"] == 2, "both are dropped")


async def test_one_that_takes_too_long_is_broken_off() -> None:
    way = Way()
    way.send = lambda alert: asyncio.sleep(3600)  # type: ignore[method-assign]
    async with running(way, times=AlertTimes(attempt=0, first_delay=0, longest_delay=0)) as (health, _):
        health.trouble("parked", "one is parked")
        await eventually(lambda: len(health.problems) == 2, "health tells")
        assert "took longer than" in health.problems[1].cause


async def test_what_waits_is_bounded_and_the_oldest_go() -> None:
    way = Way()
    gate = asyncio.Event()
    sending = way.send

    async def wait(alert: Alert) -> None:
        await gate.wait()
        await sending(alert)

    way.send = wait  # type: ignore[method-assign]
    async with running(way) as (health, alerts):
        for number in range(MOST_WAITING + 10):
            health.trouble("parked", "parked", about=str(number))
        await eventually(lambda: alerts.counts["command", "dropped"], "some are dropped")
        gate.set()
        last = str(MOST_WAITING + 9)
        await eventually(lambda: way.got and way.got[-1]["about"] == last, "the newest are sent")
        assert len(way.got) + alerts.counts["command", "dropped"] == MOST_WAITING + 10


async def test_without_a_way_nothing_is_done() -> None:
    async with running() as (health, alerts):
        health.trouble("parked", "one is parked")
        await asyncio.sleep(0)
        assert not alerts.counts
