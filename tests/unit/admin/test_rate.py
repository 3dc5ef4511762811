"""What a command sends at a pace is handed out in time."""

import pytest

from tests.support.clock import StandingClock
from xbus.admin.replay import SendingRate


def test_without_a_pace_all_goes_at_once() -> None:
    slept: list[float] = []
    assert list(SendingRate(None, StandingClock(), slept.append).portions(range(1000))) == [range(1000)]
    assert slept == []


def test_portions_of_a_second_come_a_second_apart() -> None:
    clock = StandingClock()
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.go_on(seconds)

    pace = SendingRate(4, clock, sleep)
    assert [list(portion) for portion in pace.portions(range(6))] == [[0, 1, 2, 3], [4, 5]]
    assert list(pace.portions([])) == []
    clock.go_on(0.3)
    assert [list(portion) for portion in pace.portions(range(2))] == [[0, 1]]
    assert slept == pytest.approx([1.0, 0.2])


def test_a_pace_below_one_a_second_waits_for_each() -> None:
    clock = StandingClock()
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        clock.go_on(seconds)

    assert [list(portion) for portion in SendingRate(0.5, clock, sleep).portions("abc")] == [["a"], ["b"], ["c"]]
    assert waits == [2.0, 2.0]
