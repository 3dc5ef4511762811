"""Hashes of passwords."""

import hashlib
from typing import Literal

import pytest
from argon2 import PasswordHasher

from xbus.passwords import Passwords, is_legacy_hash

SALT = hashlib.sha1(b"sixty bytes of the operating system's randomness").hexdigest()

FROM_0_2_0 = "9ab8e67e76cadcdaec0e324a9f6aa7ad570e6817f6e604534f297a5da9910aa5780d4cb1d103d026"
"""Of "password", as xbus.broker 0.2.0 itself wrote it."""


class Watching(PasswordHasher):
    """A cheap hasher that keeps what it made and what it verified."""

    def __init__(self) -> None:
        super().__init__(time_cost=1, memory_cost=8, parallelism=1)
        self.made: list[str] = []
        self.verified: list[str] = []

    def hash(self, password: str | bytes, *, salt: bytes | None = None) -> str:
        self.made.append(super().hash(password, salt=salt))
        return self.made[-1]

    def verify(self, hash: str | bytes, password: str | bytes) -> Literal[True]:
        self.verified.append(str(hash))
        return super().verify(hash, password)


def legacy_hash(password: str) -> str:
    """As xbus.broker 0.2.0 makes them, with a salt that is always the same."""
    return SALT + hashlib.sha1(password.encode() + SALT.encode()).hexdigest()


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


@pytest.mark.parametrize(
    ("stored", "verifications"), [(None, 1), ("", 1), (legacy_hash("other"), 1), (legacy_hash("password"), 1), ("x", 2)]
)
def test_every_login_costs_a_verification(stored: str | None, verifications: int) -> None:
    hasher = Watching()
    Passwords(hasher).verify("password", stored)
    assert len(hasher.verified) == verifications
    assert hasher.verified[-1].startswith("$argon2id$")


def test_nobody_costs_as_much_as_a_hash_that_is_stored_and_nothing_before() -> None:
    hasher = Watching()
    passwords = Passwords(hasher)
    assert hasher.made == []
    passwords.verify("password", None)
    assert not passwords.needs_rehash(hasher.verified[-1])


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


def test_a_hash_of_the_old_generation_is_recognized(passwords: Passwords) -> None:
    assert passwords.verify("password", FROM_0_2_0)
    assert not passwords.verify("passwort", FROM_0_2_0)


@pytest.mark.parametrize("password", ["password", "", "päßwörd ✓", "x" * 10_000])
def test_an_old_password_may_be_any_text(passwords: Passwords, password: str) -> None:
    stored = legacy_hash(password)
    assert passwords.verify(password, stored)
    assert not passwords.verify(password + "x", stored)
    assert not passwords.verify("\ud800", stored)


def test_a_hash_of_the_old_generation_is_to_be_made_anew(passwords: Passwords) -> None:
    assert passwords.needs_rehash(FROM_0_2_0)
    assert not passwords.needs_rehash(passwords.hash_password("password"))


@pytest.mark.parametrize(
    "stored",
    [
        pytest.param("g" * 80, id="no digits"),
        pytest.param(FROM_0_2_0.upper(), id="capitals"),
        pytest.param(FROM_0_2_0[:-1], id="too short"),
        pytest.param(FROM_0_2_0 + "\n", id="a line end"),
        pytest.param("１" * 80, id="digits of another script"),
        pytest.param(FROM_0_2_0[40:] + FROM_0_2_0[:40], id="the wrong way round"),
    ],
)
def test_what_only_looks_like_an_old_hash_matches_nothing(passwords: Passwords, stored: str) -> None:
    assert not passwords.verify("password", stored)
    assert not passwords.verify("", stored)


@pytest.mark.parametrize(("text", "expected"), [(FROM_0_2_0, True), ("", False), ("$argon2id$v=19", False)])
def test_old_hashes_are_told_by_their_form(text: str, expected: bool) -> None:
    assert is_legacy_hash(text) is expected
