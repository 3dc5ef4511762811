"""Reads and writes bus files. All faults of a file's form are reported with their lines, before anything is done.

A plan compares a file with the bus.
"""

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from shlex import quote
from typing import Any, TypeAlias, TypeVar

from xbus.admin.bus_file.fields import BATCHES, LIMITS, NODE, RETRY, RUNS, SECTIONS, Fields, TableKey
from xbus.broker.journal import configuration
from xbus.broker.journal.configuration import (
    BotSpec,
    BusSpec,
    Change,
    ConfigurationProblem,
    EmitterSpec,
    EventTypeSpec,
    NodeSpec,
    Place,
    Plan,
    ProfileSpec,
    ReaderSpec,
    RoleSpec,
    Section,
    ServiceSpec,
    SubscriptionSpec,
    logins_without_password,
    make_plan,
    read_stored,
)
from xbus.broker.journal.configuration.decisions import Arrears, Owed, decide, heirs, read_arrears
from xbus.broker.journal.configuration.entries import Entry
from xbus.broker.journal.database.connection import Connection
from xbus.broker.journal.log.catalog import RetrySettings
from xbus.broker.journal.log.sessions import LoginKind
from xbus.broker.journal.replay import NoWay, Unreached, find_unreached
from xbus.broker.journal.writes import SendingLimits

Path: TypeAlias = tuple[str | int, ...]
"""The keys and indices that lead to a value, such as ``("service", 0, "name")``."""


def locate(text: str) -> dict[Path, int]:
    """Find the line of each table and key of a well-formed TOML text, counted from 1.

    A key inside an inline table or an array has the line where that begins, under its own path.
    """
    lines: dict[Path, int] = {}
    sizes: dict[Path, int] = {}
    table: Path = ()
    for line, statement in _statements(text):
        keys = _keys(tomllib.loads(statement))
        path = (*table, *keys)
        if statement.lstrip().startswith("["):
            path = table = _table_path(keys, statement.lstrip().startswith("[["), sizes)
        for length in range(1, len(path) + 1):
            lines.setdefault(path[:length], line)
    return lines


def error_line(error: tomllib.TOMLDecodeError, text: str) -> int:
    """Find the line where a TOML text is malformed; the parser names it in its message only."""
    found = re.search(r"\(at line (\d+), column \d+\)$", str(error))
    return int(found.group(1)) if found else len(text.rstrip().split("\n"))


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Iterate over each statement with its first line: the lines up to where they are TOML by themselves."""
    statement, first = "", 1
    for number, line in enumerate(text.split("\n"), 1):
        first = first if statement else number
        statement += line + "\n"
        try:
            tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue
        yield first, statement
        statement = ""


def _keys(parsed: dict[str, Any]) -> tuple[str, ...]:
    """Read the keys of a header or of the left side of a statement, by parsing it."""
    keys: tuple[str, ...] = ()
    value: Any = parsed
    while isinstance(value, dict) and len(value) == 1:
        ((key, value),) = value.items()
        keys = (*keys, key)
    return keys


def _table_path(keys: tuple[str, ...], is_array: bool, sizes: dict[Path, int]) -> Path:
    """Give the path of a header's table; the name of an array on the way means its last table."""
    path: Path = ()
    for key in keys[:-1]:
        path = (*path, key)
        if path in sizes:
            path = (*path, sizes[path] - 1)
    path = (*path, keys[-1])
    if is_array:
        sizes[path] = sizes.get(path, 0) + 1
        path = (*path, sizes[path] - 1)
    return path


T = TypeVar("T")

Table: TypeAlias = Mapping[str, object]
"""The content of a table of the file, right or wrong."""


@dataclass(frozen=True, order=True)
class LineProblem:
    """A fault in a line of the file."""

    line: int
    sentence: str


@dataclass(frozen=True)
class BusFile:
    """The content of a file.

    Args:
        bus: its entries, but for those whose form is wrong.
        problems: the faults of its form.
        unreadable: the entries that are left out of ``bus``.
        places: the line of each entry and field.
    """

    bus: BusSpec
    problems: tuple[LineProblem, ...]
    unreadable: frozenset[tuple[Section, str]]
    places: Mapping[Place, int]

    def locate(self, problem: ConfigurationProblem) -> LineProblem:
        """Add to a problem its line: that of its place, or of the nearest one around it."""
        place = problem.place
        while place and place not in self.places:
            place = place[:-1]
        return LineProblem(self.places.get(place, 1), f"{_describe(problem.place)}: {problem.sentence}")


def read(data: bytes) -> BusFile:
    """Read the content of a bus file, right or wrong."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return _malformed(data[: error.start].count(b"\n") + 1, "this is not text in UTF-8")
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return _malformed(error_line(error, text), f"this is not TOML ({str(error).partition(' (at ')[0]})")
    except RecursionError:
        return _malformed(1, "its values are nested too deep")
    except ValueError:  # Python reads no number of thousands of digits
        return _malformed(1, "it has a number of too many digits")
    return _BusFileReader(locate(text)).read(tables)


def _malformed(line: int, sentence: str) -> BusFile:
    return BusFile(BusSpec(), (LineProblem(line, sentence),), frozenset(), {})


def _describe(place: Place) -> str:
    """Write ``("event_type", "flights", "node", "enrich", "to")`` as ``event_type "flights", node "enrich"``."""
    return ", ".join(f'{kind} "{name}"' for kind, name in zip(place[::2], place[1::2], strict=False))


def _value(table: Table, key: str, field: TableKey) -> object:
    return field.read(table[key]) if key in table else field.default


def _event_type(*, node: Sequence[Table], **values: Any) -> tuple[EventTypeSpec, Sequence[Table]]:
    """An event type without its nodes, and their tables, which are not looked at yet."""
    return EventTypeSpec(nodes={}, **values), node


def _limited(make: Callable[..., T], **values: Any) -> T:
    """Make a profile or an emitter."""
    return make(limits=SendingLimits(**{name: values.pop(name) for name in LIMITS}), **values)


def _subscription(**values: Any) -> SubscriptionSpec:
    return SubscriptionSpec(retry=RetrySettings(**{name: values.pop(name) for name in RETRY}), **values)


class _BusFileReader:
    """Goes through the parsed file once, and collects faults and the place of everything."""

    def __init__(self, lines: Mapping[Path, int]) -> None:
        self._lines = lines
        self._problems: list[LineProblem] = []
        self._places: dict[Place, int] = {}
        self._unreadable: set[Place] = set()

    def read(self, tables: Mapping[str, Any]) -> BusFile:
        for key in tables.keys() - set(SECTIONS):
            self._complain((key,), f'there is no section "{key}"; there are {", ".join(SECTIONS)}')
        profile, emitter = partial(_limited, ProfileSpec), partial(_limited, EmitterSpec)
        bus = BusSpec(
            event_types={entry.name: entry for entry in self._event_types(tables)},
            services={entry.name: entry for _, entry in self._section(tables, Section.SERVICE, ServiceSpec)},
            readers={entry.name: entry for _, entry in self._section(tables, Section.READER, ReaderSpec)},
            roles={entry.login: entry for _, entry in self._section(tables, Section.ROLE, RoleSpec)},
            profiles={each.name: each for _, each in self._section(tables, Section.EMITTER_PROFILE, profile)},
            emitters={each.login: each for _, each in self._section(tables, Section.EMITTER, emitter)},
            bots={entry.name: entry for _, entry in self._section(tables, Section.BOT, BotSpec)},
            subscriptions={each.name: each for _, each in self._section(tables, Section.SUBSCRIPTION, _subscription)},
        )
        unreadable = frozenset((Section(place[0]), place[1]) for place in self._unreadable)
        return BusFile(bus, tuple(sorted(self._problems)), unreadable, self._places)

    def _event_types(self, tables: Mapping[str, Any]) -> Iterator[EventTypeSpec]:
        for index, (entry, of_nodes) in self._section(tables, Section.EVENT_TYPE, _event_type):
            place = (Section.EVENT_TYPE, entry.name)
            found = self._entries(of_nodes, (Section.EVENT_TYPE, index, "node"), (*place, "node"), NODE, NodeSpec)
            nodes = {node.name: node for _, node in found}
            if len(nodes) == len(of_nodes):
                yield replace(entry, nodes=nodes)
            else:
                self._unreadable.add(place)

    def _section(self, tables: Mapping[str, Any], section: Section, make: Callable[..., T]) -> Iterator[tuple[int, T]]:
        found = tables.get(section, [])
        if isinstance(found, list) and all(isinstance(entry, dict) for entry in found):
            yield from self._entries(found, (section,), (section,), SECTIONS[section], make)
        else:
            self._complain((section,), f"{section} must be a list of tables: write [[{section}]]")

    def _entries(
        self, tables: Sequence[Table], path: Path, place: Place, fields: Fields, make: Callable[..., T]
    ) -> Iterator[tuple[int, T]]:
        """Make an entry of each table that is right and the first of its name; with its index.

        Args:
            make: takes the values of ``fields`` by their keys.
        """
        for index, table in enumerate(tables):
            is_right = self._check(table, (*path, index), fields)
            name = table.get(next(iter(fields)))
            if isinstance(name, str) and self._is_first(name, (*path, index), place, fields):
                if is_right:
                    yield index, make(**{key: _value(table, key, field) for key, field in fields.items()})
                else:
                    self._unreadable.add((*place, name))

    def _is_first(self, name: str, path: Path, place: Place, fields: Fields) -> bool:
        """Note the place of the entry; or complain, if an entry of its name came before."""
        first = self._places.get((*place, name))
        if first is not None:
            self._complain(path, f'{place[-1]} "{name}" is named twice, first in line {first}')
            return False
        self._places[*place, name] = self._line(path)
        self._places.update({(*place, name, key): self._line((*path, key)) for key in fields})
        return True

    def _check(self, table: Table, path: Path, fields: Fields) -> bool:
        before = len(self._problems)
        for key in table.keys() - fields.keys():
            self._complain((*path, key), f'unknown key "{key}"; there are {", ".join(fields)}')
        for key, field in fields.items():
            if key not in table and field.required:
                self._complain(path, f"{key} is missing")
            elif key in table and not field.is_right(table[key]):
                self._complain((*path, key), f"{key} must be {field.wish}")
        return len(self._problems) == before

    def _complain(self, path: Path, sentence: str) -> None:
        self._problems.append(LineProblem(self._line(path), sentence))

    def _line(self, path: Path) -> int:
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 1)


def write(bus: BusSpec) -> str:
    """Write the bus in TOML, entries in the order of ``bus``, without defaults and rare fields."""
    return write_tables(_tables(bus))


def write_tables(tables: Iterable[tuple[str, Mapping[str, object]]]) -> str:
    """Write tables by name: a line for the name and one for each key, and an empty line between tables."""
    return "\n".join(_table(name, values) for name, values in tables)


def _tables(bus: BusSpec) -> Iterator[tuple[str, Mapping[str, object]]]:
    for section, fields in SECTIONS.items():
        if section is Section.BOT:
            # What a bot emits, and who runs it, comes before the sizes of its batches.
            later = {**BATCHES, **RUNS}
            fields = {key: field for key, field in fields.items() if key not in later} | later
        for entry in bus.section(section).values():
            yield section, _said(entry, fields)
            if isinstance(entry, EventTypeSpec):
                yield from ((f"{section}.node", _said(node, NODE)) for node in entry.nodes.values())


def _said(entry: Entry | NodeSpec, fields: Fields) -> dict[str, object]:
    """Select the values of an entry that a file has."""
    found = {}
    for key, field in fields.items():
        if field.is_written is not False:
            within = "limits" if key in LIMITS else "retry" if key in RETRY else ""
            value = getattr(getattr(entry, within, entry), key)
            if field.is_written or field.required or value != field.default:
                found[key] = field.write(value)
    return found


def _table(name: str, values: Mapping[str, object]) -> str:
    # JSON's texts, booleans, numbers and lists of texts are TOML's too; DEL is the one character that only JSON leaves
    # as it is.
    lines = (f"{key} = {_written(value)}\n" for key, value in values.items())
    return f"[[{name}]]\n{''.join(lines)}".replace("\x7f", "\\u007f")


def _written(value: object) -> str:
    """Write a value in one line."""
    if isinstance(value, Mapping):
        pairs = (f"{json.dumps(key, ensure_ascii=False)} = {_written(each)}" for key, each in value.items())
        return f"{{ {', '.join(pairs)} }}" if value else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    return json.dumps(value, ensure_ascii=False)


RENAMED = {
    Section.EVENT_TYPE: "Have all emitters send events of type {0} under that name: the former one is refused.",
    Section.ROLE: "Give the program of role {0} its new login. It goes on until it logs in anew.",
    Section.EMITTER: "Give the program of emitter {0} its new login. It goes on until it logs in anew.",
}
"""The work that a renaming leaves for people."""


@dataclass(frozen=True, slots=True)
class Decisions:
    """The answers that a person gave before the question.

    Args:
        prune: whether entries go that the file does not name.
        owed: what becomes of envelopes that are owed where no way leads any more; None to ask.
        to: the role that gets the envelopes of removed roles, with ``Owed.REROUTE``.
    """

    prune: bool = False
    owed: Owed | None = None
    to: str | None = None


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """A plan, and the envelopes about which it takes a decision.

    Args:
        problems: the reasons that forbid it, each with its line; with any, nothing is owed because of it.
    """

    plan: Plan
    arrears: Sequence[Arrears]
    problems: Sequence[LineProblem]

    def owed_by(self, change: Change) -> Iterator[Arrears]:
        """Iterate over the backlogs that a change puts in question."""
        return (owed for owed in self.arrears if owed.change == change)


@dataclass(frozen=True, slots=True)
class AppliedChange:
    """A change that was made, and the work that it leaves.

    Args:
        plan: that was applied.
        missing: kind and login of all who can't log in, because nobody has set a password.
        histories: events that new roles want, and that only a replay brings.
    """

    plan: Plan
    missing: Sequence[tuple[LoginKind, str]]
    histories: Sequence[Unreached | NoWay]

    def sentences(self) -> Iterator[str]:
        """Say what was done, and what people have to do now."""
        if self.plan.changes:
            yield f"Applied: the configuration is at version {self.plan.version + 1}."
        for rename in self.plan.renames:
            if rename.section in RENAMED:
                yield RENAMED[rename.section].format(rename.name)
        for kind, login in self.missing:
            yield f"{kind} {login} can't log in yet: xbus password {kind} {quote(login)}"


def plan_change(connection: Connection, content: bytes, decisions: Decisions) -> PlannedChange:
    """Compare a bus file with the bus.

    Args:
        connection: reads the journal.
        content: the bus file, right or wrong.
        decisions: of the person.

    Raises:
        ConfigurationError: no role can get what the person wants rerouted (``no_heir``).
    """
    found = read(content)
    plan = make_plan(read_stored(connection), found.bus, prune=decisions.prune, unreadable=found.unreadable)
    problems = sorted([*found.problems, *(found.locate(problem) for problem in plan.problems)])
    if problems:
        return PlannedChange(plan, (), problems)
    arrears = read_arrears(connection, plan)
    if decisions.owed is Owed.REROUTE:
        heirs(connection, plan, decisions.to)
    return PlannedChange(plan, arrears, ())


def apply_change(connection: Connection, change: PlannedChange, decisions: Decisions, at: datetime) -> AppliedChange:
    """Apply a plan.

    Args:
        connection: with a transaction open; it must be rolled back when this raises.
        decisions: of the person; owed envelopes are kept where they say nothing.
        at: the moment of the change.

    Raises:
        ConfigurationError: the plan has problems, or the bus has changed since it was made (``stale_plan``).
    """
    plan, answer = change.plan, decisions.owed or Owed.KEEP
    inherited = heirs(connection, plan, decisions.to) if answer is Owed.REROUTE else {}
    configuration.apply(connection, plan, at)
    decide(connection, plan, answer, inherited, at)
    return AppliedChange(plan, [*logins_without_password(connection)], find_unreached(connection, plan))
