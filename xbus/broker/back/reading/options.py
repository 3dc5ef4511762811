"""The options of ``xbus.read_log``, checked; pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from xbus.broker.journal.log.slices import Place, SliceBounds, Start, parse_start
from xbus.errors import Refused
from xbus.rpc.codec import Value

MOST_WAIT_SECONDS = 30.0
"""Seconds that a call may wait. More would keep calls open to programs that are gone."""

MOST_ITEMS = 1_000_000

DEFAULT_BYTES = 4 * 1024 * 1024

MOST_BYTES = 16 * 1024 * 1024
"""Bytes of an answer, about, so that no reader makes the broker hold more."""

_KNOWN = frozenset({"types", "from", "key", "wait", "max_items", "max_bytes"})


@dataclass(frozen=True, slots=True)
class LogQuestion:
    """A question of a program about the log.

    Args:
        types: the ids of the event types.
        start: where to begin.
        key: a partition key, or the ordering key of events without one; None for all.
        wait: seconds to wait while nothing is there.
        bounds: the most that comes.
    """

    types: frozenset[int]
    start: Start
    key: str | None
    wait: float
    bounds: SliceBounds


def read_question(options: Mapping[str, Value], known_types: Mapping[str, int], own: frozenset[int]) -> LogQuestion:
    """Read the options of a call.

    Args:
        known_types: the ids of all event types, by name.
        own: the ids of those that the caller's reader reads.

    Raises:
        Refused: an option is unknown or has a wrong value (``option_invalid``), a type is unknown (``type_unknown``) or
            not the reader's (``type_not_read``).
        BadPlace: ``from`` is no place and no moment (``place_invalid``, ``moment_invalid``).
    """
    if unknown := options.keys() - _KNOWN:
        raise _invalid(f"there is no option {min(map(str, unknown))!r:.60}", f"know {', '.join(sorted(_KNOWN))}")
    return LogQuestion(
        _types(options.get("types"), known_types, own),
        _start(options.get("from", "head")),
        _key(options.get("key")),
        _number(options, "wait", 0.0, 0.0, MOST_WAIT_SECONDS),
        SliceBounds(
            int(_number(options, "max_items", MOST_ITEMS, 1, MOST_ITEMS)),
            int(_number(options, "max_bytes", DEFAULT_BYTES, 1, MOST_BYTES)),
        ),
    )


def _start(value: Value) -> Start:
    return parse_start(value) if isinstance(value, str) else Place.of(value)


def _types(value: Value, known: Mapping[str, int], own: frozenset[int]) -> frozenset[int]:
    if value is None:
        return own
    names = [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
    if not names or names != value:
        raise _invalid("types is no list of event types", "give a list of names, or leave it out for all")
    return frozenset(_type(name, known, own) for name in names)


def _type(name: str, known: Mapping[str, int], own: frozenset[int]) -> int:
    if name not in known:
        raise Refused(f"there is no event type {name!r:.100}", "see xbus type list", code="type_unknown")
    if known[name] not in own:
        raise Refused(
            f"the reader does not read events of the type {name}",
            "add the type to event_types of the reader in the bus file",
            code="type_not_read",
        )
    return known[name]


def _key(value: Value) -> str | None:
    if value is not None and not isinstance(value, str):
        raise _invalid("key is no text", "give the partition key of the events that you want")
    return value


def _number(options: Mapping[str, Value], name: str, default: float, least: float, most: float) -> float:
    value = options.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise _invalid(f"{name} is {value!r:.60}", f"give a number from {least:g} to {most:g}")
    return value


def _invalid(cause: str, next_step: str) -> Refused:
    return Refused(cause, next_step, code="option_invalid")
