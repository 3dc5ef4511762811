"""A bus as an administrator names it: all its entries by section and name, and the places in it.

A place says where a fault is. The reader of the source, a file or a form, finds the line by it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeAlias

from xbus.broker.journal.configuration.entries.specs import (
    BotSpec,
    EmitterSpec,
    Entry,
    EventTypeSpec,
    ProfileSpec,
    ReaderSpec,
    RoleSpec,
    ServiceSpec,
    SubscriptionSpec,
)

Place: TypeAlias = tuple[str, ...]
"""A place in a bus: section, name of the entry, then field, or ``node``, name of the node, field."""


@dataclass(frozen=True)
class ConfigurationProblem:
    """The reason why a configuration is refused.

    Args:
        place: where; whoever knows the source can find the line by it.
        sentence: the fault, with names, without a final full stop.
    """

    place: Place
    sentence: str


class Section(StrEnum):
    """The kinds of entries, in the order in which they are shown; each may refer to others by name."""

    EVENT_TYPE = "event_type"
    SERVICE = "service"
    READER = "reader"
    ROLE = "role"
    EMITTER_PROFILE = "emitter_profile"
    EMITTER = "emitter"
    BOT = "bot"
    SUBSCRIPTION = "subscription"


@dataclass(frozen=True)
class BusSpec:
    """Entries of all sections, each by its name or login."""

    event_types: Mapping[str, EventTypeSpec] = field(default_factory=dict)
    services: Mapping[str, ServiceSpec] = field(default_factory=dict)
    roles: Mapping[str, RoleSpec] = field(default_factory=dict)
    profiles: Mapping[str, ProfileSpec] = field(default_factory=dict)
    emitters: Mapping[str, EmitterSpec] = field(default_factory=dict)
    readers: Mapping[str, ReaderSpec] = field(default_factory=dict)
    bots: Mapping[str, BotSpec] = field(default_factory=dict)
    subscriptions: Mapping[str, SubscriptionSpec] = field(default_factory=dict)

    def section(self, section: Section) -> Mapping[str, Entry]:
        """Give the entries of one section by name."""
        found: Mapping[str, Entry] = getattr(self, _FIELDS[section])
        return found

    @classmethod
    def holding(cls, section: Section, name: str, entry: Entry) -> "BusSpec":
        """Make a bus of one entry."""
        return cls()._with(section, {name: entry})

    def without(self, section: Section, name: str) -> "BusSpec":
        """Give this bus without one entry."""
        kept = {each: entry for each, entry in self.section(section).items() if each != name}
        return self._with(section, kept)

    def _with(self, section: Section, entries: Mapping[str, Any]) -> "BusSpec":
        return replace(self, **{_FIELDS[section]: entries})

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
            {**self.readers, **other.readers},
            {**self.bots, **other.bots},
            {**self.subscriptions, **other.subscriptions},
        )


_FIELDS: Mapping[Section, str] = {
    Section.EVENT_TYPE: "event_types",
    Section.SERVICE: "services",
    Section.READER: "readers",
    Section.ROLE: "roles",
    Section.EMITTER_PROFILE: "profiles",
    Section.EMITTER: "emitters",
    Section.BOT: "bots",
    Section.SUBSCRIPTION: "subscriptions",
}
