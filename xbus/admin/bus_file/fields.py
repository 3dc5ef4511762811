"""The tables and keys that a bus file may hold."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
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


@dataclass(frozen=True)
class TableKey:
    """A key of a table.

    Args:
        is_right: says whether a value is of the right type.
        read: converts the value for the entry.
        wish: the rest of the sentence "<key> must be ...".
        default: the meaning of an absent key.
        required: whether the key must exist.
    """

    is_right: Callable[[Any], bool]
    wish: str
    default: Any = None
    required: bool = False
    read: Callable[[Any], Any] = lambda value: value


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


NAME = TableKey(is_name, f"a text of 1 to {LONGEST_NAME} printable characters without blanks around it", required=True)
NAMES = TableKey(_is_list_of_names, 'a list of names, such as ["store", "delays"]', default=[])
KIND = TableKey(lambda value: value in ("worker", "consumer"), '"worker" or "consumer"', required=True)
FAILURES = TableKey(lambda value: value in ("shared", "own"), '"shared" or "own"', default="shared")
BAD_ITEMS = TableKey(lambda value: value in ("envelope", "isolate"), '"envelope" or "isolate"', default="envelope")
START = TableKey(
    lambda value: _read_start(value) is not None,
    '"head", "oldest", a position from 1 on, or a moment with its time zone, such as "2026-11-01T00:00:00Z"',
    read=_read_start,
)
COUNT = TableKey(_is_count, f"a whole number from 1 to {MOST}")
SECONDS = TableKey(lambda value: _is_number(value, YEAR), f"a number of seconds from 0 to {YEAR}, which is a year")
MINUTES = TableKey(
    _is_minutes,
    f'a number of minutes from 0 to {YEAR // 60}, which is a year, or "never"',
    read=_read_minutes,
)
PART = TableKey(lambda value: _is_number(value, 1), "a number from 0 to 1")
SWITCH = TableKey(lambda value: isinstance(value, bool), "true or false", default=False)
TABLES = TableKey(_is_list_of_tables, "a list of tables: write [[event_type.node]]", default=[])

NODE: Fields = {"name": NAME, "service": NAME, "to": NAMES}

SECRET: Fields = {
    "secret": TableKey(
        _is_list_of_paths,
        'a list of paths of keys, such as ["card.number", "iban"]',
        default=(),
        read=lambda paths: tuple(sorted(set(paths))),
    )
}

ISOLATION: Fields = {"bad_items": BAD_ITEMS, "max_isolated": replace(COUNT, default=MAX_ISOLATED)}

FAILING: Fields = {
    "failures": FAILURES,
    "attempts": COUNT,
    "first_delay": SECONDS,
    "longest_delay": SECONDS,
    "jitter": PART,
}

ORDER: Fields = {"ordered": SWITCH}

INSTANCES: Fields = {
    "instances": TableKey(_is_instances, f"a whole number from 1 to {MOST_INSTANCES:,}", default=1),
    "standby": SWITCH,
}

KEYS: Fields = {
    "keys": TableKey(
        _is_list_of_keys,
        f"a list of public keys, each of {KEY_LENGTH} characters; xbus keys show prints one",
        default=(),
        read=lambda keys: tuple(sorted(set(keys))),
    )
}

WATCH: Fields = {"absent_minutes": MINUTES, "parked_minutes": MINUTES}

LIMITS: Fields = dict.fromkeys(LIMIT_NAMES, COUNT)

FORMER: Fields = {"renamed_from": replace(NAME, required=False)}

SECTIONS: Mapping[Section, Fields] = {
    Section.EVENT_TYPE: {"name": NAME, "immediate_reply": SWITCH, "node": TABLES, **ISOLATION, **SECRET, **FORMER},
    Section.SERVICE: {"name": NAME, "kind": KIND, **FAILING, **FORMER},
    Section.ROLE: {"login": NAME, "service": NAME, **ORDER, **INSTANCES, **WATCH, **KEYS, "start": START, **FORMER},
    Section.EMITTER_PROFILE: {"name": NAME, "event_types": NAMES, **LIMITS, **FORMER},
    Section.EMITTER: {"login": NAME, "profile": NAME, **KEYS, **LIMITS, **FORMER},
}
