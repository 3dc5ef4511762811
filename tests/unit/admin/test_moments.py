"""Moments to come and durations, as people write them in options."""

from datetime import UTC, datetime, timedelta

import click
import pytest

from xbus.admin.arguments import Duration, Until


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("1.5min", 90), ("2h", 7_200), ("1d", 86_400)])
def test_a_duration_is_given_in_seconds(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "30", "soon", "-5s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not like 30s, 5min or 2h"):
        Duration().convert(text, None, None)


def test_an_end_is_so_long_from_now_or_a_moment() -> None:
    in_two_hours = datetime.now(UTC) + timedelta(hours=2)
    assert abs(Until().convert("2h", None, None) - in_two_hours) < timedelta(minutes=1)
    assert Until().convert("2999-01-31", None, None) == datetime(2999, 1, 31, tzinfo=UTC)


@pytest.mark.parametrize("text", ["2020-01-31", "never", "9999999999d"])
def test_an_end_that_is_over_or_no_moment_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Until().convert(text, None, None)
