"""An old configuration goes into a database of ours, as a whole or not at all."""

from datetime import UTC, datetime

import pytest
import sqlalchemy as sa

from tests.support.legacy import OldDatabase, old_hash
from xbus.broker.journal.configuration import BusSpec, ServiceSpec, apply, make_plan, read_stored
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.legacy_import import ImportPlan, carry_out, plan_import, read_legacy, read_present, translate
from xbus.broker.journal.log.catalog import read_catalog, read_version
from xbus.broker.journal.people import add_person, disable_person, find_person, list_persons, set_rights
from xbus.errors import ConfigurationError
from xbus.model import emitter, history
from xbus.rights import Right

NOON = datetime(2030, 5, 17, 12, tzinfo=UTC)


def plan(old: OldDatabase, url: str) -> ImportPlan:
    wished = translate(read_legacy(old.address))
    with reading(url) as connection:
        return plan_import(read_present(connection), wished)


def take_over(old: OldDatabase, url: str) -> ImportPlan:
    planned = plan(old, url)
    with writing(url) as connection:
        carry_out(connection, planned, NOON)
    return planned


def version(url: str) -> int:
    with reading(url) as connection:
        return read_version(connection)


@pytest.fixture
def airport(old: OldDatabase) -> OldDatabase:
    """One of everything."""
    old.add_service("names")
    old.add_service("store", is_consumer=True)
    nodes = {"names": ["late"], "early:store": [], "late:store": []}
    type_id = old.add_event_type("flights", nodes, start=["names", "early"], immediate_reply=False)
    old.add_profile("airport", [type_id])
    descriptor_id = old.add("input_descriptor", name="planes", descriptor=b"<xml>\0\xff</xml>")
    old.add(
        "emission_profile",
        name="uploads",
        owner_id=old.add_user("ada"),
        input_type="descriptor",
        input_descriptor_id=descriptor_id,
        encoding="latin-1",
    )
    return old


def test_all_of_it_goes_over_once(airport: OldDatabase, database_url: str) -> None:
    before = airport.content()
    planned = take_over(airport, database_url)

    with reading(database_url) as connection:
        catalog = read_catalog(connection)
        present = read_present(connection)
        moves = connection.execute(sa.select(history.c.move, history.c.reason).order_by(history.c.id)).all()
    assert catalog.event_types.keys() == {"flights"}
    assert [entry.event_types for entry in catalog.emitters.values()] == [{"flights"}]
    assert {(entry.login, entry.service, entry.worker) for entry in catalog.roles.values()} == {
        ("names_1", "names", True),
        ("store_1", "store", False),
    }
    assert present.belongings == translate(read_legacy(airport.address)).belongings
    assert present.belongings.descriptors["planes"].content == b"<xml>\0\xff</xml>"
    assert present.passwords == translate(read_legacy(airport.address)).passwords
    assert [move.move for move in moves] == ["applied", "imported"]
    assert 'set password of person "ada"' in moves[1].reason
    assert catalog.version == planned.bus.version + 2

    assert take_over(airport, database_url).changes == ()
    assert version(database_url) == catalog.version
    assert airport.content() == before


def test_what_changed_in_the_old_bus_is_changed_by_the_next_import(airport: OldDatabase, database_url: str) -> None:
    take_over(airport, database_url)
    airport.execute("""UPDATE "user" SET email_address = NULL""")
    airport.execute("UPDATE emission_profile SET owner_id = NULL, input_descriptor_id = NULL")
    airport.execute("UPDATE input_descriptor SET descriptor_mimetype = 'text/xml'")
    airport.execute("UPDATE emitter SET password = %s", [old_hash("another")])
    airport.execute("DELETE FROM event_node_rel")
    airport.execute("DELETE FROM event_node WHERE service_id = (SELECT id FROM service WHERE name = 'names')")

    planned = take_over(airport, database_url)

    assert planned.changes == (
        'change event_type "flights": nodes',
        'change person "ada": email',
        'change input_descriptor "planes": mimetype',
        'change emission_profile "uploads": person, descriptor',
        'set password of emitter "airport_1"',
    )
    with reading(database_url) as connection:
        present = read_present(connection)
    wished = translate(read_legacy(airport.address))
    assert present.belongings == wished.belongings
    assert present.passwords == wished.passwords


def test_who_was_disabled_stays_so_and_what_was_removed_comes_back(airport: OldDatabase, sqlite_url: str) -> None:
    take_over(airport, sqlite_url)
    with writing(sqlite_url) as connection:
        disable_person(connection, "ada", NOON)
        apply(connection, make_plan(read_stored(connection), BusSpec(), prune=True), NOON)

    planned = take_over(airport, sqlite_url)

    assert not any("ada" in change for change in planned.changes)
    with reading(sqlite_url) as connection:
        ada = find_person(connection, "ada")
    assert ada is not None
    assert ada.disabled_at == NOON
    assert 'restore role "store_1"' in planned.changes
    assert planned.passwords == ()
    assert plan(airport, sqlite_url).changes == ()


def test_rights_go_over_once(airport: OldDatabase, database_url: str) -> None:
    airport.add_user("bob", ["xbus_uploader", "xbus_manager"])
    airport.add_user("eve", ["coffee"])
    planned = take_over(airport, database_url)

    assert 'give person "bob" the rights: manager uploader' in planned.changes
    with writing(database_url) as connection:
        rights = {each.name: each.rights for each in list_persons(connection)}
        assert rights == {"ada": set(), "bob": {Right.MANAGER, Right.UPLOADER}, "eve": set()}
        set_rights(connection, "ada", {Right.MANAGER}, NOON)
        set_rights(connection, "bob", (), NOON)
    assert take_over(airport, database_url).changes == ()


def test_rights_that_were_given_meanwhile_stop_it(airport: OldDatabase, sqlite_url: str) -> None:
    take_over(airport, sqlite_url)
    airport.add_user("bob", ["xbus_manager"])
    planned = plan(airport, sqlite_url)
    with writing(sqlite_url) as connection:
        add_person(connection, "bob", (), None, NOON)
    with pytest.raises(ConfigurationError) as caught, writing(sqlite_url) as connection:
        carry_out(connection, planned, NOON)
    assert caught.value.code == "stale_plan"


def test_a_database_without_memberships_has_no_rights(airport: OldDatabase, sqlite_url: str) -> None:
    airport.execute("DROP TABLE user_group")
    assert [user.permissions for user in read_legacy(airport.address).users] == [frozenset()]


def test_what_was_changed_meanwhile_stops_it(airport: OldDatabase, sqlite_url: str) -> None:
    planned = plan(airport, sqlite_url)
    with writing(sqlite_url) as connection:
        other = BusSpec(services={"other": ServiceSpec("other", "worker")})
        apply(connection, make_plan(read_stored(connection), other), NOON)
    with pytest.raises(ConfigurationError) as caught, writing(sqlite_url) as connection:
        carry_out(connection, planned, NOON)
    assert caught.value.code == "stale_plan"
    with reading(sqlite_url) as connection:
        assert read_stored(connection).in_use == other


def test_who_logs_in_meanwhile_keeps_the_new_hash_and_nothing_is_half_done(
    airport: OldDatabase, sqlite_url: str
) -> None:
    take_over(airport, sqlite_url)
    airport.execute("UPDATE emitter SET password = %s", [old_hash("another")])
    airport.execute("INSERT INTO service VALUES (gen_random_uuid(), 'more', TRUE)")
    planned = plan(airport, sqlite_url)
    with writing(sqlite_url) as connection:
        connection.execute(sa.update(emitter).values(password_hash="$argon2id$..."))
    with pytest.raises(ConfigurationError) as caught, writing(sqlite_url) as connection:
        carry_out(connection, planned, NOON)
    assert caught.value.code == "stale_plan"
    assert caught.value.next_step == "import again"
    with reading(sqlite_url) as connection:
        assert read_present(connection).passwords["emitter", "airport_1"] == "$argon2id$..."
        assert "more" not in read_stored(connection).ever.services


def test_no_service_is_a_worker_and_no_mark_is_none(old: OldDatabase, sqlite_url: str) -> None:
    """The columns of 0.2.0 may hold null."""
    service_id = old.add("service", name="names", is_consumer=None)
    type_id = old.add("event_type", name="flights", immediate_reply=None)
    old.add("event_node", service_id=service_id, type_id=type_id, is_start=None)
    take_over(old, sqlite_url)
    with reading(sqlite_url) as connection:
        stored = read_stored(connection)
    assert stored.in_use.services == {"names": ServiceSpec("names", "worker")}
    assert stored.in_use.event_types["flights"].nodes == {}
    assert stored.in_use.event_types["flights"].immediate_reply is False
