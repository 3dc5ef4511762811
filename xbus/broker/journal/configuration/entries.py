"""The bus as an administrator names it: entries that refer to each other by name, without ids and without secrets.

``renamed_from`` of an entry is its name until now. Nothing keeps it, so it makes no difference between entries.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from xbus.broker.journal.writes import NO_LIMITS, SendingLimits

MAX_ISOLATED = 100
"""The most items of an event that are parked alone, unless its type sets a number."""

Start: TypeAlias = Literal["head", "oldest"] | int | datetime
"""The begin of a role: the end of the log, the oldest existing envelope, a position, or a moment."""


class Section(StrEnum):
    """The kinds of entries, in the order in which they are shown; each may refer to others by name."""

    EVENT_TYPE = "event_type"
    SERVICE = "service"
    ROLE = "role"
    EMITTER_PROFILE = "emitter_profile"
    EMITTER = "emitter"


@dataclass(frozen=True)
class NodeSpec:
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
class EventTypeSpec:
    """An event type with the current version of its graph.

    Args:
        name: of the type.
        immediate_reply: whether ``end_event`` waits for what a consumer replies.
        nodes: the graph's nodes by name.
        bad_items: what is parked where a recipient refuses items by their indices: the whole envelope, or those alone.
        max_isolated: with more items than this refused in one event the whole envelope is parked all the same.
        secret: paths of the fields in its items that people do not see, sorted.
    """

    name: str
    immediate_reply: bool
    nodes: Mapping[str, NodeSpec]
    bad_items: Literal["envelope", "isolate"] = "envelope"
    max_isolated: int = MAX_ISOLATED
    secret: tuple[str, ...] = ()
    renamed_from: str | None = field(default=None, compare=False)


@dataclass(frozen=True)
class ServiceSpec:
    """A service, which nodes ask for and roles provide; the last five fields are for consumers.

    Args:
        name: of the service.
        kind: for good.
        failures: whether a refusal by one of its consumers stops the envelope for all who lack it, or is its own.
        attempts: how often an envelope is tried before it is parked; None for what ``[back]`` says, as below.
        first_delay: seconds before the second attempt; doubled each time.
        longest_delay: the most that a delay grows to, in seconds.
        jitter: by which part a delay is made longer or shorter at random, 0 to 1.
    """

    name: str
    kind: Literal["worker", "consumer"]
    failures: Literal["shared", "own"] = "shared"
    attempts: int | None = None
    first_delay: float | None = None
    longest_delay: float | None = None
    jitter: float | None = None
    renamed_from: str | None = field(default=None, compare=False)


@dataclass(frozen=True)
class RoleSpec:
    """A role that provides a service, by one program or by several side by side.

    Args:
        login: the login of its recipients.
        service: for good.
        ordered: whether a consumer gets one envelope at a time, those of one ordering key in position order.
        start: where a consumer begins, when it is new; nothing that is kept of it, and so no difference to others. None
            for all that waits for its service, where it is the first role of that, else the end of the log.
        absent_minutes: how long it may be away while something waits for it before health tells of it; infinite for
            never, None for what ``[health]`` says, as below.
        parked_minutes: how long something may be parked for a consumer before health tells of it.
        instances: so many programs may serve it side by side.
        standby: whether further programs wait until one of those is lost.
        keys: the public keys by which its programs may log in over encrypted connections, sorted.
    """

    login: str
    service: str
    ordered: bool = False
    start: Start | None = field(default=None, compare=False)
    absent_minutes: float | None = None
    parked_minutes: float | None = None
    instances: int = 1
    standby: bool = False
    keys: tuple[str, ...] = ()
    renamed_from: str | None = field(default=None, compare=False)


@dataclass(frozen=True)
class ProfileSpec:
    """A set of event types that its emitters may send, and the limits of each of them."""

    name: str
    event_types: frozenset[str]
    renamed_from: str | None = field(default=None, compare=False)
    limits: SendingLimits = NO_LIMITS


@dataclass(frozen=True)
class EmitterSpec:
    """A program that sends envelopes; ``keys`` as those of a role. Its limits come before those of its profile."""

    login: str
    profile: str
    keys: tuple[str, ...] = ()
    renamed_from: str | None = field(default=None, compare=False)
    limits: SendingLimits = NO_LIMITS


Entry: TypeAlias = EventTypeSpec | ServiceSpec | RoleSpec | ProfileSpec | EmitterSpec


@dataclass(frozen=True)
class BusSpec:
    """Entries of all sections, each by its name or login."""

    event_types: Mapping[str, EventTypeSpec] = field(default_factory=dict)
    services: Mapping[str, ServiceSpec] = field(default_factory=dict)
    roles: Mapping[str, RoleSpec] = field(default_factory=dict)
    profiles: Mapping[str, ProfileSpec] = field(default_factory=dict)
    emitters: Mapping[str, EmitterSpec] = field(default_factory=dict)

    def section(self, section: Section) -> Mapping[str, Entry]:
        """Give the entries of one section by name."""
        sections: dict[Section, Mapping[str, Entry]] = {
            Section.EVENT_TYPE: self.event_types,
            Section.SERVICE: self.services,
            Section.ROLE: self.roles,
            Section.EMITTER_PROFILE: self.profiles,
            Section.EMITTER: self.emitters,
        }
        return sections[section]

    @classmethod
    def holding(cls, section: Section, name: str, entry: Entry) -> "BusSpec":
        """Make a bus of one entry."""
        return cls()._with(section, {name: entry})

    def without(self, section: Section, name: str) -> "BusSpec":
        """Give this bus without one entry."""
        kept = {each: entry for each, entry in self.section(section).items() if each != name}
        return self._with(section, kept)

    def _with(self, section: Section, entries: Mapping[str, Any]) -> "BusSpec":
        match section:
            case Section.EVENT_TYPE:
                return replace(self, event_types=entries)
            case Section.SERVICE:
                return replace(self, services=entries)
            case Section.ROLE:
                return replace(self, roles=entries)
            case Section.EMITTER_PROFILE:
                return replace(self, profiles=entries)
            case Section.EMITTER:
                return replace(self, emitters=entries)

    def names(self) -> Iterator[tuple[Section, str]]:
        """Iterate over every entry's section and name."""
        return ((section, name) for section in Section for name in self.section(section))

    def with_all(self, other: "BusSpec") -> "BusSpec":
        """Add the entries of ``other`` to this bus; if both have an entry, that of ``other`` wins."""
        return BusSpec(
            {**self.event_types, **other.event_types},
            {**self.services, **other.services},
            {**self.roles, **other.roles},
            {**self.profiles, **other.profiles},
            {**self.emitters, **other.emitters},
        )
