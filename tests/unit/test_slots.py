"""Slots: cron, daylight saving, and what is missed."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xbus.errors import ConfigurationError
from xbus.slots import LATE, Missed, Schedule, due_slots

PARIS = "Europe/Paris"
SPRING = datetime(2026, 3, 28, 12, tzinfo=UTC)
AUTUMN = datetime(2026, 10, 24, 12, tzinfo=UTC)
CRONS = ("0 3 * * *", "30 2 * * *", "0,30 2 * * *", "*/20 * * * *", "15 */2 * * *", "5 1-3 * * *", "*/10 2 * * 0")


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def local(slots: list[datetime]) -> list[str]:
    return [f"{slot.astimezone(ZoneInfo(PARIS)):%d. %H:%M %z}" for slot in slots]


def test_a_fixed_time_comes_once_when_the_clock_is_set_forward() -> None:
    found = [*Schedule("30 2 * * *", PARIS).between(SPRING - timedelta(days=1), SPRING + timedelta(days=2))]
    assert local(found) == ["28. 02:30 +0100", "29. 03:00 +0200", "30. 02:30 +0200"]


def test_a_fixed_time_comes_once_when_the_clock_is_set_back() -> None:
    found = [*Schedule("30 2 * * *", PARIS).between(AUTUMN - timedelta(days=1), AUTUMN + timedelta(days=2))]
    assert local(found) == ["24. 02:30 +0200", "25. 02:30 +0200", "26. 02:30 +0100"]


def test_a_star_comes_with_each_hour_that_there_is() -> None:
    hours = [*Schedule("0 * * * *", PARIS).between(AUTUMN, AUTUMN + timedelta(days=1))]
    assert len(hours) == 24
    assert {after - before for before, after in pairwise(hours)} == {timedelta(hours=1)}


@pytest.mark.parametrize("cron", ["", "0 3 * *", "61 * * * *", "every day", "@daily", "0 3 * * MOO"])
def test_what_is_no_cron_expression_is_refused(cron: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Schedule(cron)
    assert refused.value.code == "bad_cron"


@pytest.mark.parametrize("cron", ["0 0 30 2 *", "0 0 31 4,6 *"])
def test_a_day_that_never_comes_is_refused(cron: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Schedule(cron)
    assert refused.value.code in ("bad_cron", "cron_never_due")


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../../etc/passwd", "Europe", "", "\0"])
def test_an_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Schedule("0 3 * * *", zone)
    assert refused.value.code == "unknown_timezone"


@given(
    cron=st.sampled_from(CRONS),
    begin=st.sampled_from((SPRING, AUTUMN)),
    starts=st.lists(st.integers(0, 2 * 24 * 3600), max_size=12),
)
def test_slots_are_the_same_wherever_one_begins(cron: str, begin: datetime, starts: list[int]) -> None:
    schedule = Schedule(cron, PARIS)
    slots = [*schedule.between(begin, begin + timedelta(days=10))]
    assert slots == sorted(set(slots))
    for seconds in starts:
        at = begin + timedelta(seconds=seconds)
        assert schedule.after(at) == next(slot for slot in slots if slot > at)


@given(
    cron=st.sampled_from(CRONS),
    begin=st.sampled_from((SPRING, AUTUMN)),
    looks=st.lists(st.integers(1, 12 * 3600), min_size=1, max_size=12),
    most=st.integers(1, 5),
)
def test_looks_at_any_moments_fire_each_slot_once(cron: str, begin: datetime, looks: list[int], most: int) -> None:
    schedule = Schedule(cron, PARIS)
    fired: list[datetime] = []
    until, now = begin, begin
    for seconds in looks:
        now += timedelta(seconds=seconds)
        while until < now:
            due = due_slots(schedule, until, now, Missed.ALL, most)
            assert until < due.until <= now
            fired += due.slots
            until = due.until
    assert fired == [*schedule.between(begin, now)]


@given(
    cron=st.sampled_from(CRONS),
    begin=st.sampled_from((SPRING, AUTUMN)),
    minutes=st.integers(1, 40 * 24 * 60),
    missed=st.sampled_from((Missed.ONCE, Missed.SKIP)),
)
def test_what_was_missed_is_made_up_for_once_or_skipped(
    cron: str, begin: datetime, minutes: int, missed: Missed
) -> None:
    schedule, now = Schedule(cron, PARIS), begin + timedelta(minutes=minutes)
    all_slots = [*schedule.between(begin, now)]
    old = [slot for slot in all_slots if slot <= now - LATE]
    due = due_slots(schedule, begin, now, missed, most=100)
    assert [*due.slots] == [*(old[-1:] if missed is Missed.ONCE else []), *all_slots[len(old) :]]
    assert due.until == now


def test_one_slot_is_found_among_many_without_a_look_at_all() -> None:
    begin = moment("2020-01-01T00:00")
    assert Schedule("* * * * *").last(begin, moment("2026-01-01T00:00:30")) == moment("2026-01-01T00:00")
    assert Schedule("0 0 29 2 *").last(begin, moment("2026-01-01T00:00")) == moment("2024-02-29T00:00")
