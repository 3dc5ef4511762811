"""The tables and keys that a bus file may hold."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias

from xbus.broker.journal.configuration import Section
from xbus.broker.journal.configuration.entries import MAX_ISOLATED
from xbus.broker.journal.configuration.names import LONGEST_NAME, is_name, is_path
from xbus.broker.journal.writes import LIMIT_NAMES
from xbus.rpc.curve import KEY_LENGTH, is_public_key

MOST = 1_000_000_000
"""The largest count: the database's columns take it, and it is more than anybody means."""

MOST_POSITIONS = 2**63 - 1

MOST_INSTANCES = 1_000
"""The most programs of one role: each has a connection, and is called by itself."""

YEAR = 366 * 24 * 3600


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


@dataclass(frozen=True)
class TableKey:
    """A key of a table.

    Args:
        is_right: says whether a value is of the right type.
        read: converts the value for the entry.
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
    shape: FieldShape = FieldShape.TEXT
    means: str = ""
    choices: Sequence[str] = ()
    refers_to: Section | None = None


Fields: TypeAlias = Mapping[str, TableKey]
"""The keys of a table by name; the first one is its name."""


def _is_list_of_names(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_name, value))


def _is_list_of_paths(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_path, value))


def _is_list_of_keys(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_public_key, value))


def _is_list_of_tables(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, dict) for entry in value)


def _is_count(value: Any) -> bool:
    return type(value) is int and 1 <= value <= MOST


def _is_instances(value: Any) -> bool:
    return type(value) is int and 1 <= value <= MOST_INSTANCES


def _is_number(value: Any, most: float) -> bool:
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
    return value == "never" or _is_number(value, YEAR // 60)


def _read_minutes(value: Any) -> float:
    return math.inf if value == "never" else float(value)


def _choice(*values: str, means: str, required: bool = False) -> TableKey:
    """Make a key that takes one of some words; the first one is the default of a key that may be absent."""
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
NAMES = TableKey(_is_list_of_names, 'a list of names, such as ["store", "delays"]', default=[], shape=FieldShape.NAMES)
KIND = _choice("worker", "consumer", means="A worker answers items; a consumer ends the line. For good.", required=True)
FAILURES = _choice(
    "shared", "own", means="Whether a refusal stops the envelope for all who lack it, or for its own role."
)
BAD_ITEMS = _choice("envelope", "isolate", means="Park the whole envelope, or the refused items alone.")
START = TableKey(
    lambda value: _read_start(value) is not None,
    '"head", "oldest", a position from 1 on, or a moment with its time zone, such as "2026-11-01T00:00:00Z"',
    read=_read_start,
    shape=FieldShape.NUMBER,
    means="Where a new consumer role begins.",
)
COUNT = TableKey(_is_count, f"a whole number from 1 to {MOST}", shape=FieldShape.NUMBER)
SECONDS = TableKey(
    lambda value: _is_number(value, YEAR),
    f"a number of seconds from 0 to {YEAR}, which is a year",
    shape=FieldShape.NUMBER,
)
MINUTES = TableKey(
    _is_minutes,
    f'a number of minutes from 0 to {YEAR // 60}, which is a year, or "never"',
    read=_read_minutes,
    shape=FieldShape.NUMBER,
)
PART = TableKey(lambda value: _is_number(value, 1), "a number from 0 to 1", shape=FieldShape.NUMBER)
SWITCH = TableKey(lambda value: isinstance(value, bool), "true or false", default=False, shape=FieldShape.SWITCH)
TABLES = TableKey(
    _is_list_of_tables, "a list of tables: write [[event_type.node]]", default=[], shape=FieldShape.TABLES
)

OF_SERVICE = replace(NAME, shape=FieldShape.CHOICE, refers_to=Section.SERVICE)

SECRET: Fields = {
    "secret": TableKey(
        _is_list_of_paths,
        'a list of paths of keys, such as ["card.number", "iban"]',
        default=(),
        read=lambda paths: tuple(sorted(set(paths))),
        shape=FieldShape.LINES,
        means="Fields of items that are shown only to who asks for secrets, such as card.number.",
    )
}

NODE: Fields = {"name": NAME, "service": OF_SERVICE, "to": NAMES}

ISOLATION: Fields = {
    "bad_items": BAD_ITEMS,
    "max_isolated": replace(
        COUNT,
        default=MAX_ISOLATED,
        means="The most items of an event that are parked alone; with more, the envelope is.",
    ),
}

FAILING: Fields = {
    "failures": FAILURES,
    "attempts": replace(COUNT, means="How often an envelope is tried before it is parked."),
    "first_delay": replace(SECONDS, means="Seconds before the second attempt; doubled each time."),
    "longest_delay": replace(SECONDS, means="The most seconds between attempts."),
    "jitter": replace(PART, means="The part by which a delay varies at random."),
}

ORDER: Fields = {"ordered": replace(SWITCH, means="One envelope at a time, those of an ordering key in their order.")}

INSTANCES: Fields = {
    "instances": TableKey(
        _is_instances,
        f"a whole number from 1 to {MOST_INSTANCES:,}",
        default=1,
        shape=FieldShape.NUMBER,
        means="So many programs may serve it side by side.",
    ),
    "standby": replace(SWITCH, means="Further programs wait until one of those is lost."),
}

KEYS: Fields = {
    "keys": TableKey(
        _is_list_of_keys,
        f"a list of public keys, each of {KEY_LENGTH} characters; xbus keys show prints one",
        default=(),
        read=lambda keys: tuple(sorted(set(keys))),
        shape=FieldShape.LINES,
        means="Public keys for encrypted connections, one a line.",
    )
}

WATCH: Fields = {
    "absent_minutes": replace(MINUTES, means="Minutes of absence, while something waits, before health tells of it."),
    "parked_minutes": replace(MINUTES, means="Minutes for which something is parked before health tells of it."),
}

LIMIT_MEANS: Mapping[str, str] = {
    "items_per_second": "Items that the front takes in a second.",
    "bytes_per_second": "Bytes of items that the front takes in a second.",
    "open_envelopes": "Envelopes that are open at once.",
    "envelope_events": "Events of one envelope.",
    "calls_in_flight": "Calls that wait for their answers.",
    "bytes_in_flight": "Bytes of the calls that wait for their answers.",
}

LIMITS: Fields = {name: replace(COUNT, means=LIMIT_MEANS.get(name, "")) for name in LIMIT_NAMES}

FORMER: Fields = {"renamed_from": replace(NAME, required=False)}

IMMEDIATE: Fields = {"immediate_reply": replace(SWITCH, means="Its emitter waits for what a consumer replies.")}

SECTIONS: Mapping[Section, Fields] = {
    Section.EVENT_TYPE: {"name": NAME, **IMMEDIATE, "node": TABLES, **ISOLATION, **SECRET, **FORMER},
    Section.SERVICE: {"name": NAME, "kind": KIND, **FAILING, **FORMER},
    Section.ROLE: {
        "login": NAME,
        "service": OF_SERVICE,
        **ORDER,
        **INSTANCES,
        **WATCH,
        **KEYS,
        "start": START,
        **FORMER,
    },
    Section.EMITTER_PROFILE: {
        "name": NAME,
        "event_types": replace(NAMES, refers_to=Section.EVENT_TYPE, means="What its emitters may send."),
        **LIMITS,
        **FORMER,
    },
    Section.EMITTER: {
        "login": NAME,
        "profile": replace(NAME, shape=FieldShape.CHOICE, refers_to=Section.EMITTER_PROFILE),
        **KEYS,
        **LIMITS,
        **FORMER,
    },
}
