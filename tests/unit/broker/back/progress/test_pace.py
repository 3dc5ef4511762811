"""How long others wait for a role."""

from xbus.broker.back.progress.consumer_role import Pace


def test_others_wait_so_long_for_a_role() -> None:
    assert Pace(behind_after=10).allowance(now=100) == 10


def test_what_they_waited_already_counts() -> None:
    pace = Pace(behind_after=10)
    pace.kept_waiting(3, now=100)
    pace.kept_waiting(4, now=110)
    assert pace.allowance(now=120) == 3


def test_a_role_that_is_behind_gets_no_more_time() -> None:
    pace = Pace(behind_after=10)
    pace.kept_waiting(30, now=100)
    assert pace.allowance(now=101) == 0


def test_after_a_minute_it_is_forgotten() -> None:
    pace = Pace(behind_after=10)
    pace.kept_waiting(30, now=100)
    assert pace.allowance(now=159.9) == 0
    assert pace.allowance(now=160) == 10


def test_who_begins_anew_has_kept_nobody_waiting() -> None:
    pace = Pace(10)
    pace.kept_waiting(12, 100)
    assert pace.allowance(100) == 0
    pace.forget()
    assert pace.allowance(100) == 10


def test_many_short_waits_count_and_are_forgotten() -> None:
    pace = Pace(behind_after=10)
    for each in range(6_000):
        pace.kept_waiting(0.001, now=100 + each / 1000)
    assert round(pace.allowance(now=106), 6) == 4
    assert 7 <= pace.allowance(now=163.05) < 7.3
    assert pace.allowance(now=166.1) == 10
