"""The rules that a configuration must keep before it is accepted; pure."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from xbus import graph as graphs
from xbus.broker.journal.configuration.entries import BusSpec, EventTypeSpec, Section, ServiceSpec
from xbus.broker.journal.configuration.reading import Stored

Place: TypeAlias = tuple[str, ...]
"""A place in a bus: section, name of the entry, then field, or ``node``, name of the node, field."""

FAILURE_FIELDS = ("failures", "attempts", "first_delay", "longest_delay", "jitter")
"""The fields of a service about failures."""


@dataclass(frozen=True)
class ConfigurationProblem:
    """The reason why a configuration is refused.

    Args:
        place: where; whoever knows the source can find the line by it.
        sentence: the fault, with names, without a final full stop.
    """

    place: Place
    sentence: str


def find_problems(
    stored: Stored, bus: BusSpec, known: Collection[tuple[Section, str]]
) -> Iterator[ConfigurationProblem]:
    """Iterate over every reason why ``bus`` can't be put on top of ``stored``.

    Args:
        stored: the present configuration.
        bus: the wished entries.
        known: section and name of all entries that there will be.
    """
    yield from _unknown_references(bus, known)
    yield from _changed_kinds(stored, bus)
    yield from _changed_services(stored, bus)
    yield from _bad_event_types(stored, bus)
    yield from _consumers_matters(stored, bus)
    yield from _crossed_delays(bus)


def _references(bus: BusSpec) -> Iterator[tuple[Place, Section, str]]:
    """Iterate over each mention of another entry: the place, the other's section and name."""
    for event_type in bus.event_types.values():
        for node in event_type.nodes.values():
            place = (Section.EVENT_TYPE, event_type.name, "node", node.name, "service")
            yield place, Section.SERVICE, node.service
    for role in bus.roles.values():
        yield (Section.ROLE, role.login, "service"), Section.SERVICE, role.service
    for profile in bus.profiles.values():
        for name in sorted(profile.event_types):
            yield (Section.EMITTER_PROFILE, profile.name, "event_types"), Section.EVENT_TYPE, name
    for emitter in bus.emitters.values():
        yield (Section.EMITTER, emitter.login, "profile"), Section.EMITTER_PROFILE, emitter.profile


def _unknown_references(bus: BusSpec, known: Collection[tuple[Section, str]]) -> Iterator[ConfigurationProblem]:
    for place, section, name in _references(bus):
        if (section, name) not in known:
            yield ConfigurationProblem(place, f'there is no {section} "{name}"')


def _changed_kinds(stored: Stored, bus: BusSpec) -> Iterator[ConfigurationProblem]:
    """Find services of another kind; graphs in use and cursors depend on the kind, so it is for ever."""
    for service in bus.services.values():
        present = stored.ever.services.get(service.name)
        if present is not None and present.kind != service.kind:
            sentence = (
                f'service "{service.name}" is a {present.kind} and stays one; take another name for a {service.kind}'
            )
            yield ConfigurationProblem((Section.SERVICE, service.name, "kind"), sentence)


def _changed_services(stored: Stored, bus: BusSpec) -> Iterator[ConfigurationProblem]:
    """Find roles of another service; it defines what a role is owed and its cursor, so it is for ever."""
    for role in bus.roles.values():
        present = stored.ever.roles.get(role.login)
        if present is not None and present.service != role.service:
            sentence = f'role "{role.login}" belongs to service "{present.service}" for good; take another login'
            yield ConfigurationProblem((Section.ROLE, role.login, "service"), sentence)


def _consumers_matters(stored: Stored, bus: BusSpec) -> Iterator[ConfigurationProblem]:
    """Find settings that only consumers have: a retry policy of a service, and order of a role."""
    services = stored.ever.with_all(bus).services
    for service in bus.services.values():
        for field in FAILURE_FIELDS:
            if service.kind == "worker" and getattr(service, field) != getattr(
                ServiceSpec(service.name, "worker"), field
            ):
                sentence = f"{field} is of meaning for consumers only: they are what envelopes are tried again for"
                yield ConfigurationProblem((Section.SERVICE, service.name, field), sentence)
    for role in bus.roles.values():
        if role.ordered and role.service in services and services[role.service].kind == "worker":
            sentence = "ordered is of meaning for consumers only: a worker gets events as its runs need it"
            yield ConfigurationProblem((Section.ROLE, role.login, "ordered"), sentence)
        if role.parked_minutes is not None and role.service in services and services[role.service].kind == "worker":
            sentence = "parked_minutes is of meaning for consumers only: nothing is parked for a worker"
            yield ConfigurationProblem((Section.ROLE, role.login, "parked_minutes"), sentence)
        if role.start is not None and role.service in services and services[role.service].kind == "worker":
            sentence = "start is of meaning for consumers only: a worker gets what others need it for"
            yield ConfigurationProblem((Section.ROLE, role.login, "start"), sentence)


def _crossed_delays(bus: BusSpec) -> Iterator[ConfigurationProblem]:
    for service in bus.services.values():
        first, longest = service.first_delay, service.longest_delay
        if first is not None and longest is not None and first > longest:
            sentence = f"first_delay ({first:g} s) is longer than longest_delay ({longest:g} s)"
            yield ConfigurationProblem((Section.SERVICE, service.name, "first_delay"), sentence)


def _bad_event_types(stored: Stored, bus: BusSpec) -> Iterator[ConfigurationProblem]:
    workers = {service.name: service.kind == "worker" for service in stored.ever.with_all(bus).services.values()}
    for event_type in bus.event_types.values():
        place = (Section.EVENT_TYPE, event_type.name)
        for sentence in _graph_problems(event_type, workers):
            yield ConfigurationProblem(place, sentence)


def _graph_problems(event_type: EventTypeSpec, workers: dict[str, bool]) -> list[str]:
    """List the faults of a graph; a service that does not exist, which references report, counts as what it must be."""
    nodes = [
        graphs.Node(node.name, node.service, workers.get(node.service, bool(node.to)), node.to)
        for node in event_type.nodes.values()
    ]
    return graphs.problems(graphs.Graph({node.name: node for node in nodes}))
