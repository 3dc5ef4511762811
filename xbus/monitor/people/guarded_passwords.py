"""Checks and hashes passwords one after the other, and has who guesses wrong wait longer and longer."""

import math
import threading

from xbus.broker.logins import WrongGuesses
from xbus.clock import Clock
from xbus.errors import Failed
from xbus.passwords import Passwords

HASHED_AT_ONCE = 1
"""A hash takes a core and memory on purpose; persons must leave the others to the broker."""


class GuardedPasswords:
    """The passwords of persons; safe for threads.

    Args:
        passwords: makes and compares hashes.
        clock: measures the pauses after wrong guesses.
    """

    def __init__(self, passwords: Passwords, clock: Clock) -> None:
        self._passwords = passwords
        self._guesses = WrongGuesses(clock)
        self._hashing = threading.Semaphore(HASHED_AT_ONCE)

    def hash_password(self, password: str) -> str:
        """Hash a new password for storage."""
        with self._hashing:
            return self._passwords.hash_password(password)

    def verify(self, name: str, origin: str, password: str, password_hash: str | None) -> bool:
        """Check whether a password is the one behind a hash, and count a wrong one.

        Args:
            name: whose password it is.
            origin: the address from which it came.
            password_hash: as stored; None for a person who does not exist or may not come in.

        Raises:
            Failed: after wrong guesses for the name or from the address the next one must wait (``slow_down``).
        """
        with self._hashing:
            if (seconds := self._guesses.pause(name, origin)) > 0:
                raise Failed(
                    "there were wrong passwords for this name, or from this address",
                    f"wait {math.ceil(seconds)} s",
                    code="slow_down",
                )
            is_right = self._passwords.verify(password, password_hash)
            if not is_right:
                self._guesses.note(name, origin)
            return is_right
