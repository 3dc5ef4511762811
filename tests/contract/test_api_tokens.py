"""API tokens are kept by their hashes, noted in the audit, and gone with their owner."""

from dataclasses import replace

import pytest
import sqlalchemy as sa

from tests.support.bus import add_bus
from tests.support.journal import NOW
from xbus import model
from xbus.broker.journal.api_tokens import ApiToken, add_api_token, list_api_tokens, revoke_api_token
from xbus.broker.journal.audit import AuditFilters, list_acts
from xbus.broker.journal.configuration import apply, make_plan, read_stored
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.log.sessions import read_api_tokens
from xbus.errors import ConfigurationError
from xbus.ids import token_hash


@pytest.fixture
def url(database_url: str) -> str:
    add_bus(database_url, {"orders": {"store": []}})
    return database_url


def test_a_token_is_of_an_emitter_or_a_role(url: str) -> None:
    with writing(url) as connection:
        shop = add_api_token(connection, "shop", emitter="emitter_1", at=NOW)
        both = add_api_token(connection, "both", emitter="emitter_1", role="store_1", at=NOW)
        assert list_api_tokens(connection) == [
            ApiToken("both", "emitter_1", "store_1", NOW, None),
            ApiToken("shop", "emitter_1", None, NOW, None),
        ]
    with reading(url) as connection:
        assert set(read_api_tokens(connection, of_roles=False)) == {token_hash(shop), token_hash(both)}
        assert set(read_api_tokens(connection, of_roles=True)) == {token_hash(both)}
        acts = [row.act for row in list_acts(connection, AuditFilters(), 10)]
    assert {(act.action, act.object, act.after) for act in acts if act.action == "api_token_added"} == {
        ("api_token_added", 'API token "shop"', 'emitter "emitter_1"'),
        ("api_token_added", 'API token "both"', 'emitter "emitter_1" and role "store_1"'),
    }


def test_a_revoked_token_is_gone(url: str) -> None:
    with writing(url) as connection:
        add_api_token(connection, "shop", emitter="emitter_1", at=NOW)
        revoke_api_token(connection, "shop", NOW)
        assert list_api_tokens(connection) == []
        with pytest.raises(ConfigurationError) as refusal:
            revoke_api_token(connection, "shop", NOW)
    assert refusal.value.code == "unknown_token"


def test_a_removed_emitter_has_no_tokens(url: str) -> None:
    with writing(url) as connection:
        add_api_token(connection, "shop", emitter="emitter_1", at=NOW)
        add_api_token(connection, "other", emitter="emitter_2", at=NOW)
        stored = read_stored(connection)
        left = {login: emitter for login, emitter in stored.in_use.emitters.items() if login != "emitter_1"}
        apply(connection, make_plan(stored, replace(stored.in_use, emitters=left), prune=True), NOW)
        assert [token.name for token in list_api_tokens(connection)] == ["other"]


def test_an_emitter_removed_by_sql_calls_no_more(url: str) -> None:
    with writing(url) as connection:
        add_api_token(connection, "shop", emitter="emitter_1", at=NOW)
        connection.execute(sa.update(model.emitter).values(removed_at=NOW))
        assert read_api_tokens(connection, of_roles=False) == {}


@pytest.mark.parametrize(
    ("name", "emitter", "code"),
    [
        ("", "emitter_1", "bad_name"),
        ("a\nb", "emitter_1", "bad_name"),
        ("shop", None, "owner_missing"),
        ("shop", "nobody", "unknown_login"),
        ("taken", "emitter_1", "name_taken"),
    ],
)
def test_nothing_is_made_of_bad_input(url: str, name: str, emitter: str | None, code: str) -> None:
    with writing(url) as connection:
        add_api_token(connection, "taken", emitter="emitter_1", at=NOW)
        with pytest.raises(ConfigurationError) as refusal:
            add_api_token(connection, name, emitter=emitter, at=NOW)
        assert refusal.value.code == code
        assert [token.name for token in list_api_tokens(connection)] == ["taken"]


def test_what_the_bus_has_of_its_own_gets_no_token(url: str) -> None:
    with writing(url) as connection:
        connection.execute(sa.update(model.emitter).where(model.emitter.c.login == "emitter_1").values(kind="node"))
        with pytest.raises(ConfigurationError) as refusal:
            add_api_token(connection, "forger", emitter="emitter_1", at=NOW)
        assert refusal.value.code == "unknown_login"
        assert list_api_tokens(connection) == []
