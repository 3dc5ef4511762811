"""What the tables of a bus file may hold."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from xbus.broker.journal.configuration import Section
from xbus.broker.journal.configuration.names import LONGEST_NAME, is_name


@dataclass(frozen=True)
class Field:
    """A key of a table.

    Args:
        is_right: whether a value is of the right type.
        wish: the rest of the sentence "<key> must be ...".
        default: what an absent key means; None where it must be there.
    """

    is_right: Callable[[Any], bool]
    wish: str
    default: Any = None


Fields: TypeAlias = Mapping[str, Field]
"""The keys of a table by name; the first one is its name."""


def _is_list_of_names(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_name, value))


def _is_list_of_tables(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, dict) for entry in value)


NAME = Field(is_name, f"a text of 1 to {LONGEST_NAME} printable characters without blanks around it")
NAMES = Field(_is_list_of_names, 'a list of names, such as ["store", "delays"]', default=[])
KIND = Field(lambda value: value in ("worker", "consumer"), '"worker" or "consumer"')
SWITCH = Field(lambda value: isinstance(value, bool), "true or false", default=False)
TABLES = Field(_is_list_of_tables, "a list of tables: write [[event_type.node]]", default=[])

NODE: Fields = {"name": NAME, "service": NAME, "to": NAMES}

SECTIONS: Mapping[Section, Fields] = {
    Section.EVENT_TYPE: {"name": NAME, "immediate_reply": SWITCH, "node": TABLES},
    Section.SERVICE: {"name": NAME, "kind": KIND},
    Section.ROLE: {"login": NAME, "service": NAME},
    Section.EMITTER_PROFILE: {"name": NAME, "event_types": NAMES},
    Section.EMITTER: {"login": NAME, "profile": NAME},
}
