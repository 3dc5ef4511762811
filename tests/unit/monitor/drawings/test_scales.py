"""Axes have round numbers, and texts are short."""

from datetime import UTC, datetime, timedelta

import pytest

from xbus.monitor.drawings.plot import (
    NUMBER,
    SECONDS,
    moment_ticks,
    number_text,
    rate_of,
    span_text,
    value_ticks,
)

NOW = datetime(2026, 3, 29, 11, 7, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("greatest", "ticks"),
    [
        (0, [0, 1]),
        (1, [0, 0.5, 1]),
        (9, [0, 5, 10]),
        (400, [0, 100, 200, 300, 400]),
        (401, [0, 200, 400, 600]),
        (1e9, [0, 5e8, 1e9]),
    ],
)
def test_ticks_of_numbers(greatest: float, ticks: list[float]) -> None:
    assert value_ticks(greatest, NUMBER) == pytest.approx(ticks)


@pytest.mark.parametrize("greatest", [0, 1e-9, 0.3, 7, 59, 61, 3599, 90_000, 1e7, 1e12])
@pytest.mark.parametrize("unit", [NUMBER, SECONDS])
def test_the_axis_reaches_the_greatest_value(greatest: float, unit: object) -> None:
    ticks = value_ticks(greatest, NUMBER if unit is NUMBER else SECONDS)
    assert ticks[-1] >= greatest * 0.999
    assert 2 <= len(ticks) <= 6 or greatest > 1e9


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.25, "0.25"), (3, "3"), (12.34, "12.3"), (999, "999"), (1000, "1k"), (1234, "1.23k"), (5e6, "5M")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number_text(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.5, "0.5 s"), (59, "59 s"), (60, "1 min"), (5400, "1.5 h"), (90_000, "1 d"), (12_000, "3.3 h")],
)
def test_spans_are_short(seconds: float, text: str) -> None:
    assert span_text(seconds) == text


def test_a_rate_says_of_what() -> None:
    assert rate_of("events").write(12) == "12 events/s"


@pytest.mark.parametrize(
    ("length", "texts"),
    [
        (timedelta(minutes=15), ["10:55", "11:00", "11:05"]),
        (timedelta(hours=6), ["06:00", "07:00", "08:00", "09:00", "10:00", "11:00"]),
        (timedelta(days=1), ["12:00", "18:00", "00:00", "06:00"]),
        (timedelta(weeks=1), ["Mar 24", "Mar 26", "Mar 28"]),
        (timedelta(weeks=5), ["Feb 26", "Mar 05", "Mar 12", "Mar 19", "Mar 26"]),
    ],
)
def test_moments_of_an_axis(length: timedelta, texts: list[str]) -> None:
    ticks = moment_ticks(NOW - length, NOW)
    assert [text for _, text in ticks] == texts
    assert all(NOW - length <= at <= NOW for at, _ in ticks)
