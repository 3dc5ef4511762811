"""Buses as tests need them: graphs in a line or two, and one password for everyone."""

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

from tests.support import cheap_passwords
from tests.support.filled import IMAGES
from xbus.admin import bus_file
from xbus.broker.journal.configuration import (
    BusSpec,
    EmitterSpec,
    EventTypeSpec,
    NodeSpec,
    ProfileSpec,
    ReaderSpec,
    RoleSpec,
    ServiceSpec,
    add_demo_rows,
    apply,
    logins_without_password,
    make_plan,
    read_stored,
    set_password,
)
from xbus.broker.journal.database.connection import writing
from xbus.clock import SystemClock
from xbus.passwords import Passwords

PASSWORD = "password"

Nodes = Mapping[str, Sequence[str]]
"""A graph: each node with the nodes behind it. A node is named as its service, or ``node:service``."""


@cache
def password_hash() -> str:
    """Of the one password, made once: so databases that want the same are the same."""
    return Passwords(cheap_passwords.HASHER).hash_password(PASSWORD)


def apply_text(url: str, text: str) -> None:
    """Add to a bus what a bus file says."""
    wished = bus_file.read(text.encode())
    assert not wished.problems

    def fill() -> None:
        with writing(url) as connection:
            apply(connection, make_plan(read_stored(connection), wished.bus), SystemClock().now())

    IMAGES.fill(url, text, fill)


def add_demo(url: str) -> None:
    """Add the classic demo rows."""

    def fill() -> None:
        with writing(url) as connection:
            add_demo_rows(connection)

    IMAGES.fill(url, "demo", fill)


def add_bus(
    url: str,
    types: Mapping[str, Nodes],
    roles: Mapping[str, int] | None = None,
    immediate: Collection[str] = (),
    wishes: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Add event types with their graphs, and who sends and serves them.

    A node with others behind it is of a worker service. The roles of a service are ``service_1`` and so on. The
    emitters ``emitter_1`` and ``emitter_2`` may send all types but those whose name begins with ``forbidden``.

    Args:
        url: the database.
        types: the graph of each event type.
        roles: how many roles a service has, where it is not one.
        immediate: the event types whose emitter waits for a reply.
        wishes: further fields of a service, by its name.
    """
    wanted = _bus(types, roles or {}, immediate, wishes or {})

    def fill() -> None:
        at = SystemClock().now()
        with writing(url) as connection:
            plan = make_plan(read_stored(connection), wanted)
            assert not plan.problems, plan.problems
            apply(connection, plan, at)
            for kind, login in [*logins_without_password(connection)]:
                set_password(connection, kind, login, password_hash(), at)

    IMAGES.fill(url, repr(wanted), fill)


def add_reader(url: str, name: str, *event_types: str, logins: int = 1, **settings: Any) -> None:
    """Add a reader of some event types, with the roles ``name_1`` and so on for its programs.

    Args:
        settings: further fields of its entry.
    """
    reader = ReaderSpec(name, frozenset(event_types), **settings)
    roles = [RoleSpec(f"{name}_{number}", name) for number in range(1, logins + 1)]
    at = SystemClock().now()
    with writing(url) as connection:
        stored = read_stored(connection)
        wanted = BusSpec(
            event_types={each: stored.in_use.event_types[each] for each in event_types},
            readers={name: reader},
            roles={role.login: role for role in roles},
        )
        plan = make_plan(stored, wanted)
        assert not plan.problems, plan.problems
        apply(connection, plan, at)
        for role in roles:
            set_password(connection, "role", role.login, password_hash(), at)


def _bus(
    types: Mapping[str, Nodes],
    roles: Mapping[str, int],
    immediate: Collection[str],
    wishes: Mapping[str, Mapping[str, Any]],
) -> BusSpec:
    event_types = {name: EventTypeSpec(name, name in immediate, _nodes(nodes)) for name, nodes in types.items()}
    services: dict[str, ServiceSpec] = {}
    for nodes in types.values():
        for name, children in nodes.items():
            service = _service(name)
            services[service] = ServiceSpec(service, "worker" if children else "consumer", **wishes.get(service, {}))
    logins = [
        RoleSpec(f"{service}_{number}", service)
        for service in services
        for number in range(1, roles.get(service, 1) + 1)
    ]
    allowed = frozenset(name for name in types if not name.startswith("forbidden"))
    return BusSpec(
        event_types=event_types,
        services=services,
        roles={role.login: role for role in logins},
        profiles={"everything": ProfileSpec("everything", allowed)},
        emitters={login: EmitterSpec(login, "everything") for login in ("emitter_1", "emitter_2")},
    )


def _nodes(nodes: Nodes) -> dict[str, NodeSpec]:
    return {
        _node(name): NodeSpec(_node(name), _service(name), tuple(_node(child) for child in children))
        for name, children in nodes.items()
    }


def _node(name: str) -> str:
    return name.partition(":")[0]


def _service(name: str) -> str:
    node, _, service = name.partition(":")
    return service or node
