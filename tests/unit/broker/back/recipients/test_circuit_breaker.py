"""Which roles are in trouble of their own, and when they are probed."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from tests.support.clock import StandingClock
from xbus.broker.back.recipients.circuit_breaker import CircuitBreaker, CircuitBreakers

STORE, AUDIT = 1, 2


def troubles(clock: StandingClock | None = None) -> CircuitBreaker:
    return CircuitBreaker(clock or StandingClock(), after=3, probe_interval=30)


def in_trouble(clock: StandingClock | None = None) -> CircuitBreaker:
    made = troubles(clock)
    assert [made.failed(position) for position in (1, 2, 3)] == [False, False, True]
    return made


def test_so_many_envelopes_in_a_row_are_trouble_told_once() -> None:
    clock = StandingClock()
    made = in_trouble(clock)
    assert made.is_tripped
    assert made.since == clock.now()
    assert not made.failed(4)


def test_each_role_has_its_own() -> None:
    made = CircuitBreakers(StandingClock(), after=1, probe_interval=30)
    made[STORE].failed(1)
    made[AUDIT].came_back()
    assert (made.is_troubled(STORE), made.is_troubled(AUDIT)) == (True, False)


def test_one_envelope_alone_is_no_trouble_however_often_it_fails() -> None:
    made = troubles()
    assert not any(made.failed(1) for _ in range(100))
    assert not made.is_tripped


def test_what_goes_well_in_between_begins_the_count_anew() -> None:
    made = troubles()
    for position in range(0, 20, 2):
        assert not made.failed(position)
        assert not made.failed(position + 1)
        assert not made.went_well()


def test_the_first_that_goes_well_ends_it() -> None:
    clock = StandingClock()
    made = in_trouble(clock)
    clock.go_on(70)
    assert made.went_well()
    assert (made.is_tripped, made.since, made.over_since) == (False, None, clock.now())
    assert not made.went_well()
    assert not made.failed(4)


def test_it_is_probed_once_in_each_interval() -> None:
    clock = StandingClock()
    made = in_trouble(clock)
    assert made.seconds_to_probe() == 30
    clock.go_on(30)
    assert made.seconds_to_probe() == 0
    made.probe([1])
    assert made.seconds_to_probe() == 30


def test_who_comes_back_is_probed_at_once() -> None:
    made = in_trouble()
    made.came_back()
    assert made.seconds_to_probe() == 0


def test_envelopes_take_turns_lowest_first() -> None:
    made = in_trouble()
    assert [made.probe([2, 1, 3]) for _ in range(5)] == [1, 2, 3, 1, 2]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5))), st.integers(1, 4))
def test_trouble_is_so_many_different_envelopes_since_something_went_well(
    happened: Iterable[tuple[bool, int]], after: int
) -> None:
    made = CircuitBreaker(StandingClock(), after=after, probe_interval=30)
    failed: set[int] = set()
    for well, position in happened:
        was_troubled = made.is_tripped
        if well:
            failed.clear()
            assert made.went_well() == was_troubled
        else:
            failed.add(position)
            assert made.failed(position) == (len(failed) >= after and not was_troubled)
        assert made.is_tripped == (len(failed) >= after)
