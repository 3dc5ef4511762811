"""Reads a bus file, and reports all faults of its form with their lines, before anything is done."""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from xbus.admin.bus_file.fields import NODE, RETRY, SECTIONS, Fields, TableKey
from xbus.broker.journal.configuration import (
    BotSpec,
    BusSpec,
    ConfigurationProblem,
    EmitterSpec,
    EventTypeSpec,
    NodeSpec,
    Place,
    ProfileSpec,
    ReaderSpec,
    RoleSpec,
    Section,
    ServiceSpec,
    SubscriptionSpec,
)
from xbus.broker.journal.log.catalog import RetrySettings
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


def _node(name: str, service: str, to: Sequence[str], emits: tuple[str, ...]) -> NodeSpec:
    return NodeSpec(name, service, tuple(sorted(to)), emits)


def _reader(name: str, event_types: Sequence[str], **settings: Any) -> ReaderSpec:
    return ReaderSpec(name, frozenset(event_types), **settings)


def _profile(
    *,
    name: str,
    event_types: Sequence[str],
    new_types: str,
    clients: str | None,
    keep_keys: float | None,
    renamed_from: str | None,
    **limits: int | None,
) -> ProfileSpec:
    types, of_each = frozenset(event_types), SendingLimits(**limits)
    return ProfileSpec(name, types, renamed_from, of_each, new_types, clients, keep_keys)


def _emitter(
    login: str, profile: str, keys: tuple[str, ...], renamed_from: str | None, **limits: int | None
) -> EmitterSpec:
    return EmitterSpec(login, profile, keys, renamed_from, SendingLimits(**limits))


def _bot(*, reads: Sequence[str], emits: Sequence[str], **values: Any) -> BotSpec:
    return BotSpec(reads=frozenset(reads), emits=frozenset(emits), **values)


def _subscription(*, event_types: Sequence[str], **values: Any) -> SubscriptionSpec:
    retry = RetrySettings(**{field: values.pop(field) for field in RETRY})
    return SubscriptionSpec(event_types=frozenset(event_types), retry=retry, **values)


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
        bus = BusSpec(
            event_types={entry.name: entry for entry in self._event_types(tables)},
            services={entry.name: entry for _, entry in self._section(tables, Section.SERVICE, ServiceSpec)},
            readers={entry.name: entry for _, entry in self._section(tables, Section.READER, _reader)},
            roles={entry.login: entry for _, entry in self._section(tables, Section.ROLE, RoleSpec)},
            profiles={entry.name: entry for _, entry in self._section(tables, Section.EMITTER_PROFILE, _profile)},
            emitters={entry.login: entry for _, entry in self._section(tables, Section.EMITTER, _emitter)},
            bots={entry.name: entry for _, entry in self._section(tables, Section.BOT, _bot)},
            subscriptions={each.name: each for _, each in self._section(tables, Section.SUBSCRIPTION, _subscription)},
        )
        unreadable = frozenset((Section(place[0]), place[1]) for place in self._unreadable)
        return BusFile(bus, tuple(sorted(self._problems)), unreadable, self._places)

    def _event_types(self, tables: Mapping[str, Any]) -> Iterator[EventTypeSpec]:
        for index, (entry, of_nodes) in self._section(tables, Section.EVENT_TYPE, _event_type):
            place = (Section.EVENT_TYPE, entry.name)
            found = self._entries(of_nodes, (Section.EVENT_TYPE, index, "node"), (*place, "node"), NODE, _node)
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
