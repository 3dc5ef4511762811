"""The bus under torture: set up from ``bus.toml``, and read again to know which way items take."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import sqlalchemy as sa

from tests.support.bus import password_hash
from tests.torture.history import Received, Routes
from xbus import model
from xbus.admin import bus_file
from xbus.broker.journal.configuration import (
    BusSpec,
    EventTypeSpec,
    NodeSpec,
    apply,
    logins_without_password,
    make_plan,
    read_stored,
    set_password,
)
from xbus.broker.journal.database.connection import reading, writing
from xbus.clock import SystemClock
from xbus.states import EnvelopeState

BUS_FILE = Path(__file__).with_name("bus.toml")

SLOW = "ledger_1"
"""The consumer that takes its time."""

SEVERAL = ("audit_1", "book_1")
"""The consumers that have several envelopes open at once: the last decides about bundles together with a node."""

PROGRAM = "."
"""Stands between the role and the number of a further program that serves it."""

LISTENING = ("archive_1",)
"""The recipients that listen for the broker. The others are called over the connections that they make."""

OF_NODES = "%/%"
"""So are the emitters called that the bus has of its own for nodes that emit."""

OPTIONS: dict[str, dict[str, object]] = {
    "supervision": {
        "enabled": "true",
        "node.polling.interval": 0.5,
        "node.polling.timeout": 1,
        "node.misses.threshold": 2,
    },
    "front": {"immediate_reply_timeout": 5},
    "back": {
        "reply_hold_timeout": 5,
        "start_event_timeout": 5,
        "send_item_timeout": 5,
        "end_event_timeout": 5,
        "end_envelope_timeout": 5,
        "stop_envelope_timeout": 5,
        "register_timeout": 3,
        "worker_grace": 0.5,
        "behind_after": 1,
        # No faults are so many that anything is parked for good: then a person would have to resume it.
        "attempts": 1000,
        "first_delay": 0.1,
        "longest_delay": 1,
        "probe_interval": 0.5,
    },
}
"""Small time-outs, so that the broker notices within a run what a person would wait for."""


def read_bus() -> BusSpec:
    """What the bus file says."""
    return bus_file.read(BUS_FILE.read_bytes()).bus


def edited(bus: BusSpec) -> BusSpec:
    """A bus on which items take the same ways over other nodes: each has another name.

    Nodes that emit keep theirs. Each makes an envelope of its own, so an envelope that was open while such a node got
    another name would become two.
    """

    def renamed(event_type: EventTypeSpec) -> EventTypeSpec:
        names = {node.name: node.name if node.emits else f"{node.name}_edited" for node in event_type.nodes.values()}
        nodes = [
            replace(node, name=names[node.name], to=tuple(names[child] for child in node.to))
            for node in event_type.nodes.values()
        ]
        return replace(event_type, nodes={node.name: node for node in nodes})

    return replace(bus, event_types={name: renamed(event_type) for name, event_type in bus.event_types.items()})


def change(url: str, bus: BusSpec) -> None:
    """Have the database hold a bus, as ``xbus apply`` does.

    Raises:
        JournalUnavailable: it can't be written now.
    """
    with writing(url) as connection:
        plan = make_plan(read_stored(connection), bus)
        assert not plan.problems, plan.problems
        apply(connection, plan, SystemClock().now())


def set_up(url: str) -> None:
    """Apply the bus file, and let everybody in."""
    at = SystemClock().now()
    change(url, read_bus())
    with writing(url) as connection:
        for kind, login in [*logins_without_password(connection)]:
            set_password(connection, kind, login, password_hash(), at)


def roles(bus: BusSpec, kind: str) -> dict[str, str]:
    """The service of each role, by login, where it is a worker or a consumer."""
    return {role.login: role.service for role in bus.roles.values() if bus.services[role.service].kind == kind}


def programs(bus: BusSpec, login: str) -> list[str]:
    """The names of the programs of a role; the first is called as the role."""
    role = bus.roles[login]
    return [login, *(f"{login}{PROGRAM}{number}" for number in range(2, role.instances + role.standby + 1))]


def role_of(program: str) -> str:
    """The role that a program serves."""
    return program.partition(PROGRAM)[0]


def ordered(bus: BusSpec) -> frozenset[str]:
    """The roles that want order."""
    return frozenset(login for login, role in bus.roles.items() if role.ordered)


def routes(bus: BusSpec) -> Routes:
    """For each event type the consumer roles that it leads to, also by way of others, each with the workers before."""
    consumers = roles(bus, "consumer")
    return {
        name: {
            login: way.path
            for way in _ways(bus, event_type)
            for login, of_service in consumers.items()
            if of_service == way.service
        }
        for name, event_type in bus.event_types.items()
    }


def chained(bus: BusSpec) -> frozenset[str]:
    """The consumer roles that get what nodes emit, and nothing that was sent."""
    sent = {name for profile in bus.profiles.values() for name in profile.event_types}
    services = {way.service for name in sent for way in _ways(bus, bus.event_types[name]) if way.type_name != name}
    return frozenset(login for login, service in roles(bus, "consumer").items() if service in services)


def arrivals(bus: BusSpec, login: str) -> dict[str, tuple[str, ...]]:
    """For each event type that comes to a consumer role the workers by which its items come."""
    service = bus.roles[login].service
    sent = {name for profile in bus.profiles.values() for name in profile.event_types}
    ways = [way for name in sent for way in _ways(bus, bus.event_types[name])]
    return {way.type_name: way.path for way in ways if way.service == service}


def sources(bus: BusSpec) -> dict[str, str]:
    """For each event type that nodes emit the one that was sent."""
    sent = {name for profile in bus.profiles.values() for name in profile.event_types}
    return {way.type_name: name for name in sent for way in _ways(bus, bus.event_types[name]) if way.type_name != name}


class _Way(NamedTuple):
    """A service at an end of a graph, with the type by which it gets items, and the workers by which these come."""

    type_name: str
    service: str
    path: tuple[str, ...]


def _ways(bus: BusSpec, event_type: EventTypeSpec, before: tuple[str, ...] = ()) -> Iterator[_Way]:
    led_to = {child for node in event_type.nodes.values() for child in node.to}
    ways: list[tuple[NodeSpec, tuple[str, ...]]] = [
        (node, before) for name, node in event_type.nodes.items() if name not in led_to
    ]
    while ways:
        node, path = ways.pop()
        for emitted in node.emits:
            yield from _ways(bus, bus.event_types[emitted], path)
        if not node.to and node.service:
            yield _Way(event_type.name, node.service, path)
        ways += [(event_type.nodes[child], (*path, node.service)) for child in node.to]


def read_received(url: str, above: int = 0) -> dict[str, Received]:
    """The envelopes that were sent and the journal says are received, by id; without those that nodes made.

    Args:
        above: only those behind this position.
    """
    envelope, event, emitter = model.envelope.c, model.event.c, model.emitter.c
    statement = (
        sa.select(envelope.id, envelope.position, model.event_type.c.name, event["items"])
        .select_from(model.envelope)
        .join(model.emitter, emitter.id == envelope.emitter_id)
        .join(model.event, event.envelope_id == envelope.id)
        .join(model.event_type, model.event_type.c.id == event.event_type_id)
        .where(envelope.state == EnvelopeState.RECEIVED.value, envelope.position > above)
        .where(emitter.login.not_like(OF_NODES))
        .order_by(envelope.position, event.number)
    )
    events: dict[tuple[str, int], list[tuple[str, int]]] = {}
    with reading(url) as connection:
        for envelope_id, position, type_name, items in connection.execute(statement):
            events.setdefault((str(envelope_id), position), []).append((type_name, items))
    return {envelope_id: Received(position, tuple(found)) for (envelope_id, position), found in events.items()}


@dataclass(slots=True)
class Made:
    """The envelopes that nodes made, as far as they were looked at.

    Args:
        url: the database.
    """

    url: str
    position: int = 0
    origins: dict[str, str] = field(default_factory=dict)
    """The id of the envelope of which each was made, by id."""
    keys: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often each node made one of each envelope."""

    def look(self) -> "Made":
        """Look for more."""
        envelope, emitter = model.envelope.c, model.emitter.c
        statement = (
            sa.select(envelope.id, envelope.position, emitter.login, envelope.idempotency_key)
            .join(model.emitter, emitter.id == envelope.emitter_id)
            .where(envelope.state == EnvelopeState.RECEIVED.value, envelope.position > self.position)
            .where(emitter.login.like(OF_NODES))
        )
        with reading(self.url) as connection:
            for envelope_id, position, login, key in connection.execute(statement):
                self.origins[str(envelope_id)] = key
                self.keys[login, key] += 1
                self.position = max(self.position, position)
        return self

    def origin(self, envelope_id: str) -> str:
        """Give the id of the envelope that was sent, of which one was made by nodes; another's own id."""
        while envelope_id in self.origins:
            envelope_id = self.origins[envelope_id]
        return envelope_id


def read_rows(url: str) -> dict[tuple[str, str], str]:
    """Why envelopes did not go the normal way, by role and envelope id."""
    row = model.delivery.c
    statement = sa.select(model.role.c.login, row.envelope_id, row.state, row.attempts, row.code, row.cause).join(
        model.role, model.role.c.id == row.role_id
    )
    with reading(url) as connection:
        return {
            (login, str(envelope_id)): f"{state} after {attempts} attempts, {code}: {cause}"
            for login, envelope_id, state, attempts, code, cause in connection.execute(statement)
        }
