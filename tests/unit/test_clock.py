"""Spans of time that configurations name."""

import math
from datetime import UTC, datetime, timedelta

import pytest

from xbus.clock import LONGEST_SPAN, SystemClock, span


def test_a_span_is_as_long_as_its_seconds() -> None:
    assert span(90.5) == timedelta(seconds=90.5)


@pytest.mark.parametrize("seconds", [math.inf, 1e300, 1e12])
def test_a_span_without_end_leaves_dates_that_exist(seconds: float) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert span(seconds) == LONGEST_SPAN
    assert now - span(seconds) < now < now + span(seconds)


@pytest.mark.parametrize("ahead", [timedelta(hours=1), -timedelta(hours=1), timedelta()])
def test_a_clock_that_is_wrong_tells_the_time_of_another_one(ahead: timedelta) -> None:
    clock = SystemClock()
    clock.follow(SystemClock().now() + ahead)
    assert abs(clock.now() - SystemClock().now() - ahead) < timedelta(minutes=1)
    clock.follow(SystemClock().now())
    assert abs(clock.now() - SystemClock().now()) < timedelta(minutes=1)
