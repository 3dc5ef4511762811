"""Renames entries: which ones a bus renames, and the stored configuration under their new names; pure.

An entry is its row. Everything that belongs to it, such as its password, its rights and what it is owed, refers to the
row and stays.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from xbus.broker.journal.configuration.entries import (
    BotSpec,
    BusSpec,
    ConfigurationProblem,
    EmitterSpec,
    EventTypeSpec,
    NodeSpec,
    ProfileSpec,
    ReaderSpec,
    RoleSpec,
    Section,
    ServiceSpec,
    SubscriptionSpec,
)
from xbus.broker.journal.configuration.reading import Stored

Renames: TypeAlias = Mapping[tuple[Section, str], str]
"""The stored name of each entry that is renamed, by section and new name."""


def find_renames(stored: Stored, bus: BusSpec) -> tuple[Renames, list[ConfigurationProblem]]:
    """Find the entries that ``bus`` renames, and those that it can't rename.

    An entry that has its new name already was renamed before, and is left alone. A bus that never had an entry has
    nothing to rename: its first file may be one that renamed entries of another bus.
    """
    if not any(stored.ever.names()):
        return {}, []
    renames: dict[tuple[Section, str], str] = {}
    problems: list[ConfigurationProblem] = []
    for section, name in bus.names():
        former = bus.section(section)[name].renamed_from
        if former is None:
            continue
        problem = _problem(stored, section, former, name)
        if problem is None and former in (old for (of, _), old in renames.items() if of is section):
            problem = f'{section} "{former}" is renamed twice'
        if problem is not None:
            problems.append(ConfigurationProblem((section, name, "renamed_from"), problem))
        elif name not in stored.in_use.section(section):
            renames[section, name] = former
    return renames, problems


def _problem(stored: Stored, section: Section, former: str, name: str) -> str | None:
    in_use, removed = stored.in_use.section(section), stored.removed.section(section)
    if former == name:
        return f'{section} "{name}" has this name already: remove renamed_from'
    if former in in_use and name in in_use:
        return (
            f'both {section} "{former}" and {section} "{name}" exist: remove renamed_from if it was renamed before, '
            "else take another name"
        )
    if former not in in_use and name not in in_use:
        missing = f'there is neither {section} "{former}" nor {section} "{name}"'
        if former in removed:
            return f'{missing} ("{former}" was removed: name it again before you rename it)'
        return f"{missing}: remove renamed_from to add a new one"
    if name in removed:
        return f'{section} "{name}" was removed, and keeps its name in case it comes back: take another name'
    return None


def renamed(stored: Stored, renames: Renames) -> Stored:
    """Give the stored configuration under the new names."""
    if not renames:
        return stored
    names = _Names({(section, former): name for (section, name), former in renames.items()})
    return Stored(stored.version, names.of_bus(stored.in_use), names.of_bus(stored.removed))


class _Names:
    """Puts new names in the place of old ones.

    Args:
        new: the new name of each entry by section and stored name.
    """

    def __init__(self, new: Mapping[tuple[Section, str], str]) -> None:
        self._new = new

    def of_bus(self, bus: BusSpec) -> BusSpec:
        return BusSpec(
            {each.name: each for each in map(self._event_type, bus.event_types.values())},
            {each.name: each for each in map(self._service, bus.services.values())},
            {each.login: each for each in (self._role(role, bus.readers) for role in bus.roles.values())},
            {each.name: each for each in map(self._profile, bus.profiles.values())},
            {each.login: each for each in map(self._emitter, bus.emitters.values())},
            {each.name: each for each in map(self._reader, bus.readers.values())},
            {each.name: each for each in map(self._bot, bus.bots.values())},
            {each.name: each for each in map(self._subscription, bus.subscriptions.values())},
        )

    def _event_type(self, entry: EventTypeSpec) -> EventTypeSpec:
        nodes = {name: self._node(node) for name, node in entry.nodes.items()}
        return replace(entry, name=self._of(Section.EVENT_TYPE, entry.name), nodes=nodes)

    def _node(self, node: NodeSpec) -> NodeSpec:
        service = self._of(Section.SERVICE, node.service)
        return replace(node, service=service, emits=tuple(sorted(self._types(node.emits))))

    def _service(self, entry: ServiceSpec) -> ServiceSpec:
        return replace(entry, name=self._of(Section.SERVICE, entry.name))

    def _reader(self, entry: ReaderSpec) -> ReaderSpec:
        return replace(entry, name=self._of(Section.READER, entry.name), event_types=self._types(entry.event_types))

    def _role(self, entry: RoleSpec, readers: Collection[str]) -> RoleSpec:
        service = self._of(Section.READER if entry.service in readers else Section.SERVICE, entry.service)
        return replace(entry, login=self._of(Section.ROLE, entry.login), service=service)

    def _profile(self, entry: ProfileSpec) -> ProfileSpec:
        return replace(
            entry,
            name=self._of(Section.EMITTER_PROFILE, entry.name),
            event_types=self._types(entry.event_types),
            clients=None if entry.clients is None else self._of(Section.EMITTER_PROFILE, entry.clients),
        )

    def _emitter(self, entry: EmitterSpec) -> EmitterSpec:
        profile = self._of(Section.EMITTER_PROFILE, entry.profile)
        return replace(entry, login=self._of(Section.EMITTER, entry.login), profile=profile)

    def _bot(self, entry: BotSpec) -> BotSpec:
        return replace(
            entry,
            name=self._of(Section.BOT, entry.name),
            reads=self._types(entry.reads),
            emits=self._types(entry.emits),
            runners=None if entry.runners is None else self._of(Section.SERVICE, entry.runners),
        )

    def _subscription(self, entry: SubscriptionSpec) -> SubscriptionSpec:
        name = self._of(Section.SUBSCRIPTION, entry.name)
        return replace(entry, name=name, event_types=self._types(entry.event_types))

    def _types(self, names: Iterable[str]) -> frozenset[str]:
        return frozenset(self._of(Section.EVENT_TYPE, name) for name in names)

    def _of(self, section: Section, name: str) -> str:
        return self._new.get((section, name), name)
