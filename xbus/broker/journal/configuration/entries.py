"""The bus as an administrator names it: entries that refer to each other by name, without ids and without secrets."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, TypeAlias


class Section(StrEnum):
    """The kinds of entries, in the order in which they are shown; each may refer to others by name."""

    EVENT_TYPE = "event_type"
    SERVICE = "service"
    ROLE = "role"
    EMITTER_PROFILE = "emitter_profile"
    EMITTER = "emitter"


@dataclass(frozen=True)
class Node:
    """A node of an event type's graph.

    Args:
        name: unique within the event type.
        service: the service that it asks for.
        to: the nodes that get its answers, sorted, so that their order makes no difference.
    """

    name: str
    service: str
    to: tuple[str, ...] = ()


@dataclass(frozen=True)
class EventType:
    """An event type with the current version of its graph: its nodes by name."""

    name: str
    immediate_reply: bool
    nodes: Mapping[str, Node]


@dataclass(frozen=True)
class Service:
    """What nodes ask for and roles provide."""

    name: str
    kind: Literal["worker", "consumer"]


@dataclass(frozen=True)
class Role:
    """A program that provides a service."""

    login: str
    service: str


@dataclass(frozen=True)
class Profile:
    """A set of event types that its emitters may send."""

    name: str
    event_types: frozenset[str]


@dataclass(frozen=True)
class Emitter:
    """A program that sends envelopes."""

    login: str
    profile: str


Entry: TypeAlias = EventType | Service | Role | Profile | Emitter


@dataclass(frozen=True)
class Bus:
    """Entries of all sections, each by its name or login."""

    event_types: Mapping[str, EventType] = field(default_factory=dict)
    services: Mapping[str, Service] = field(default_factory=dict)
    roles: Mapping[str, Role] = field(default_factory=dict)
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    emitters: Mapping[str, Emitter] = field(default_factory=dict)

    def section(self, section: Section) -> Mapping[str, Entry]:
        """The entries of one section by name."""
        sections: dict[Section, Mapping[str, Entry]] = {
            Section.EVENT_TYPE: self.event_types,
            Section.SERVICE: self.services,
            Section.ROLE: self.roles,
            Section.EMITTER_PROFILE: self.profiles,
            Section.EMITTER: self.emitters,
        }
        return sections[section]

    def names(self) -> Iterator[tuple[Section, str]]:
        """Every entry's section and name."""
        return ((section, name) for section in Section for name in self.section(section))

    def with_all(self, other: "Bus") -> "Bus":
        """This bus with the entries of ``other`` added; where both name one, that of ``other`` stands."""
        return Bus(
            {**self.event_types, **other.event_types},
            {**self.services, **other.services},
            {**self.roles, **other.roles},
            {**self.profiles, **other.profiles},
            {**self.emitters, **other.emitters},
        )
