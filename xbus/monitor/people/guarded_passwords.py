"""Checks and hashes passwords one after the other, and slows down who guesses the password of an open session."""

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

    def verify(self, password: str, password_hash: str | None) -> bool:
        """Check whether a password is the one behind a hash.

        Args:
            password_hash: as stored; None for a person who does not exist or may not come in.
        """
        with self._hashing:
            return self._passwords.verify(password, password_hash)

    def confirm(self, session_id: int, password: str, password_hash: str | None) -> bool:
        """Check the password of a person who is logged in, and count a wrong one against the session.

        Log-ins under the same name count elsewhere: strangers who guess must not keep this person from a new password.

        Raises:
            Failed: after wrong guesses in this session the next one must wait (``slow_down``).
        """
        session = f"session {session_id}"
        if (seconds := self._guesses.pause(session, session)) > 0:
            raise Failed("there were wrong passwords in this session", f"wait {math.ceil(seconds)} s", code="slow_down")
        is_right = self.verify(password, password_hash)
        if not is_right:
            self._guesses.note(session, session)
        return is_right
