"""A bus that a test describes by a few calls, where a bus file would be longer than the test."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypedDict, Unpack

from xbus.admin import bus_file
from xbus.broker.journal.configuration import (
    BotSpec,
    BusSpec,
    EmitterSpec,
    EventTypeSpec,
    NodeSpec,
    ProfileSpec,
    ReaderSpec,
    RoleSpec,
    ServiceSpec,
    Stored,
    make_plan,
)
from xbus.broker.journal.configuration.entries import Start
from xbus.errors import ConfigurationError

RUNNERS = "runners of tests"
"""The service and the role whose program runs the bots of a sketch."""

EMITTER = "tests"
"""The login and the profile of the emitter that may send every type of a sketch."""


class ReaderFields(TypedDict, total=False):
    """The settings of a reader; ``ReaderSpec`` says what each means."""

    ranges: int
    lease: float
    batch_items: int
    batch_bytes: int
    batch_wait: float
    start: Start


class BotFields(TypedDict, total=False):
    """The settings of a bot; ``BotSpec`` says what each means."""

    cron: str
    timezone: str
    batch_items: int
    batch_bytes: int
    batch_wait: float
    instances: int
    attempts: int
    settings: Mapping[str, object]


def read_bus_file(path: str | Path, stored: Stored) -> BusSpec:
    """Read what a bus file adds to a bus.

    Raises:
        ConfigurationError: the file can't be applied; the error names each line.
    """
    found = bus_file.read(Path(path).read_bytes())
    plan = make_plan(stored, found.bus, unreadable=found.unreadable)
    problems = sorted([*found.problems, *(found.locate(problem) for problem in plan.problems)])
    if problems:
        told = "; ".join(f"{path}:{problem.line}: {problem.sentence}" for problem in problems)
        raise ConfigurationError(told, "correct the file")
    return found.bus


class Sketch:
    """Gathers event types, with a role for each of their services; the role's login is the service's name.

    Attributes:
        bus: all that was gathered.
    """

    def __init__(self) -> None:
        self.bus = BusSpec()

    def add_type(self, event_type: EventTypeSpec) -> None:
        """Add an event type that the emitter may send."""
        sent = frozenset({*(name for profile in self.bus.profiles.values() for name in profile.event_types)})
        self.bus = self.bus.with_all(
            BusSpec(
                event_types={event_type.name: event_type},
                profiles={EMITTER: ProfileSpec(EMITTER, sent | {event_type.name})},
                emitters={EMITTER: EmitterSpec(EMITTER, EMITTER)},
            )
        )

    def add_node(self, type_name: str, service: ServiceSpec, behind: str | None, *, ordered: bool = False) -> str:
        """Add a node to the graph of a type; return its name.

        Args:
            behind: the node that leads to it; None for a start node.
            ordered: whether the role of the service wants order.
        """
        event_type = self.bus.event_types[type_name]
        alike = sum(node.service == service.name for node in event_type.nodes.values())
        name = f"{service.name}_{alike + 1}" if alike else service.name
        role = RoleSpec(service.name, service.name, ordered)
        self.bus = self.bus.with_all(BusSpec(services={service.name: service}, roles={service.name: role}))
        self._grow(event_type, NodeSpec(name, service.name), behind)
        return name

    def _grow(self, event_type: EventTypeSpec, node: NodeSpec, behind: str | None) -> None:
        nodes = {**event_type.nodes, node.name: node}
        if behind is not None:
            nodes[behind] = replace(nodes[behind], to=tuple(sorted({*nodes[behind].to, node.name})))
        self.bus = self.bus.with_all(BusSpec(event_types={event_type.name: replace(event_type, nodes=nodes)}))

    def _add_missing(self, types: Iterable[str]) -> None:
        for name in types:
            if name not in self.bus.event_types:
                self.add_type(EventTypeSpec(name, False, {}))

    def add_reader(self, type_name: str, reader: ReaderSpec) -> None:
        """Add a reader, with a role of its name, or have one read a further event type."""
        known = self.bus.readers.get(reader.name, reader)
        reader = replace(reader, event_types=known.event_types | {type_name})
        role = RoleSpec(reader.name, reader.name)
        self.bus = self.bus.with_all(BusSpec(readers={reader.name: reader}, roles={role.login: role}))

    def add_bot(self, bot: BotSpec) -> None:
        """Add a bot, with all event types that it names."""
        self._add_missing(sorted(bot.reads | bot.emits))
        runners = ServiceSpec(RUNNERS, "runner")
        role = RoleSpec(RUNNERS, RUNNERS)
        bot = replace(bot, runners=RUNNERS)
        self.bus = self.bus.with_all(BusSpec(services={RUNNERS: runners}, roles={RUNNERS: role}, bots={bot.name: bot}))

    def add_emission(self, type_name: str, emits: str, behind: str | None) -> None:
        """Add a node that emits to the graph of a type.

        Behind a worker it also gets outputs for which the worker names its type.
        """
        self._add_missing([emits])
        self._grow(self.bus.event_types[type_name], NodeSpec(emits, "", (), (emits,)), behind)

    def add_outs(self, type_name: str, types: Sequence[str], node: str) -> None:
        """Have a worker's node emit what the worker names types for."""
        self._add_missing(types)
        event_type = self.bus.event_types[type_name]
        listed = replace(event_type.nodes[node], emits=tuple(sorted({*event_type.nodes[node].emits, *types})))
        self._grow(event_type, listed, None)


class Flow:
    """The place in an event type's graph at which ``to``, ``through`` and ``emits`` go on.

    Args:
        sketch: has the graph.
        type_name: the event type's.
        node: the worker's node behind which it goes on; None for the emitter.
    """

    def __init__(self, sketch: Sketch, type_name: str, node: str | None = None) -> None:
        self._sketch = sketch
        self._type_name = type_name
        self._node = node

    def through(self, service: str, *, outs: Sequence[str] = ()) -> "Flow":
        """Send the items to a worker service; give the place behind it.

        Args:
            outs: the event types that the worker may name for items.
        """
        node = self._sketch.add_node(self._type_name, ServiceSpec(service, "worker"), self._node)
        self._sketch.add_outs(self._type_name, outs, node)
        return Flow(self._sketch, self._type_name, node)

    def emits(self, event_type: str) -> "Flow":
        """Seal the items as events of another type; give the same place, for further ones."""
        self._sketch.add_emission(self._type_name, event_type, self._node)
        return self

    def to(self, *services: str, ordered: bool = False) -> "Flow":
        """Send the items to consumer services; give the same place, for further ones.

        Args:
            services: their names.
            ordered: whether each gets one envelope at a time, those of one ordering key in their order.
        """
        for service in services:
            self._sketch.add_node(self._type_name, ServiceSpec(service, "consumer"), self._node, ordered=ordered)
        return self

    def read_by(self, *readers: str, **settings: Unpack[ReaderFields]) -> "Flow":
        """Have readers read the events of this type; give the same place, for further ones.

        Args:
            readers: their names; the login of the role of each is the same.
            **settings: of all of them, as in a bus file; ranges is 1 by default, and start "oldest".
        """
        for name in readers:
            fields: ReaderFields = {"ranges": 1, "start": "oldest", **settings}
            self._sketch.add_reader(self._type_name, ReaderSpec(name, frozenset(), **fields))
        return self
