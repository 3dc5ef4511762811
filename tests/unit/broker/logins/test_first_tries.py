"""Which logins are checked at the priority of the broker."""

from tests.support.clock import StandingClock
from xbus.broker.logins.first_tries import FORGOTTEN_SECONDS, MOST_OF_ADDRESS, FirstTries


def test_the_first_try_of_a_login_from_an_address_is_one() -> None:
    tries = FirstTries(StandingClock())
    assert [tries.is_first("north", "10.0.0.1") for _ in range(3)] == [True, False, False]
    assert tries.is_first("south", "10.0.0.1")
    assert tries.is_first("north", "10.0.0.2"), "who tries it from elsewhere takes nothing from anybody"


def test_it_is_one_again_after_a_while_without_a_try() -> None:
    clock = StandingClock()
    tries = FirstTries(clock)
    assert tries.is_first("north", "10.0.0.1")
    clock.go_on(FORGOTTEN_SECONDS / 2)
    assert not tries.is_first("north", "10.0.0.1")
    clock.go_on(FORGOTTEN_SECONDS / 2)
    assert not tries.is_first("north", "10.0.0.1")
    clock.go_on(FORGOTTEN_SECONDS)
    assert tries.is_first("north", "10.0.0.1")


def test_an_address_that_invents_logins_has_few() -> None:
    clock = StandingClock()
    tries = FirstTries(clock)
    found = [tries.is_first(f"invented {number}", "10.0.0.1") for number in range(10 * MOST_OF_ADDRESS)]
    assert found == [True] * MOST_OF_ADDRESS + [False] * 9 * MOST_OF_ADDRESS
    assert tries.is_first("north", "10.0.0.2")
    clock.go_on(FORGOTTEN_SECONDS)
    assert tries.is_first("invented again", "10.0.0.1")
