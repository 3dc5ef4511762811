"""Renames entries: which ones a bus renames, and the stored configuration under their new names; pure.

An entry is its row. Everything that belongs to it, such as its password, its rights and what it is owed, refers to the
row and stays.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from xbus.broker.journal.configuration.entries import (
    BotSpec,
    BusSpec,
    ConfigurationProblem,
    NodeSpec,
    Section,
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
        event_types = [
            replace(
                each,
                name=self._of(Section.EVENT_TYPE, each.name),
                nodes={node.name: node for node in self._nodes(each.nodes)},
            )
            for each in bus.event_types.values()
        ]
        services = [replace(each, name=self._of(Section.SERVICE, each.name)) for each in bus.services.values()]
        readers = [
            replace(
                each,
                name=self._of(Section.READER, each.name),
                event_types=frozenset(self._of(Section.EVENT_TYPE, name) for name in each.event_types),
            )
            for each in bus.readers.values()
        ]
        roles = [
            replace(
                each,
                login=self._of(Section.ROLE, each.login),
                service=self._of(Section.READER if each.service in bus.readers else Section.SERVICE, each.service),
            )
            for each in bus.roles.values()
        ]
        profiles = [
            replace(
                each,
                name=self._of(Section.EMITTER_PROFILE, each.name),
                event_types=frozenset(self._of(Section.EVENT_TYPE, name) for name in each.event_types),
                clients=None if each.clients is None else self._of(Section.EMITTER_PROFILE, each.clients),
            )
            for each in bus.profiles.values()
        ]
        emitters = [
            replace(
                each,
                login=self._of(Section.EMITTER, each.login),
                profile=self._of(Section.EMITTER_PROFILE, each.profile),
            )
            for each in bus.emitters.values()
        ]
        return BusSpec(
            {each.name: each for each in event_types},
            {each.name: each for each in services},
            {each.login: each for each in roles},
            {each.name: each for each in profiles},
            {each.login: each for each in emitters},
            {each.name: each for each in readers},
            {each.name: each for each in self._bots(bus)},
            {each.name: each for each in self._subscriptions(bus)},
        )

    def _bots(self, bus: BusSpec) -> Iterator[BotSpec]:
        return (
            replace(
                each,
                name=self._of(Section.BOT, each.name),
                reads=frozenset(self._of(Section.EVENT_TYPE, name) for name in each.reads),
                emits=frozenset(self._of(Section.EVENT_TYPE, name) for name in each.emits),
                runners=None if each.runners is None else self._of(Section.SERVICE, each.runners),
            )
            for each in bus.bots.values()
        )

    def _subscriptions(self, bus: BusSpec) -> Iterator[SubscriptionSpec]:
        return (
            replace(
                each,
                name=self._of(Section.SUBSCRIPTION, each.name),
                event_types=frozenset(self._of(Section.EVENT_TYPE, name) for name in each.event_types),
            )
            for each in bus.subscriptions.values()
        )

    def _nodes(self, nodes: Mapping[str, NodeSpec]) -> Iterator[NodeSpec]:
        return (
            replace(
                node,
                service=self._of(Section.SERVICE, node.service),
                emits=tuple(sorted(self._of(Section.EVENT_TYPE, name) for name in node.emits)),
            )
            for node in nodes.values()
        )

    def _of(self, section: Section, name: str) -> str:
        return self._new.get((section, name), name)
