"""Works out and checks a change of the configuration before anything is touched; pure."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TypeAlias

from xbus.broker.journal.configuration.checks import find_problems
from xbus.broker.journal.configuration.entries import BusSpec, ConfigurationProblem, Entry, Section, SubscriptionSpec
from xbus.broker.journal.configuration.reading import Stored
from xbus.broker.journal.configuration.renaming import Renames, find_renames, renamed

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
