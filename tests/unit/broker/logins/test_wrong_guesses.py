"""The pauses that wrong passwords bring upon a login and upon an address."""

from tests.support.clock import StandingClock
from xbus.broker.logins.wrong_guesses import (
    FIRST_PAUSE_SECONDS,
    FORGOTTEN_SECONDS,
    FREE_GUESSES,
    LONGEST_PAUSE_OF_ADDRESS,
    LONGEST_PAUSE_OF_LOGIN,
    MOST_REMEMBERED,
    WrongGuesses,
)


def guess(guesses: WrongGuesses, number: int, login: str = "north", address: str = "10.0.0.1") -> None:
    for _ in range(number):
        guesses.note(login, address)


def test_the_first_wrong_passwords_cost_nothing() -> None:
    guesses = WrongGuesses(StandingClock())
    guess(guesses, FREE_GUESSES)
    assert guesses.pause("north", "10.0.0.1") <= 0


def test_pauses_grow_up_to_the_longest() -> None:
    guesses = WrongGuesses(StandingClock())
    guess(guesses, FREE_GUESSES)
    pauses = []
    for _ in range(8):
        guess(guesses, 1, address="10.0.0.2")
        pauses.append(guesses.pause("north", "10.0.0.3"))
    assert pauses[:4] == [FIRST_PAUSE_SECONDS * 2**number for number in range(4)]
    assert pauses[-1] == LONGEST_PAUSE_OF_LOGIN


def test_who_guesses_many_logins_waits_too() -> None:
    guesses = WrongGuesses(StandingClock())
    for number in range(20):
        guess(guesses, 1, f"login {number}")
    assert guesses.pause("another", "10.0.0.1") == LONGEST_PAUSE_OF_ADDRESS
    assert guesses.pause("another", "10.0.0.2") <= 0


def test_a_pause_ends_and_guesses_are_forgotten() -> None:
    clock = StandingClock()
    guesses = WrongGuesses(clock)
    guess(guesses, FREE_GUESSES + 1)
    clock.go_on(FIRST_PAUSE_SECONDS)
    assert guesses.pause("north", "10.0.0.1") <= 0
    clock.go_on(FORGOTTEN_SECONDS)
    guess(guesses, 1)
    assert guesses.pause("north", "10.0.0.1") <= 0


def test_a_bounded_number_is_remembered() -> None:
    guesses = WrongGuesses(StandingClock())
    guess(guesses, 20, "first", "10.0.0.1")
    for number in range(MOST_REMEMBERED):
        guess(guesses, 1, f"{number}", f"{number}")
    assert guesses.pause("first", "10.0.0.1") <= 0
    assert guesses.pause("x" * 5000, "") <= 0
