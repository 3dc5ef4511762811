"""Hashes of passwords."""

from typing import Literal

import pytest
from argon2 import PasswordHasher

from xbus.passwords import Passwords


@pytest.fixture
def passwords() -> Passwords:
    return Passwords(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))


@pytest.mark.parametrize("password", ["password", "", "päßwörd ✓", "\ud800", "x" * 10_000])
def test_the_right_password_is_recognized(passwords: Passwords, password: str) -> None:
    stored = passwords.hash_password(password)
    assert passwords.verify(password, stored)
    assert not passwords.verify(password + "x", stored)


def test_a_hash_fits_its_column_and_never_repeats(passwords: Passwords) -> None:
    first, second = passwords.hash_password("password"), passwords.hash_password("password")
    assert first != second
    assert len(first) <= 255
    assert first.startswith("$argon2id$")


def test_an_unknown_login_costs_a_verification_too() -> None:
    verified: list[str] = []

    class Watching(PasswordHasher):
        def verify(self, hash: str | bytes, password: str | bytes) -> Literal[True]:
            verified.append(str(hash))
            return super().verify(hash, password)

    passwords = Passwords(Watching(time_cost=1, memory_cost=8, parallelism=1))
    assert not passwords.verify("password", None)
    assert len(verified) == 1


@pytest.mark.parametrize("stored", [None, ""])
def test_nobody_logs_in_where_no_password_is_set(passwords: Passwords, stored: str | None) -> None:
    assert not passwords.verify("the password of a login that does not exist", stored)


def test_a_stored_hash_that_is_none_refuses_and_is_told(passwords: Passwords, caplog: pytest.LogCaptureFixture) -> None:
    assert not passwords.verify("password", "5f4dcc3b")
    assert "can't be read" in caplog.text
    assert "5f4dcc3b" not in caplog.text


def test_a_hash_of_another_cost_is_to_be_made_anew(passwords: Passwords) -> None:
    cheap = passwords.hash_password("password")
    assert not passwords.needs_rehash(cheap)
    assert Passwords().needs_rehash(cheap)
