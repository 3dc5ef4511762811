"""Works out and checks a change of the configuration before anything is touched; pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import TypeAlias

from xbus.broker.journal.configuration.checks import find_problems
from xbus.broker.journal.configuration.entries import (
    BotSpec,
    BusSpec,
    ConfigurationProblem,
    EmitterSpec,
    Entry,
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

# -- renaming ----------------------------------------------------------------------------------------------------------
# Renames entries: which ones a bus renames, and the stored configuration under their new names; pure.
#
# An entry is its row. Everything that belongs to it, such as its password, its rights and what it is owed, refers to
# the row and stays.

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


Name: TypeAlias = tuple[Section, str]


class Move(StrEnum):
    """The kind of a change of an entry."""

    ADD = "add"
    RESTORE = "restore"
    """It was removed before and comes back, under its old id and with its old password."""
    RENAME = "rename"
    """Its row gets another name, and with it everything that belongs to it."""
    CHANGE = "change"
    REMOVE = "remove"


@dataclass(frozen=True)
class Change:
    """One entry's move.

    Args:
        move: what becomes of it.
        section: which kind of entry it is.
        name: its name or login.
        entry: how it will be; for a removal, how it was.
        fields: the names of what differs, for a change.
        former: its name until now, for a renaming.
        before: how it was, for a change.
    """

    move: Move
    section: Section
    name: str
    entry: Entry
    fields: tuple[str, ...] = ()
    former: str = ""
    before: Entry | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        if self.move is Move.RENAME:
            return f'{self.move} {self.section} "{self.former}" to "{self.name}"'
        what = f'{self.move} {self.section} "{self.name}"'
        return f"{what}: {', '.join(self.fields)}" if self.fields else what


@dataclass(frozen=True)
class Plan:
    """The changes that ``apply`` would make.

    Args:
        version: the version of the configuration that the plan starts from; it can be applied to no other.
        changes: the changes, in order; empty if the configuration is as wished already.
        problems: the reasons that forbid it; with any, nobody can apply the plan.
        before: the bus as it is, by the new names of what is renamed.
        after: the bus as the plan leaves it.
    """

    version: int
    changes: tuple[Change, ...]
    problems: tuple[ConfigurationProblem, ...]
    before: BusSpec = field(default_factory=BusSpec, compare=False, repr=False)
    after: BusSpec = field(default_factory=BusSpec, compare=False, repr=False)

    @property
    def renames(self) -> tuple[Change, ...]:
        """The changes that give an entry another name; they come before all others, which use the new names."""
        return tuple(change for change in self.changes if change.move is Move.RENAME)

    def name_of(self, section: Section, stored: str) -> str:
        """Give the name that a stored entry will have."""
        found = (each.name for each in self.renames if (each.section, each.former) == (section, stored))
        return next(found, stored)

    def stored_name(self, section: Section, name: str) -> str:
        """Give the name under which an entry is stored until the plan is applied."""
        found = (each.former for each in self.renames if (each.section, each.name) == (section, name))
        return next(found, name)

    @property
    def removals(self) -> tuple[Change, ...]:
        """The changes that take something out of use."""
        return tuple(change for change in self.changes if change.move is Move.REMOVE)

    @property
    def programs(self) -> tuple[Change, ...]:
        """The changes after which a bot runs a function or a command that it does not run now."""
        bots = (change for change in self.changes if change.section is Section.BOT)
        return tuple(
            bot for bot in bots if bot.move in (Move.ADD, Move.RESTORE) or {"call", "command"}.intersection(bot.fields)
        )


def make_plan(stored: Stored, bus: BusSpec, *, prune: bool = False, unreadable: Collection[Name] = ()) -> Plan:
    """Compare ``bus`` with the stored configuration.

    Args:
        stored: the present configuration.
        bus: the wished entries. Entries that it does not name stay as they are.
        prune: entries that ``bus`` does not name are removed instead.
        unreadable: entries that the same source names but that can't be read: a reference to them is no problem of
            its own.
    """
    renames, problems = find_renames(stored, bus)
    stored = renamed(stored, renames)
    result = bus if prune else stored.in_use.with_all(bus)
    return Plan(
        version=stored.version,
        changes=(*_renamings(bus, renames), *_wished(stored, bus), *(_removals(stored, bus) if prune else ())),
        problems=(*problems, *find_problems(stored, bus, known={*result.names(), *unreadable})),
        before=stored.in_use,
        after=result,
    )


def _renamings(bus: BusSpec, renames: Renames) -> Iterator[Change]:
    for (section, name), former in renames.items():
        yield Change(Move.RENAME, section, name, bus.section(section)[name], former=former)


def _wished(stored: Stored, bus: BusSpec) -> Iterator[Change]:
    for section, name in bus.names():
        entry = bus.section(section)[name]
        present = stored.in_use.section(section).get(name)
        if present is None:
            move = Move.RESTORE if name in stored.removed.section(section) else Move.ADD
            yield Change(move, section, name, entry)
        elif different := _differences(present, entry):
            yield Change(Move.CHANGE, section, name, entry, different, before=present)


def _removals(stored: Stored, bus: BusSpec) -> Iterator[Change]:
    for section, name in stored.in_use.names():
        if name not in bus.section(section):
            yield Change(Move.REMOVE, section, name, stored.in_use.section(section)[name])


def _differences(present: Entry, wished: Entry) -> tuple[str, ...]:
    names = [each.name for each in fields(wished) if each.compare]
    if isinstance(wished, SubscriptionSpec) and wished.secret is not None:
        names.append("secret")
    return tuple(name for name in names if getattr(present, name) != getattr(wished, name))
