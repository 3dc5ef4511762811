"""``xbus person``: people are added, get rights and tokens, and are kept out."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.integration.admin.conftest import Xbus
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.people import find_person, find_session, find_token, open_session, read_password_hash
from xbus.clock import SystemClock
from xbus.ending import REFUSED
from xbus.passwords import Passwords
from xbus.rights import Right

PASSWORD = "the wheel of the bus"


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """What goes into which database is tested elsewhere."""
    return sqlite_url


def add(xbus: Xbus, name: str, *rights: str) -> None:
    result = xbus("person", "add", name, *rights, "--stdin", stdin=f"{PASSWORD}\n")
    assert result.exit_code == 0, result.output


def listed(xbus: Xbus, *command: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in xbus("person", *command, "-o", "json").stdout.splitlines()]


def lets_in(url: str, name: str, password: str) -> bool:
    with reading(url) as connection:
        found = read_password_hash(connection, name)
    return found is not None and Passwords().verify(password, found[1])


def log_in(url: str, name: str) -> str:
    with writing(url) as connection:
        found = find_person(connection, name)
        assert found is not None
        return open_session(connection, found.id, "10.0.0.1", SystemClock().now(), timedelta(hours=1))


def is_in(url: str, token: str) -> bool:
    with reading(url) as connection:
        return find_session(connection, token, SystemClock().now()) is not None


def test_a_person_is_added_with_rights_and_password(xbus: Xbus, database_url: str) -> None:
    assert xbus("person", "list").stdout == "Nobody is there: xbus person add NAME manager\n"
    result = xbus("person", "add", "ada", "uploader", "operator", "--stdin", stdin=f"{PASSWORD}\n")
    assert (result.exit_code, result.stdout) == (0, "Person ada is added: operator uploader.\n")

    assert lets_in(database_url, "ada", PASSWORD)
    assert not lets_in(database_url, "ada", "another")
    (ada,) = listed(xbus, "list")
    assert (ada["person"], ada["rights"], ada["sessions"]) == ("ada", ["operator", "uploader"], 0)
    assert (ada["last_seen_at"], ada["disabled_at"]) == (None, None)
    head, row = xbus("person", "list").stdout.splitlines()
    assert head.split() == ["NAME", "RIGHTS", "SESSIONS", "SEEN", "ADDED", "DISABLED"]
    assert row.split()[:4] == ["ada", "operator", "uploader", "0"]


def test_the_password_is_asked_for_twice(xbus: Xbus, database_url: str) -> None:
    result = xbus("person", "add", "ada", stdin=f"{PASSWORD}\n{PASSWORD}\n")
    assert result.exit_code == 0
    assert PASSWORD not in result.output
    assert lets_in(database_url, "ada", PASSWORD)
    xbus("person", "add", "bob", stdin=f"{PASSWORD}\nanother one\n")
    assert len(listed(xbus, "list")) == 1


def test_a_password_comes_from_a_file(xbus: Xbus, database_url: str, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\nand more\n")
    add(xbus, "ada")
    result = xbus("person", "password", "ada", "--file", file)
    assert (result.exit_code, result.stdout) == (0, "The password of person ada is set.\n")
    assert lets_in(database_url, "ada", PASSWORD)


def test_a_short_password_is_refused(xbus: Xbus) -> None:
    result = xbus("person", "add", "ada", "--stdin", stdin="secret\n")
    assert result.exit_code == REFUSED
    assert "the password has fewer than 8 characters" in result.stderr
    assert listed(xbus, "list") == []


def test_somebody_may_have_no_password(xbus: Xbus, database_url: str) -> None:
    assert xbus("person", "add", "robot", "uploader", "--no-password").exit_code == 0
    assert not lets_in(database_url, "robot", "")
    assert xbus("person", "add", "other", "--no-password", "--stdin").exit_code == 2


def test_rights_are_set_and_the_last_manager_stays(xbus: Xbus) -> None:
    add(xbus, "ada", "manager")
    for command in (("rights", "ada", "operator"), ("disable", "ada")):
        result = xbus("person", *command)
        assert result.exit_code == REFUSED
        assert '"ada" is the last manager: give somebody else the right manager first' in result.stderr
    add(xbus, "bob", "manager")
    assert xbus("person", "rights", "ada", "viewer", "clearer").stdout == "Person ada has the rights: clearer viewer.\n"
    assert [each["rights"] for each in listed(xbus, "list")] == [["clearer", "viewer"], ["manager"]]
    assert xbus("person", "rights", "ada").exit_code == 2
    assert xbus("person", "rights", "ada", "emperor").exit_code == 2


def test_a_disabled_person_is_kept_out_until_enabled(xbus: Xbus, database_url: str) -> None:
    add(xbus, "ada")
    session = log_in(database_url, "ada")
    assert xbus("person", "disable", "ada").stdout == "Person ada is disabled.\n"
    assert not is_in(database_url, session)
    assert listed(xbus, "list")[0]["disabled_at"] is not None
    assert xbus("person", "enable", "ada").stdout == "Person ada is enabled.\n"
    assert listed(xbus, "list")[0]["disabled_at"] is None


def test_sessions_are_ended(xbus: Xbus, database_url: str) -> None:
    add(xbus, "ada")
    session = log_in(database_url, "ada")
    assert listed(xbus, "list")[0]["sessions"] == 1
    assert xbus("person", "logout", "ada").stdout == "1 session of person ada ended.\n"
    assert not is_in(database_url, session)


def test_a_token_is_shown_once_and_removed(xbus: Xbus, database_url: str) -> None:
    add(xbus, "ada", "manager")
    result = xbus("person", "token", "add", "ada", "nightly", "--right", "uploader", "--until", "90d")
    token = result.stdout.strip()
    with reading(database_url) as connection:
        found = find_token(connection, token, SystemClock().now())
    assert found is not None
    assert found.rights == {Right.UPLOADER, Right.VIEWER}

    xbus("person", "token", "add", "ada", "for ever")
    tokens = listed(xbus, "token", "list", "ada")
    assert [(each["token"], each["rights"]) for each in tokens] == [("for ever", ["viewer"]), ("nightly", ["uploader"])]
    assert [each["expires_at"] is None for each in tokens] == [True, False]
    assert token not in xbus("person", "token", "list", "-o", "wide").stdout
    assert "89 d" in xbus("person", "token", "list").stdout

    assert xbus("person", "token", "remove", "ada", "nightly").exit_code == 0
    with reading(database_url) as connection:
        assert find_token(connection, token, SystemClock().now()) is None


@pytest.mark.parametrize(
    "command",
    [
        ("rights", "eve", "viewer"),
        ("password", "eve", "--stdin"),
        ("disable", "eve"),
        ("enable", "eve"),
        ("logout", "eve"),
        ("token", "add", "eve", "nightly"),
        ("token", "list", "eve"),
        ("token", "remove", "eve", "nightly"),
        ("disable", "\x1b[31meve\u202e"),
    ],
)
def test_nobody_is_told_apart_from_everybody(xbus: Xbus, command: tuple[str, ...]) -> None:
    result = xbus("person", *command, stdin=f"{PASSWORD}\n")
    assert result.exit_code == REFUSED
    assert 'there is no person "' in result.stderr
    assert result.stderr.replace("\n", "").isprintable()
