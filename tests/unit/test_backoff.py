"""Delays that grow while nothing helps."""

from xbus.backoff import Backoff


def test_delays_double_up_to_the_longest() -> None:
    backoff = Backoff(first=1, longest=5)
    assert [backoff.next() for _ in range(5)] == [1, 2, 4, 5, 5]


def test_a_success_begins_anew() -> None:
    backoff = Backoff(first=1, longest=5)
    backoff.next()
    backoff.next()
    backoff.reset()
    assert [backoff.next(), backoff.next()] == [1, 2]


def test_no_delay_is_longer_than_the_longest() -> None:
    backoff = Backoff(first=3, longest=4)
    assert [backoff.next() for _ in range(3)] == [3, 4, 4]
