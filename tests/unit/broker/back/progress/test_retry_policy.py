"""How often an envelope is tried, and after which delays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xbus.broker.back.progress.retry_policy import RetryPolicy
from xbus.broker.journal.log.catalog import RetrySettings

MIDDLE = 0.5
"""A draw that changes nothing."""


def test_delays_double_up_to_the_longest() -> None:
    policy = RetryPolicy(attempts=10, first_delay=1, longest_delay=30, jitter=0.2)
    assert [policy.delay(attempts, MIDDLE) for attempts in range(1, 8)] == [1, 2, 4, 8, 16, 30, 30]


@pytest.mark.parametrize(("draw", "delay"), [(0.0, 8), (MIDDLE, 10), (1.0, 12)])
def test_jitter_makes_delays_longer_or_shorter(draw: float, delay: float) -> None:
    assert RetryPolicy(first_delay=10, jitter=0.2).delay(1, draw) == pytest.approx(delay)


def test_a_service_may_wish_any_part_of_it_otherwise() -> None:
    policy = RetryPolicy(attempts=5, first_delay=1, longest_delay=30, jitter=0.2)
    assert policy.as_wished(RetrySettings()) == policy
    assert policy.as_wished(RetrySettings(attempts=9, jitter=0.0)) == RetryPolicy(9, 1, 30, 0.0)


@given(
    st.builds(
        RetryPolicy,
        attempts=st.integers(1, 100),
        first_delay=st.floats(0.001, 1e6),
        longest_delay=st.floats(0.001, 1e6),
        jitter=st.floats(0, 1),
    ),
    st.integers(0, 10_000),
    st.floats(0, 1),
)
def test_no_delay_is_negative_or_longer_than_the_longest(policy: RetryPolicy, attempts: int, draw: float) -> None:
    assert 0 <= policy.delay(attempts, draw) <= policy.longest_delay
    assert policy.delay(attempts, draw) <= policy.delay(attempts + 1, draw)
