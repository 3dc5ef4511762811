"""Growing pauses after wrong passwords, for a login and for an address; pure."""

from typing import NamedTuple

from xbus.clock import Clock

FREE_GUESSES = 3
"""Wrong passwords without a pause: people mistype."""

FIRST_PAUSE_SECONDS = 0.125
"""The pause after the next one; each further one doubles it."""

LONGEST_PAUSE_OF_LOGIN = 2.0
"""Seconds. Our clients wait for 4: who knows the password gets in, also while somebody else guesses."""

LONGEST_PAUSE_OF_ADDRESS = 0.5
"""Seconds. Many honest clients may share an address with one that has a wrong password."""

FORGOTTEN_SECONDS = 600.0
"""Seconds after the last wrong password until a login or an address counts as new."""

MOST_REMEMBERED = 10_000
"""Logins and addresses that are remembered. More of them find more guessers, and cost memory."""

_LOGIN_LETTERS = 64
"""Letters of a login that are kept: what strangers send may be longer than any login is."""

_Key = tuple[str, str]


class _Guesses(NamedTuple):
    number: int
    last_at: float


class WrongGuesses:
    """Remembers wrong passwords, those of logins that don't exist alike.

    Args:
        clock: measures the pauses.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # The one that guessed last is the last.
        self._guesses: dict[_Key, _Guesses] = {}

    def note(self, login: str, address: str) -> None:
        """Count a wrong password."""
        now = self._clock.monotonic()
        for key in _longest_pauses(login, address):
            guesses = self._guesses.pop(key, None)
            number = 0 if guesses is None or now - guesses.last_at > FORGOTTEN_SECONDS else guesses.number
            self._guesses[key] = _Guesses(number + 1, now)
        while len(self._guesses) > MOST_REMEMBERED:
            del self._guesses[next(iter(self._guesses))]

    def pause(self, login: str, address: str) -> float:
        """Compute the seconds until the next password may be checked, 0 or less for at once."""
        now = self._clock.monotonic()
        return max(
            self._pause(key, longest) - now + self._guesses[key].last_at if key in self._guesses else 0.0
            for key, longest in _longest_pauses(login, address).items()
        )

    def _pause(self, key: _Key, longest: float) -> float:
        beyond = self._guesses[key].number - FREE_GUESSES
        # Doubled so often the pause is the longest one in any case.
        return min(FIRST_PAUSE_SECONDS * 2.0 ** min(beyond - 1, 10), longest) if beyond > 0 else 0.0


def _longest_pauses(login: str, address: str) -> dict[_Key, float]:
    return {
        ("login", login[:_LOGIN_LETTERS]): LONGEST_PAUSE_OF_LOGIN,
        ("address", address): LONGEST_PAUSE_OF_ADDRESS,
    }
