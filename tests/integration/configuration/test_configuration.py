"""The configuration in a real database: what apply writes is what is read, and nothing referred to is lost."""

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from argon2 import PasswordHasher
from sqlalchemy import Connection, func, insert, select, update

from xbus.broker.journal.api_tokens import add_api_token
from xbus.broker.journal.configuration import (
    BusSpec,
    EmitterSpec,
    EventTypeSpec,
    NodeSpec,
    ProfileSpec,
    RoleSpec,
    ServiceSpec,
    add_demo_rows,
    apply,
    logins_without_password,
    make_plan,
    read_stored,
    set_password,
)
from xbus.broker.journal.configuration.entries import Start
from xbus.broker.journal.configuration.writing import demo_bus
from xbus.broker.journal.log.catalog import (
    RetrySettings,
    RoleEntry,
    read_catalog,
    read_graph,
    read_version,
)
from xbus.broker.journal.log.sessions import read_credentials
from xbus.errors import ConfigurationError
from xbus.graph import Graph
from xbus.graph import Node as GraphNode
from xbus.model import cursor, emitter, envelope, graph, head, history, role
from xbus.passwords import Passwords

NOON = datetime(2030, 5, 17, 12, tzinfo=UTC)
STORE = ServiceSpec("store", "consumer")


@pytest.fixture
def passwords() -> Passwords:
    return Passwords(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))


def change(connection: Connection, bus: BusSpec, *, prune: bool = False) -> None:
    apply(connection, make_plan(read_stored(connection), bus, prune=prune), NOON)


def store_roles(*logins: str) -> BusSpec:
    return BusSpec(services={"store": STORE}, roles={login: RoleSpec(login, "store") for login in logins})


def seal_up_to(connection: Connection, position: int) -> None:
    connection.execute(update(head).values(position=position))


def cursor_of(connection: Connection, login: str) -> tuple[int, int | None, int, int] | None:
    """The role's from, until, position and handed_to."""
    row = connection.execute(select(cursor).join(role).where(role.c.login == login)).one_or_none()
    return None if row is None else (row.from_position, row.until_position, row.position, row.handed_to)


def graph_versions(connection: Connection) -> int:
    return connection.execute(select(func.count()).select_from(graph)).scalar_one()


def test_what_is_applied_is_what_is_read(connection: Connection) -> None:
    change(connection, demo_bus())
    assert read_stored(connection).in_use == demo_bus()


def test_the_catalog_tells_front_and_back_what_is_in_use(connection: Connection) -> None:
    change(connection, demo_bus())
    catalog = read_catalog(connection)
    assert catalog.version == read_version(connection)
    assert [(entry.login, entry.event_types) for entry in catalog.emitters.values()] == [
        ("test_emitter", frozenset({"test_event"}))
    ]
    assert {(entry.login, entry.service, entry.worker) for entry in catalog.roles.values()} == {
        ("consumer_role", "consumer_service", False),
        ("worker_role", "worker_service", True),
    }
    assert all(entry.id == entry_id for entry_id, entry in catalog.roles.items())
    test_event = catalog.event_types["test_event"]
    assert not test_event.immediate_reply
    assert read_graph(connection, test_event.graph_id) == Graph(
        {
            "consumer": GraphNode("consumer", "consumer_service", False),
            "worker": GraphNode("worker", "worker_service", True, ("worker_consumer",)),
            "worker_consumer": GraphNode("worker_consumer", "consumer_service", False),
        }
    )


def test_what_services_roles_and_types_want_is_in_the_catalog(connection: Connection) -> None:
    bus = replace(
        demo_bus(),
        services={
            "consumer_service": ServiceSpec("consumer_service", "consumer", "own", 3, 0.5, 60, 0.1),
            "worker_service": ServiceSpec("worker_service", "worker"),
        },
        roles={
            "consumer_role": RoleSpec(
                "consumer_role", "consumer_service", ordered=True, absent_minutes=math.inf, parked_minutes=2.5
            ),
            "worker_role": RoleSpec("worker_role", "worker_service", absent_minutes=0, instances=4, standby=True),
        },
        event_types={
            "test_event": replace(
                demo_bus().event_types["test_event"],
                bad_items="isolate",
                max_isolated=7,
                secret=("card.number", "iban"),
            )
        },
    )
    change(connection, bus)
    assert read_stored(connection).in_use == bus
    roles = {entry.login: entry for entry in read_catalog(connection).roles.values()}
    assert (roles["consumer_role"].ordered, roles["consumer_role"].own) == (True, True)
    assert (roles["consumer_role"].absent_minutes, roles["consumer_role"].parked_minutes) == (math.inf, 2.5)
    assert (roles["worker_role"].absent_minutes, roles["worker_role"].parked_minutes) == (0, None)
    assert (roles["worker_role"].instances, roles["worker_role"].standby) == (4, True)
    assert (roles["consumer_role"].instances, roles["consumer_role"].standby) == (1, False)
    assert roles["consumer_role"].retry == RetrySettings(3, 0.5, 60, 0.1)
    assert (roles["worker_role"].ordered, roles["worker_role"].own) == (False, False)
    assert roles["worker_role"].retry == RetrySettings()
    assert read_catalog(connection).event_types["test_event"].bad_items == "isolate"
    assert read_catalog(connection).isolation == {"test_event": 7}


def test_events_of_a_removed_type_are_isolated_still(connection: Connection) -> None:
    types = {"test_event": replace(demo_bus().event_types["test_event"], bad_items="isolate")}
    change(connection, replace(demo_bus(), event_types=types))
    change(connection, BusSpec(), prune=True)
    assert read_catalog(connection).isolation == {"test_event": 100}


def test_only_who_it_is_and_what_it_serves_calls_for_another_recipient() -> None:
    entry = RoleEntry(1, "store_1", "store", worker=False)
    assert replace(entry, own=True, retry=RetrySettings(attempts=9)).is_served_like(entry)
    assert replace(entry, absent_minutes=5.0, parked_minutes=5.0).is_served_like(entry)
    assert replace(entry, instances=4, standby=True).is_served_like(entry)
    assert not replace(entry, ordered=True).is_served_like(entry)
    assert not replace(entry, service="archive").is_served_like(entry)


def test_removed_entries_are_in_no_catalog_and_log_in_no_more(connection: Connection, passwords: Passwords) -> None:
    add_demo_rows(connection, passwords)
    change(connection, BusSpec(), prune=True)
    catalog = read_catalog(connection)
    assert (catalog.event_types, catalog.emitters, catalog.roles) == ({}, {}, {})
    assert read_credentials(connection, "emitter", "test_emitter") is None
    assert read_credentials(connection, "role", "worker_role") is None
    assert read_stored(connection).removed == demo_bus()


def test_each_change_is_a_version_with_its_history(connection: Connection) -> None:
    before = read_version(connection)
    change(connection, store_roles("store_1"))
    row = connection.execute(select(history)).one()
    assert read_version(connection) == before + 1
    assert (row.at, row.subject, row.subject_id, row.move) == (NOON, "configuration", str(before + 1), "applied")
    assert row.reason == 'add service "store"; add role "store_1"'


def test_the_same_again_leaves_no_trace(connection: Connection) -> None:
    change(connection, demo_bus())
    version = read_version(connection)
    change(connection, demo_bus(), prune=True)
    assert read_version(connection) == version
    assert connection.execute(select(func.count()).select_from(history)).scalar_one() == 1


def test_a_graph_gets_a_new_version_only_when_it_differs(connection: Connection) -> None:
    change(connection, demo_bus())
    first = read_catalog(connection).event_types["test_event"].graph_id
    change(connection, BusSpec(), prune=True)
    change(connection, demo_bus())
    assert graph_versions(connection) == 1

    nodes = {"consumer": NodeSpec("consumer", "consumer_service")}
    change(connection, BusSpec(event_types={"test_event": EventTypeSpec("test_event", False, nodes)}))
    assert graph_versions(connection) == 2
    second = read_catalog(connection).event_types["test_event"].graph_id
    assert set(read_graph(connection, second).nodes) == {"consumer"}
    assert len(read_graph(connection, first).nodes) == 3


def test_a_type_without_nodes_has_an_empty_graph(connection: Connection) -> None:
    change(connection, BusSpec(event_types={"quiet": EventTypeSpec("quiet", False, {})}))
    assert read_graph(connection, read_catalog(connection).event_types["quiet"].graph_id) == Graph({})


def test_a_profile_is_brought_to_just_what_the_file_names(connection: Connection) -> None:
    types = BusSpec(event_types={name: EventTypeSpec(name, False, {}) for name in ("a", "b", "c")})
    people = BusSpec(profiles={"p": ProfileSpec("p", frozenset("ab"))}, emitters={"e": EmitterSpec("e", "p")})
    change(connection, types.with_all(people))
    change(connection, BusSpec(profiles={"p": ProfileSpec("p", frozenset("bc"))}))
    (entry,) = read_catalog(connection).emitters.values()
    assert entry.event_types == frozenset("bc")


def test_the_first_consumer_role_of_a_service_starts_with_all_that_waits(connection: Connection) -> None:
    seal_up_to(connection, 40)
    change(connection, store_roles("store_1"))
    assert cursor_of(connection, "store_1") == (1, None, 0, 0)


def test_further_consumer_roles_start_at_the_head(connection: Connection) -> None:
    seal_up_to(connection, 40)
    change(connection, store_roles("store_1", "store_2"))
    assert cursor_of(connection, "store_1") == (1, None, 0, 0)
    assert cursor_of(connection, "store_2") == (41, None, 40, 40)


def test_a_role_after_a_removed_one_starts_at_the_head(connection: Connection) -> None:
    change(connection, store_roles("store_1"))
    seal_up_to(connection, 40)
    change(connection, store_roles("store_2"), prune=True)
    assert cursor_of(connection, "store_2") == (41, None, 40, 40)


def test_a_worker_role_has_no_cursor(connection: Connection) -> None:
    change(connection, demo_bus())
    assert cursor_of(connection, "worker_role") is None


def test_a_removed_role_is_owed_nothing_new_and_goes_on_when_it_comes_back(connection: Connection) -> None:
    change(connection, store_roles("store_1"))
    connection.execute(update(cursor).values(position=30, handed_to=35))
    seal_up_to(connection, 40)
    change(connection, BusSpec(services={"store": STORE}), prune=True)
    assert cursor_of(connection, "store_1") == (1, 41, 30, 35)
    seal_up_to(connection, 50)
    change(connection, store_roles("store_1"))
    assert cursor_of(connection, "store_1") == (1, None, 30, 35)


def test_an_entry_that_comes_back_keeps_its_id_and_password(connection: Connection, passwords: Passwords) -> None:
    add_demo_rows(connection, passwords)
    before = read_credentials(connection, "role", "worker_role")
    change(connection, BusSpec(), prune=True)
    change(connection, demo_bus())
    assert read_credentials(connection, "role", "worker_role") == before


def test_a_plan_with_problems_is_not_applied(connection: Connection) -> None:
    plan = make_plan(read_stored(connection), BusSpec(roles={"x": RoleSpec("x", "nowhere")}))
    with pytest.raises(ConfigurationError, match='there is no service "nowhere"'):
        apply(connection, plan, NOON)
    assert read_stored(connection).in_use == BusSpec()


def test_a_plan_is_not_applied_to_another_version(connection: Connection) -> None:
    plan = make_plan(read_stored(connection), store_roles("store_1"))
    change(connection, demo_bus())
    with pytest.raises(
        ConfigurationError, match="someone else has changed the configuration in the meantime"
    ) as refused:
        apply(connection, plan, NOON)
    assert refused.value.code == "stale_plan"


def test_the_demo_rows_can_be_added_again(connection: Connection, passwords: Passwords) -> None:
    add_demo_rows(connection, passwords)
    version = read_version(connection)
    add_demo_rows(connection, passwords)
    assert read_version(connection) == version
    assert read_stored(connection).in_use == demo_bus()
    assert [*logins_without_password(connection)] == []
    found = read_credentials(connection, "role", "worker_role")
    assert found is not None
    assert passwords.verify("password", found[1])


def test_the_demo_rows_leave_a_password_that_was_set(connection: Connection, passwords: Passwords) -> None:
    change(connection, demo_bus())
    set_password(connection, "role", "worker_role", "a hash", NOON)
    add_demo_rows(connection, passwords)
    found = read_credentials(connection, "role", "worker_role")
    assert found is not None
    assert found[1] == "a hash"


def test_the_demo_rows_refuse_a_service_of_another_kind(connection: Connection, passwords: Passwords) -> None:
    change(connection, BusSpec(services={"worker_service": ServiceSpec("worker_service", "consumer")}))
    with pytest.raises(ConfigurationError, match="worker_service"):
        add_demo_rows(connection, passwords)


@pytest.mark.parametrize(
    ("start", "first"),
    [("head", 6), ("oldest", 3), (4, 4), (99, 6), (NOON + timedelta(hours=5), 5), (NOON + timedelta(days=1), 6)],
)
def test_a_new_role_begins_where_it_is_told_to(connection: Connection, start: Start, first: int) -> None:
    change(connection, demo_bus())
    emitter_id = connection.execute(select(emitter.c.id)).scalar_one()
    for position in range(1, 6):
        closed_at = NOON + timedelta(hours=position)
        pruned_at = NOON + timedelta(days=9) if position < 3 else None
        connection.execute(
            insert(envelope).values(
                id=uuid4(),
                emitter_id=emitter_id,
                state="received",
                opened_at=NOON,
                closed_at=closed_at,
                position=position,
                pruned_at=pruned_at,
            )
        )
    seal_up_to(connection, 5)
    change(connection, BusSpec(roles={"new": RoleSpec("new", "consumer_service", start=start)}))
    assert cursor_of(connection, "new") == (first, None, first - 1, first - 1)
    change(connection, BusSpec(roles={"new": RoleSpec("new", "consumer_service", start="oldest")}))
    assert cursor_of(connection, "new") == (first, None, first - 1, first - 1)


def test_nobody_logs_in_before_a_password_is_set(connection: Connection) -> None:
    change(connection, demo_bus())
    assert read_credentials(connection, "emitter", "test_emitter") is None
    assert [*logins_without_password(connection)] == [
        ("emitter", "test_emitter"),
        ("role", "consumer_role"),
        ("role", "worker_role"),
    ]
    add_api_token(connection, "laptop", emitter="test_emitter", role="worker_role", at=NOON)
    assert [*logins_without_password(connection)] == [("role", "consumer_role")]


def test_a_password_is_set_for_one_kind_of_login_only(connection: Connection) -> None:
    same = replace(demo_bus(), emitters={"worker_role": EmitterSpec("worker_role", "test_profile")})
    change(connection, same)
    before = read_version(connection)
    set_password(connection, "role", "worker_role", "a hash", NOON)
    assert read_version(connection) == before + 1
    assert read_credentials(connection, "emitter", "worker_role") is None
    assert connection.execute(select(history.c.reason).order_by(history.c.id.desc())).scalars().first() == (
        'password of role "worker_role"'
    )


def test_a_password_of_nobody_is_refused(connection: Connection) -> None:
    with pytest.raises(ConfigurationError, match='there is no emitter "nobody"'):
        set_password(connection, "emitter", "nobody", "a hash", NOON)
