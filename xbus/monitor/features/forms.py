"""Forms of entries: fields of the bus file become fields of a form, and what a person writes there a bus file; pure.

The nodes of an event type stand in rows, each with a number. A row names the rows whose nodes come before its own, so
that a node keeps its place when its name changes.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from xbus.admin import bus_file
from xbus.admin.bus_file import LineProblem
from xbus.admin.bus_file.fields import FORMER, NODE, SECTIONS, FieldShape, TableKey
from xbus.broker.journal.configuration import BusSpec, NodeSpec, Section
from xbus.broker.journal.configuration.entries import Entry
from xbus.json_text import parse_json

Given: TypeAlias = Mapping[str, Sequence[str]]
"""The values of a form by the names of its fields."""

ROWS = "row"
"""The field that has the numbers of the rows."""

BEFORE = "from"
"""The field of a row with the numbers of the rows before it. The bus file names the rows behind it, as ``to``."""

_NUMBER = re.compile(r"-?\d{1,18}(\.\d{1,18})?")
_ROW = re.compile(r"\d{1,6}")


@dataclass(frozen=True, slots=True)
class FormField:
    """A field to fill in.

    Args:
        name: in the form.
        values: that stand in it.
        choices: that the person has; with its present values among them.
    """

    name: str
    key: str
    about: TableKey
    values: Sequence[str]
    choices: Sequence[str] = ()

    @property
    def value(self) -> str:
        """The only value."""
        return self.values[0] if self.values else ""

    @property
    def label(self) -> str:
        """The key in words."""
        return self.key.replace("_", " ").capitalize()

    @property
    def is_on(self) -> bool:
        """Check whether a switch is on."""
        return self.value == "true"

    @property
    def otherwise(self) -> str:
        """The meaning of the empty field, if anybody says it."""
        default = self.about.default
        return "" if self.about.required or default in (None, "", False, frozenset()) else str(default)


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A row of the form for a node.

    Args:
        number: of the row.
        before: the numbers of the rows before it.
        others: number and name of all other rows.
    """

    number: str
    fields: Sequence[FormField]
    before: Sequence[str]
    others: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Draft:
    """An entry as a person has written it into a form, right or wrong.

    Args:
        section: the kind of the entry.
        stored: its name on the bus; empty for a new one.
        given: the form.
    """

    section: Section
    stored: str
    given: Given

    @classmethod
    def new(cls, section: Section) -> "Draft":
        """Make the form of a new entry, in which switches are as without it."""
        return cls(section, "", _switched_on(section))

    @classmethod
    def of(cls, section: Section, name: str, entry: Entry) -> "Draft":
        """Fill a form with an entry of the bus."""
        written = tomllib.loads(bus_file.write(BusSpec.holding(section, name, entry)))
        table: dict[str, Any] = written[section][0]
        nodes: list[dict[str, Any]] = table.pop("node", [])
        given = _switched_on(section) | {key: _texts(value) for key, value in table.items()}
        given[ROWS] = [str(number) for number in range(len(nodes))]
        for number, node in enumerate(nodes):
            given |= {f"node.{number}.{key}": _texts(value) for key, value in node.items() if key != "to"}
            parents = [str(other) for other, each in enumerate(nodes) if node["name"] in each.get("to", ())]
            given[f"node.{number}.{BEFORE}"] = parents
        return cls(section, name, given)

    @property
    def name(self) -> str:
        """The name as it is written, which may be a new one."""
        return self._one(self.name_key)

    @property
    def name_key(self) -> str:
        """The field that has the name."""
        return next(iter(SECTIONS[self.section]))

    @cached_property
    def text(self) -> str:
        """The bus file that this entry alone makes."""
        return bus_file.write_tables((name, values) for name, values, _ in self._tables())

    def fields(self, in_use: BusSpec) -> Iterator[FormField]:
        """Iterate over the fields, apart from nodes.

        Args:
            in_use: has the names that fields may refer to.
        """
        for key, about in SECTIONS[self.section].items():
            if about.shape is not FieldShape.TABLES and key not in FORMER:
                yield self._field(key, key, about, in_use)

    def rows(self, in_use: BusSpec) -> Iterator[NodeRow]:
        """Iterate over the rows of nodes."""
        names = {row: self._one(f"node.{row}.name") for row in self._rows}
        for row in self._rows:
            fields = [
                self._field(f"node.{row}.{key}", key, about, in_use) for key, about in NODE.items() if key != "to"
            ]
            others = [(other, name) for other, name in names.items() if other != row]
            yield NodeRow(row, fields, self._before(row), others)

    def nodes(self) -> Iterator[NodeSpec]:
        """Iterate over the node of each row; one without a name is named by its number."""
        names = {row: self._one(f"node.{row}.name") or f"({int(row) + 1})" for row in self._rows}
        for row in self._rows:
            to = tuple(names[other] for other in self._behind[row])
            emits = tuple(each for each in self.given.get(f"node.{row}.emits", ()) if each)
            yield NodeSpec(names[row], self._one(f"node.{row}.service"), to, emits)

    def problems(self, found: Sequence[LineProblem]) -> dict[str, list[str]]:
        """Sort the problems of the text by the field that each is about; the empty name has the others."""
        lines = self._lines()
        sorted_: dict[str, list[str]] = {}
        for problem in found:
            place, prefix, sentence = *lines.get(problem.line, ("", "")), self._without_place(problem.sentence)
            missing = sentence.removesuffix(" is missing")
            if not place and missing != sentence:
                place = prefix + missing
            sorted_.setdefault(place, []).append(sentence)
        return sorted_

    def with_row(self) -> "Draft":
        """Add an empty row."""
        number = max((int(row) for row in self._rows), default=-1) + 1
        return Draft(self.section, self.stored, {**self.given, ROWS: [*self._rows, str(number)]})

    def without_row(self, number: str) -> "Draft":
        """Take a row away."""
        return Draft(self.section, self.stored, {**self.given, ROWS: [row for row in self._rows if row != number]})

    @cached_property
    def _rows(self) -> list[str]:
        return [row for row in dict.fromkeys(self.given.get(ROWS, ())) if _ROW.fullmatch(row)]

    @cached_property
    def _behind(self) -> Mapping[str, Sequence[str]]:
        """The rows behind each row: of a hundred that all lead to each other each is asked ten thousand times."""
        behind: dict[str, list[str]] = {row: [] for row in self._rows}
        for row in self._rows:
            for each in self._before(row):
                behind[each].append(row)
        return behind

    def _before(self, row: str) -> list[str]:
        given = dict.fromkeys(self.given.get(f"node.{row}.{BEFORE}", ()))
        known = set(self._rows) - {row}
        return [each for each in given if each in known]

    def _one(self, name: str) -> str:
        return next(iter(self.given.get(name, ())), "")

    def _field(self, name: str, key: str, about: TableKey, in_use: BusSpec) -> FormField:
        values = [value for value in self.given.get(name, ()) if value]
        known = about.choices if about.refers_to is None else sorted(in_use.section(about.refers_to))
        choices = [*known, *(value for value in values if value not in known)] if known or about.refers_to else []
        return FormField(name, key, about, values, choices)

    def _tables(self) -> Iterator[tuple[str, dict[str, object], str]]:
        """Iterate over the tables with their names in the file, and what their fields begin with in the form."""
        values = dict(self._values("", SECTIONS[self.section]))
        if self.stored and self.name != self.stored:
            values["renamed_from"] = self.stored
        yield self.section, values, ""
        names = {row: self._one(f"node.{row}.name") for row in self._rows}
        for row in self._rows:
            behind = sorted(names[other] for other in self._behind[row] if names[other])
            to = {"to": behind} if behind else {}
            yield f"{self.section}.node", {**dict(self._values(f"node.{row}.", NODE)), **to}, f"node.{row}."

    def _values(self, prefix: str, fields: Mapping[str, TableKey]) -> Iterator[tuple[str, object]]:
        for key, about in fields.items():
            texts = [text for text in self.given.get(prefix + key, ()) if text]
            if key in FORMER or about.shape is FieldShape.TABLES or (prefix and key == "to"):
                continue
            if about.shape is FieldShape.NAMES and (texts or about.refers_to is not None):
                yield key, texts
            elif about.shape is FieldShape.LINES and (lines := _lines_of(texts)):
                yield key, lines
            elif about.shape is FieldShape.SWITCH and (texts or about.default):
                yield key, texts == ["true"]
            elif about.shape is FieldShape.NUMBER and texts:
                yield key, _number(texts[0].strip())
            elif about.shape is FieldShape.TABLE and texts:
                yield key, _table(texts[0])
            elif about.shape in (FieldShape.TEXT, FieldShape.CHOICE) and texts:
                yield key, texts[0]

    def _lines(self) -> dict[int, tuple[str, str]]:
        """Find the field of each line of the text, and what fields of its table begin with."""
        lines: dict[int, tuple[str, str]] = {}
        line = 1
        for _, values, prefix in self._tables():
            lines[line] = ("", prefix)
            for offset, key in enumerate(values, 1):
                field = self.name_key if key in FORMER else prefix + (BEFORE if key == "to" else key)
                lines[line + offset] = (field, prefix)
            line += len(values) + 2
        return lines

    def _without_place(self, sentence: str) -> str:
        """Take away the names before a sentence: the form shows where it belongs."""
        entry = f'{self.section} "{self.name}"'
        nodes = [f'{entry}, node "{self._one(f"node.{row}.name")}"' for row in self._rows]
        place = next((each for each in [entry, *nodes] if sentence.startswith(f"{each}: ")), None)
        return sentence if place is None else sentence[len(place) + 2 :]


def _texts(value: object) -> list[str]:
    if isinstance(value, list):
        return [str(each) for each in value]
    if isinstance(value, dict):
        return [json.dumps(value, ensure_ascii=False)]
    return [("true" if value else "") if isinstance(value, bool) else str(value)]


def _switched_on(section: Section) -> dict[str, list[str]]:
    return {key: ["true"] for key, about in SECTIONS[section].items() if about.default is True}


def _lines_of(texts: Sequence[str]) -> list[str]:
    return [line.strip() for text in texts for line in text.splitlines() if line.strip()]


def _table(text: str) -> object:
    """Read a table that was written as JSON; what is none is left to the rules of the bus file."""
    try:
        return parse_json(text)
    except ValueError:
        return text


def _number(text: str) -> object:
    if not _NUMBER.fullmatch(text):
        return text
    return float(text) if "." in text else int(text)
