"""The kinds of values that keys of a bus file may have: which are right, and how each is read and asked for."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeAlias

from xbus.broker.journal.configuration import Section
from xbus.broker.journal.configuration.names import LONGEST_NAME, is_name, is_path
from xbus.clock import LONGEST_SPAN
from xbus.rpc.curve import is_public_key

MOST = 1_000_000_000
"""The largest count: the database's columns take it, and it is more than anybody means."""

MOST_POSITIONS = 2**63 - 1

MOST_LETTERS = 10_000
"""The most letters of a text that people write for people, or of one that names something outside the bus."""

MOST_INSTANCES = 1_000
"""The most programs of one role: each has a connection, and is called by itself."""

YEAR = 366 * 24 * 3600

FOR_EVER = "forever"

_SPAN_SECONDS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
"""The units of a span, the longest first."""

_SPAN = re.compile(r"[1-9][0-9]{0,9}[smhdw]", re.ASCII)


class FieldShape(StrEnum):
    """The shape of a value, as a form asks for it."""

    TEXT = "text"
    NUMBER = "number"
    """A number; some keys take a word or a moment in its place."""
    SWITCH = "switch"
    CHOICE = "choice"
    NAMES = "names"
    LINES = "lines"
    """A list of texts, none of which is a name of the bus."""
    TABLES = "tables"
    TABLE = "table"
    """A table of keys and values that are the author's own."""


@dataclass(frozen=True)
class TableKey:
    """A key of a table.

    Args:
        is_right: says whether a value is of the right type.
        read: converts the value for the entry.
        write: converts it back for the file.
        wish: the rest of the sentence "<key> must be ...".
        default: the meaning of an absent key.
        required: whether the key must exist.
        shape: how a form asks for it.
        means: its meaning, a sentence for forms.
        choices: all of its values, for ``FieldShape.CHOICE``.
        refers_to: the section whose entries it names.
    """

    is_right: Callable[[Any], bool]
    wish: str
    default: Any = None
    required: bool = False
    read: Callable[[Any], Any] = lambda value: value
    write: Callable[[Any], Any] = lambda value: value
    shape: FieldShape = FieldShape.TEXT
    means: str = ""
    choices: Sequence[str] = ()
    refers_to: Section | None = None


Fields: TypeAlias = Mapping[str, TableKey]
"""The keys of a table by name; the first one is its name."""


def is_list_of_names(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_name, value))


def is_list_of_paths(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_path, value))


def is_list_of_keys(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_public_key, value))


def _is_list_of_tables(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, dict) for entry in value)


def is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) and "\0" not in word for word in value)


def is_new_types(value: Any) -> bool:
    return is_name(value) and value.endswith("*") and "*" not in value[:-1]


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MOST_LETTERS and "\0" not in value


def is_plain(value: Any) -> bool:
    """Check whether JSON has this value, too: TOML's moments and infinite numbers it has not."""
    match value:
        case dict():
            return all(is_plain(each) for each in value.values())
        case list():
            return all(map(is_plain, value))
        case float():
            return math.isfinite(value)
    return isinstance(value, (str, int, bool))


def _is_count(value: Any) -> bool:
    return type(value) is int and 1 <= value <= MOST


def is_instances(value: Any) -> bool:
    return type(value) is int and 1 <= value <= MOST_INSTANCES


def is_number(value: Any, most: float) -> bool:
    return type(value) in (int, float) and 0 <= value <= most


def _read_start(value: object) -> str | int | datetime | None:
    """Read a position, a word, or a moment; None for anything else."""
    if isinstance(value, str) and value in ("head", "oldest"):
        return value
    if type(value) is int and 1 <= value <= MOST_POSITIONS:
        return value
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        return None
    return moment if isinstance(moment, datetime) and moment.tzinfo is not None else None


def _is_minutes(value: Any) -> bool:
    return value == "never" or is_number(value, YEAR // 60)


def _read_minutes(value: Any) -> float:
    return math.inf if value == "never" else float(value)


def _write_minutes(value: float) -> float | str:
    return "never" if value == math.inf else value


def is_span(value: Any) -> bool:
    is_span = isinstance(value, str) and _SPAN.fullmatch(value) is not None
    return is_span and _read_span(value) <= LONGEST_SPAN.total_seconds()


def _read_span(value: str) -> float:
    return math.inf if value == FOR_EVER else int(value[:-1]) * _SPAN_SECONDS[value[-1]]


def _write_span(seconds: float) -> str:
    """Write a span in the largest unit in which it is a whole number."""
    if seconds == math.inf:
        return FOR_EVER
    whole = max(1, round(seconds))
    unit = next(unit for unit in _SPAN_SECONDS if whole % _SPAN_SECONDS[unit] == 0)
    return f"{whole // _SPAN_SECONDS[unit]}{unit}"


def choice(*values: str, means: str, required: bool = False) -> TableKey:
    """Make a key that takes one of some words. A key that may be absent has the first word as its default."""
    return TableKey(
        lambda value: value in values,
        " or ".join(f'"{value}"' for value in values),
        default=None if required else values[0],
        required=required,
        shape=FieldShape.CHOICE,
        means=means,
        choices=values,
    )


NAME = TableKey(is_name, f"a text of 1 to {LONGEST_NAME} printable characters without blanks around it", required=True)
NAMES = TableKey(is_list_of_names, 'a list of names, such as ["store", "delays"]', default=[], shape=FieldShape.NAMES)
KIND = replace(
    choice(
        "worker",
        "consumer",
        "runner",
        "gateway",
        means="Workers answer items; consumers end the line; runners run bots, gateways call subscribers. For good.",
        required=True,
    ),
    wish='"worker" or "consumer" or "runner" or "gateway"; a reader is a table of its own, [[reader]]',
)
FAILURES = choice(
    "shared", "own", means="Whether a refusal stops the envelope for all who lack it, or for its own role."
)
BAD_ITEMS = choice("envelope", "isolate", means="Park the whole envelope, or the refused items alone.")
COMPRESS = choice("none", "zstd", means="How the journal compresses the items.")
START = TableKey(
    lambda value: _read_start(value) is not None,
    '"head", "oldest", a position from 1 on, or a moment with its time zone, such as "2026-11-01T00:00:00Z"',
    read=_read_start,
    shape=FieldShape.NUMBER,
    means="Where a new consumer role begins.",
)
COUNT = TableKey(_is_count, f"a whole number from 1 to {MOST}", shape=FieldShape.NUMBER)
SECONDS = TableKey(
    lambda value: is_number(value, YEAR),
    f"a number of seconds from 0 to {YEAR}, which is a year",
    shape=FieldShape.NUMBER,
)
MINUTES = TableKey(
    _is_minutes,
    f'a number of minutes from 0 to {YEAR // 60}, which is a year, or "never"',
    read=_read_minutes,
    write=_write_minutes,
    shape=FieldShape.NUMBER,
)
SPAN = TableKey(
    is_span,
    'a number of seconds, minutes, hours, days or weeks such as "30m", "12h", "90d" or "4w", at most 100 years',
    read=_read_span,
    write=_write_span,
)
LAG = TableKey(
    lambda value: _is_count(value) or is_span(value),
    f"a number of envelopes from 1 to {MOST}, or {SPAN.wish}",
    read=lambda value: value if isinstance(value, int) else timedelta(seconds=_read_span(value)),
    write=lambda lag: lag if isinstance(lag, int) else _write_span(lag.total_seconds()),
    shape=FieldShape.NUMBER,
    means="The most envelopes that it may lack, or the age of the oldest of them, such as 2h.",
)
PART = TableKey(lambda value: is_number(value, 1), "a number from 0 to 1", shape=FieldShape.NUMBER)
SWITCH = TableKey(lambda value: isinstance(value, bool), "true or false", default=False, shape=FieldShape.SWITCH)
TABLES = TableKey(
    _is_list_of_tables, "a list of tables: write [[event_type.node]]", default=[], shape=FieldShape.TABLES
)

TEXT = TableKey(_is_text, f"a text of at most {MOST_LETTERS:,} letters", default="")

OF_SERVICE = replace(NAME, shape=FieldShape.CHOICE, refers_to=Section.SERVICE)
