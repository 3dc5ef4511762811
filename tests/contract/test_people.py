"""People on every database: their rights, sessions and tokens, each change with its act in the audit."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import pytest
import sqlalchemy as sa

from tests.support.journal import NOW
from xbus import model
from xbus.broker.housekeeping.people import remove_ended_sessions
from xbus.broker.journal.audit import AuditFilters, acting_as, list_acts
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.people import (
    IDLE,
    USE_NOTED,
    PersonSession,
    add_person,
    add_token,
    count_sessions_of,
    disable_person,
    enable_person,
    end_session,
    end_sessions,
    find_person,
    find_session,
    find_token,
    list_persons,
    list_tokens,
    mark_token_used,
    open_session,
    read_password_hash,
    remove_expired,
    remove_token,
    renew_session,
    set_password,
    set_rights,
)
from xbus.clock import SystemClock
from xbus.errors import Refused
from xbus.rights import Person, Right

DAY = timedelta(days=1)
HOSTILE = ["", "a\x00b", "\ud800", "x" * 1_000_000, "' OR 1=1 --", "\u202e"]
"""Texts that strangers may send as names and tokens."""


def later(**of: float) -> datetime:
    return NOW + timedelta(**of)


def add(url: str, name: str = "ada", *rights: Right, password_hash: str | None = "hash") -> Person:
    with writing(url) as connection:
        return add_person(connection, name, rights, password_hash, NOW)


def log_in(url: str, person: Person, lifetime: timedelta = DAY, at: datetime = NOW) -> str:
    with writing(url) as connection:
        return open_session(connection, person.id, "10.0.0.1", at, lifetime)


def session_of(url: str, token: str, at: datetime = NOW) -> PersonSession | None:
    with reading(url) as connection:
        return find_session(connection, token, at)


def add_one_token(url: str, person: Person, *rights: Right, expires_at: datetime | None = None) -> str:
    with writing(url) as connection:
        return add_token(connection, person.id, "nightly", rights, expires_at, NOW)


def of_token(url: str, token: str, at: datetime = NOW) -> Person | None:
    with reading(url) as connection:
        return find_token(connection, token, at)


def known(url: str, name: str = "ada") -> Person:
    with reading(url) as connection:
        found = find_person(connection, name)
    assert found is not None
    return found


def acts(url: str) -> list[tuple[str, str, str, str]]:
    """Action, object, before and after of what was done to people, the oldest first."""
    with reading(url) as connection:
        found = list_acts(connection, AuditFilters(object='person "'), 100)
    return [(row.act.action, row.act.object, row.act.before, row.act.after) for row in reversed(found)]


def refusal_of(url: str, change: Callable[[sa.Connection], object]) -> str:
    """The code with which a change is refused."""
    with pytest.raises(Refused) as caught, writing(url) as connection:
        change(connection)
    return caught.value.code


def test_people_are_listed_by_name(shared_url: str) -> None:
    bob = add(shared_url, "bob")
    ada = add(shared_url, "ada", Right.MANAGER)

    with reading(shared_url) as connection:
        assert list_persons(connection) == [ada, bob]
    assert ada == Person(ada.id, "ada", frozenset({Right.MANAGER}), None, NOW, None)
    assert acts(shared_url) == [("added", 'person "bob"', "", "viewer"), ("added", 'person "ada"', "", "manager")]


def test_the_acts_are_of_who_made_them(shared_url: str) -> None:
    with acting_as("grace", "10.9.9.9"):
        add(shared_url)

    with reading(shared_url) as connection:
        (row,) = list_acts(connection, AuditFilters(who="grace"), 100)
    assert (row.act.who, row.act.origin) == ("grace", "10.9.9.9")


def test_a_name_is_there_once(shared_url: str) -> None:
    add(shared_url)
    add(shared_url, "bob", Right.MANAGER)

    assert refusal_of(shared_url, lambda connection: add_person(connection, "ada", (), None, NOW)) == "name_taken"
    with writing(shared_url) as connection:
        disable_person(connection, "ada", NOW)
    assert refusal_of(shared_url, lambda connection: add_person(connection, "ada", (), None, NOW)) == "name_taken"
    assert refusal_of(shared_url, lambda connection: add_person(connection, "a\tb", (), None, NOW)) == "bad_name"


def test_the_password_hash_is_read_with_its_person(shared_url: str) -> None:
    ada = add(shared_url)
    bob = add(shared_url, "bob", password_hash=None)

    with reading(shared_url) as connection:
        assert read_password_hash(connection, "ada") == (ada, "hash")
        assert read_password_hash(connection, "bob") == (bob, None)
        assert read_password_hash(connection, "eve") is None


@pytest.mark.parametrize("name", HOSTILE)
def test_nobody_has_a_hostile_name(shared_url: str, name: str) -> None:
    ada = add(shared_url)

    with reading(shared_url) as connection:
        assert find_person(connection, name) is None
        assert read_password_hash(connection, name) is None
        assert find_session(connection, name, NOW) is None
        assert find_token(connection, name, NOW) is None
    assert refusal_of(shared_url, lambda connection: set_rights(connection, name, (), NOW)) == "unknown_person"
    assert refusal_of(shared_url, lambda connection: remove_token(connection, ada.id, name, NOW)) == "unknown_token"


def test_rights_change_at_once(shared_url: str) -> None:
    token = log_in(shared_url, add(shared_url))
    with writing(shared_url) as connection:
        set_rights(connection, "ada", {Right.CLEARER, Right.OPERATOR}, NOW)

    session = session_of(shared_url, token)
    assert session is not None
    assert session.person.rights == {Right.OPERATOR, Right.CLEARER}
    assert acts(shared_url)[-1] == ("rights_set", 'person "ada"', "viewer", "operator clearer")


def test_the_last_manager_stays(shared_url: str) -> None:
    add(shared_url, "ada", Right.MANAGER)
    add(shared_url, "bob", Right.OPERATOR)
    add(shared_url, "eve", Right.MANAGER)
    with writing(shared_url) as connection:
        disable_person(connection, "eve", NOW)

    assert refusal_of(shared_url, lambda connection: disable_person(connection, "ada", NOW)) == "last_manager"
    assert refusal_of(shared_url, lambda connection: set_rights(connection, "ada", (), NOW)) == "last_manager"
    with writing(shared_url) as connection:
        set_rights(connection, "bob", {Right.MANAGER, Right.OPERATOR}, NOW)
        disable_person(connection, "ada", NOW)
    assert refusal_of(shared_url, lambda connection: disable_person(connection, "bob", NOW)) == "last_manager"


def test_two_managers_can_not_disable_each_other_at_the_same_time(shared_url: str) -> None:
    add(shared_url, "ada", Right.MANAGER)
    add(shared_url, "bob", Right.MANAGER)
    both_are_there = threading.Barrier(2)

    def disable(name: str) -> str | None:
        both_are_there.wait()
        try:
            with writing(shared_url) as connection:
                disable_person(connection, name, NOW)
        except Refused as refused:
            return refused.code
        return None

    with ThreadPoolExecutor(2) as threads:
        assert set(threads.map(disable, ["ada", "bob"])) == {None, "last_manager"}


def test_a_session_is_found_by_its_token_alone(shared_url: str) -> None:
    ada = add(shared_url)
    token = log_in(shared_url, ada)

    session = session_of(shared_url, token)
    assert session is not None
    assert (session.created_at, session.expires_at, session.origin) == (NOW, NOW + DAY, "10.0.0.1")
    assert session.person == known(shared_url)
    assert known(shared_url).last_seen_at == NOW
    assert session_of(shared_url, token + "x") is None
    with reading(shared_url) as connection:
        row = connection.execute(sa.select(model.person_session)).one()
        accepted = list_acts(connection, AuditFilters(action="login_accepted"), 1)[0].act
    assert token not in str(row)
    assert (accepted.who, accepted.origin, accepted.object) == ("ada", "10.0.0.1", 'person "ada"')


def test_a_session_ends_without_use(shared_url: str) -> None:
    token = log_in(shared_url, add(shared_url))
    before_the_end = NOW + IDLE - timedelta(seconds=1)
    session = session_of(shared_url, token, before_the_end)
    assert session is not None
    assert session_of(shared_url, token, NOW + IDLE) is None

    assert session.needs_renewal(before_the_end)
    with writing(shared_url) as connection:
        renew_session(connection, session.id, before_the_end)

    renewed = session_of(shared_url, token, NOW + IDLE)
    assert renewed is not None
    assert renewed.used_at == known(shared_url).last_seen_at == before_the_end
    assert not renewed.needs_renewal(before_the_end + USE_NOTED / 2)


def test_a_session_ends_whatever_its_use(shared_url: str) -> None:
    token = log_in(shared_url, add(shared_url), lifetime=timedelta(minutes=10))
    session = session_of(shared_url, token, later(minutes=9))
    assert session is not None
    with writing(shared_url) as connection:
        renew_session(connection, session.id, later(minutes=9))

    assert session_of(shared_url, token, later(minutes=10)) is None


def test_a_person_logs_out_of_one_session(shared_url: str) -> None:
    ada = add(shared_url)
    one, other = log_in(shared_url, ada), log_in(shared_url, ada)
    session = session_of(shared_url, one)
    assert session is not None
    for _ in range(2):
        with writing(shared_url) as connection:
            end_session(connection, session.id, NOW)

    assert session_of(shared_url, one) is None
    assert session_of(shared_url, other) is not None
    assert [act[0] for act in acts(shared_url)].count("logged_out") == 1


def test_the_id_of_an_ended_session_never_means_another(shared_url: str) -> None:
    ada = add(shared_url)
    ended = session_of(shared_url, log_in(shared_url, ada))
    assert ended is not None
    with writing(shared_url) as connection:
        end_session(connection, ended.id, NOW)
    token = log_in(shared_url, ada)
    with writing(shared_url) as connection:
        end_session(connection, ended.id, NOW)

    assert session_of(shared_url, token) is not None


def test_all_sessions_of_a_person_are_counted_and_ended(shared_url: str) -> None:
    ada, bob = add(shared_url), add(shared_url, "bob")
    tokens = [log_in(shared_url, ada), log_in(shared_url, ada)]
    of_bob = log_in(shared_url, bob)
    with writing(shared_url) as connection:
        assert count_sessions_of(connection, NOW) == {ada.id: 2, bob.id: 1}
        assert count_sessions_of(connection, NOW + DAY) == {}
        assert end_sessions(connection, ada.id, NOW) == 2

    assert [session_of(shared_url, token) for token in tokens] == [None, None]
    assert session_of(shared_url, of_bob) is not None
    assert acts(shared_url)[-1] == ("sessions_ended", 'person "ada"', "", "")
    assert refusal_of(shared_url, lambda connection: end_sessions(connection, 999, NOW)) == "unknown_person"


def test_another_password_ends_all_sessions_and_keeps_tokens(shared_url: str) -> None:
    ada = add(shared_url)
    session, token = log_in(shared_url, ada), add_one_token(shared_url, ada)
    with writing(shared_url) as connection:
        set_password(connection, "ada", "other", NOW)

    assert session_of(shared_url, session) is None
    assert of_token(shared_url, token) is not None
    assert acts(shared_url)[-1] == ("password_set", 'person "ada"', "", "sessions ended")


def test_who_is_disabled_can_do_nothing_and_gets_no_session(shared_url: str) -> None:
    ada = add(shared_url, "ada", Right.OPERATOR)
    session, token = log_in(shared_url, ada), add_one_token(shared_url, ada)
    for _ in range(2):
        with writing(shared_url) as connection:
            disable_person(connection, "ada", NOW)

    assert session_of(shared_url, session) is None
    assert of_token(shared_url, token) is None
    assert known(shared_url).disabled_at == NOW
    assert acts(shared_url)[-1] == ("disabled", 'person "ada"', "operator", "")
    assert [act[0] for act in acts(shared_url)].count("disabled") == 1
    assert refusal_of(shared_url, lambda one: open_session(one, ada.id, "", NOW, DAY)) == "login_refused"
    assert refusal_of(shared_url, lambda one: add_token(one, ada.id, "more", (), None, NOW)) == "unknown_person"


def test_who_is_enabled_again_logs_in_anew(shared_url: str) -> None:
    ada = add(shared_url, "ada", Right.OPERATOR)
    session, token = log_in(shared_url, ada), add_one_token(shared_url, ada)
    with writing(shared_url) as connection:
        disable_person(connection, "ada", NOW)
        enable_person(connection, "ada", NOW)
        enable_person(connection, "ada", NOW)

    assert session_of(shared_url, session) is None
    assert of_token(shared_url, token) is None
    assert session_of(shared_url, log_in(shared_url, ada)) is not None
    assert known(shared_url).may(Right.OPERATOR)
    assert acts(shared_url)[-2] == ("enabled", 'person "ada"', "", "operator")


def test_no_session_begins_with_a_password_that_was_changed_meanwhile(shared_url: str) -> None:
    ada = add(shared_url)

    def log_in_with(verified_hash: str) -> Callable[[sa.Connection], str]:
        return lambda one: open_session(one, ada.id, "10.0.0.1", NOW, DAY, verified_hash=verified_hash)

    with writing(shared_url) as connection:
        set_password(connection, "ada", "other", NOW)
    assert refusal_of(shared_url, log_in_with("hash")) == "login_refused"
    with writing(shared_url) as connection:
        assert log_in_with("other")(connection)


def test_a_token_has_no_right_that_its_person_lacks(shared_url: str) -> None:
    ada = add(shared_url, "ada", Right.OPERATOR)
    token = add_one_token(shared_url, ada, Right.MANAGER)

    def rights() -> frozenset[Right]:
        found = of_token(shared_url, token)
        assert found is not None
        return found.rights

    assert rights() == {Right.OPERATOR, Right.VIEWER}
    with writing(shared_url) as connection:
        set_rights(connection, "ada", {Right.CLEARER}, NOW)
    assert rights() == {Right.CLEARER, Right.VIEWER}


def test_a_token_of_a_manager_has_only_the_rights_that_it_was_given(shared_url: str) -> None:
    token = add_one_token(shared_url, add(shared_url, "ada", Right.MANAGER), Right.UPLOADER)

    found = of_token(shared_url, token)
    assert found is not None
    assert [right for right in Right if found.may(right)] == [Right.UPLOADER, Right.VIEWER]


def test_a_token_ends(shared_url: str) -> None:
    token = add_one_token(shared_url, add(shared_url), expires_at=later(days=7))

    assert of_token(shared_url, token, later(days=6)) is not None
    assert of_token(shared_url, token, later(days=7)) is None
    assert acts(shared_url)[-1][3] == 'token "nightly": viewer, until 2020-03-07 12:00:00Z'


def test_tokens_are_listed_with_their_last_use_and_removed(shared_url: str) -> None:
    ada = add(shared_url)
    token = add_one_token(shared_url, ada, Right.UPLOADER)
    with writing(shared_url) as connection:
        mark_token_used(connection, token, later(hours=1))
        mark_token_used(connection, "another", later(hours=2))

    with reading(shared_url) as connection:
        (listed,) = list_tokens(connection, ada.id)
        row = connection.execute(sa.select(model.person_token)).one()
    assert (listed.name, listed.used_at) == ("nightly", later(hours=1))
    assert listed.rights == {Right.UPLOADER}
    assert known(shared_url).last_seen_at == later(hours=1)
    assert token.startswith("xbus_")
    assert token not in str(row)
    assert refusal_of(shared_url, lambda one: add_token(one, ada.id, "nightly", (), None, NOW)) == "name_taken"
    assert refusal_of(shared_url, lambda one: add_token(one, ada.id, "\u202e", (), None, NOW)) == "bad_name"

    with writing(shared_url) as connection:
        remove_token(connection, ada.id, "nightly", NOW)
    assert of_token(shared_url, token) is None
    assert acts(shared_url)[-1] == ("token_removed", 'person "ada"', 'token "nightly"', "")
    assert refusal_of(shared_url, lambda one: remove_token(one, ada.id, "nightly", NOW)) == "unknown_token"


def test_no_act_has_a_token_or_a_hash(shared_url: str) -> None:
    ada = add(shared_url, password_hash="secret-hash")
    session, token = log_in(shared_url, ada), add_one_token(shared_url, ada)
    with writing(shared_url) as connection:
        set_password(connection, "ada", "other-hash", NOW)

    told = str(acts(shared_url))
    assert [secret for secret in (session, token, "secret-hash", "other-hash") if secret in told] == []


async def test_the_broker_removes_ended_sessions_now_and_then(journal: Journal) -> None:
    def log_in_now(connection: sa.Connection) -> None:
        ada = add_person(connection, "ada", (), None, NOW)
        open_session(connection, ada.id, "10.0.0.1", SystemClock().now(), DAY)
        open_session(connection, ada.id, "10.0.0.1", NOW, DAY)

    def count(connection: sa.Connection) -> int:
        number: int = connection.execute(sa.select(sa.func.count()).select_from(model.person_session)).scalar_one()
        return number

    await journal.run(log_in_now)
    removing = asyncio.create_task(remove_ended_sessions(journal, SystemClock(), look_seconds=0.001))
    while await journal.read(count) == 2:
        await asyncio.sleep(0)
    removing.cancel()
    assert await journal.read(count) == 1


def test_sessions_that_have_ended_are_removed(shared_url: str) -> None:
    ada = add(shared_url)
    log_in(shared_url, ada, lifetime=timedelta(minutes=5))
    log_in(shared_url, ada)
    kept = log_in(shared_url, ada, at=later(minutes=30))
    with writing(shared_url) as connection:
        assert remove_expired(connection, later(minutes=4)) == 0
        assert remove_expired(connection, later(minutes=5)) == 1
        assert remove_expired(connection, NOW + IDLE) == 1
        assert remove_expired(connection, NOW + IDLE) == 0

    assert session_of(shared_url, kept, NOW + IDLE) is not None
