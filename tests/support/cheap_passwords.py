"""Passwords of tests cost next to nothing: checking one takes 20 ms on purpose, and a test of a broker logs in often.

What a hash costs is a matter of ``tests/unit/test_passwords.py``. A program that a test starts anew still pays.
"""

from argon2 import PasswordHasher

from xbus import passwords

HASHER = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


def use() -> None:
    """Have this process hash so cheaply from now on."""
    passwords.default_hasher = lambda: HASHER
