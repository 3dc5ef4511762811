"""``xbus keys``, and the keys of the bus file."""

import json
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.integration.admin.conftest import GOOD, NOON, Xbus, version
from xbus import model
from xbus.broker.journal.configuration import list_keys
from xbus.broker.journal.database.connection import reading, writing
from xbus.rpc.curve import new_pair, read_pair, write_pair

KEY, OTHER = sorted((new_pair().public, new_pair().public))


@pytest.fixture
def applied(xbus: Xbus, bus: Path) -> Path:
    assert xbus("apply", bus).exit_code == 0
    return bus


def stored(url: str) -> dict[str, tuple[str, ...]]:
    with reading(url) as connection:
        return {each.login: each.keys for each in list_keys(connection)}


def begin_session(url: str, login: str, token: bytes) -> None:
    with writing(url) as connection:
        role_id = connection.execute(sa.select(model.role.c.id).where(model.role.c.login == login)).scalar_one()
        values = {"token_hash": token, "role_id": role_id, "expires_at": NOON}
        connection.execute(sa.insert(model.session).values(values))


def sessions(url: str) -> set[bytes]:
    with reading(url) as connection:
        return set(connection.execute(sa.select(model.session.c.token_hash)).scalars())


def test_a_pair_is_made_and_shown(xbus: Xbus, tmp_path: Path) -> None:
    made = xbus("keys", "new", tmp_path / "shop.key")
    assert made.exit_code == 0, made.stderr
    assert made.stdout.strip() == read_pair(tmp_path / "shop.key").public
    assert xbus("keys", "show", tmp_path / "shop.key").stdout == made.stdout
    again = xbus("keys", "new", tmp_path / "shop.key")
    assert again.exit_code == 1
    assert "key_file_exists" in again.stderr


def test_without_a_file_the_pair_is_that_of_the_broker(xbus: Xbus, config_path: Path) -> None:
    made = xbus("keys", "new")
    assert made.stdout.strip() == read_pair(config_path.with_name("xbus.key")).public
    assert xbus("keys", "show").stdout == made.stdout


def test_keys_are_allowed_listed_and_revoked(xbus: Xbus, applied: Path, database_url: str, tmp_path: Path) -> None:
    before = version(database_url)
    assert xbus("keys", "list").stdout == "No login has a key.\n"
    assert xbus("keys", "allow", "emitter", "airport_1", "--", KEY).exit_code == 0
    assert xbus("keys", "allow", "role", "flight_store_1", "--", KEY).exit_code == 0
    pair = new_pair()
    write_pair(tmp_path / "shop.key", pair)
    assert xbus("keys", "allow", "emitter", "airport_1", tmp_path / "shop.key").exit_code == 0
    both = tuple(sorted((KEY, pair.public)))
    assert stored(database_url) == {"airport_1": both, "flight_store_1": (KEY,)}
    told = [json.loads(line) for line in xbus("keys", "list", "--json").stdout.splitlines()]
    assert told == [
        *({"kind": "emitter", "login": "airport_1", "public_key": key} for key in both),
        {"kind": "role", "login": "flight_store_1", "public_key": KEY},
    ]
    revoked = xbus("keys", "revoke", "--", KEY).stdout
    assert "airport_1 has lost the key, and has 1 key left" in revoked
    assert "flight_store_1 has lost the key, and has no key left" in revoked
    assert stored(database_url) == {"airport_1": (pair.public,)}
    assert version(database_url) == before + 4


def test_what_can_t_be_done_is_refused(xbus: Xbus, applied: Path) -> None:
    assert "unknown_login" in xbus("keys", "allow", "emitter", "nobody", "--", KEY).stderr
    assert "unknown_key" in xbus("keys", "revoke", "--", KEY).stderr
    wrong = xbus("keys", "allow", "emitter", "airport_1", "short")
    assert wrong.exit_code == 2
    assert "neither a key of 40 characters nor a key file" in wrong.stderr


def test_a_login_that_loses_a_key_loses_its_sessions(xbus: Xbus, applied: Path, database_url: str) -> None:
    xbus("keys", "allow", "role", "flight_store_1", "--", KEY)
    for login in ("flight_store_1", "airline_names_1"):
        begin_session(database_url, login, login.encode())
    xbus("keys", "allow", "role", "flight_store_1", "--", OTHER)
    assert sessions(database_url) == {b"flight_store_1", b"airline_names_1"}
    xbus("keys", "revoke", "--", KEY)
    assert sessions(database_url) == {b"airline_names_1"}


def test_the_bus_file_has_keys_and_an_export_has_them_again(xbus: Xbus, bus: Path, database_url: str) -> None:
    keys = f'keys = ["{OTHER}", "{KEY}"]\n'
    wished = GOOD.replace('login = "flight_store_1"\n', f'login = "flight_store_1"\n{keys}') + keys
    bus.write_text(wished)
    assert xbus("apply", bus).exit_code == 0
    assert stored(database_url) == {"airport_1": (KEY, OTHER), "flight_store_1": (KEY, OTHER)}
    exported = xbus("export").stdout
    assert exported.count(f'keys = ["{KEY}", "{OTHER}"]') == 2
    assert "Nothing to change" in xbus("apply", "-", "--prune", stdin=exported).stdout
    begin_session(database_url, "flight_store_1", b"flight_store_1")
    bus.write_text(GOOD)
    told = xbus("apply", bus).stdout
    assert 'change role "flight_store_1": keys' in told
    assert 'change emitter "airport_1": keys' in told
    assert stored(database_url) == {}
    assert sessions(database_url) == set()


def test_a_key_that_is_none_is_refused_with_its_line(xbus: Xbus, bus: Path) -> None:
    bus.write_text(GOOD + 'keys = ["short"]\n')
    refused = xbus("apply", bus)
    assert refused.exit_code == 1
    assert "keys must be a list of public keys" in refused.stderr
