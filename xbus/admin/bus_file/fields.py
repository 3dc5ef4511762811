"""The tables and keys that a bus file may hold, and the values of these: which are right, and how each is read."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any, TypeAlias

from xbus.broker.journal.configuration import MOST_ITEMS, MOST_MILLISECONDS, Section, entries
from xbus.broker.journal.configuration.names import LONGEST_NAME, is_name, is_path
from xbus.broker.journal.writes import LIMIT_NAMES
from xbus.clock import LONGEST_SPAN
from xbus.rpc.curve import KEY_LENGTH, is_public_key
from xbus.slots import Missed

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


Check: TypeAlias = Callable[[Any], bool]
"""Says whether a value of the file is right."""


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
        is_written: whether a file that we write has it; None for: if it is required, or differs from the default.
    """

    is_right: Check
    wish: str
    default: Any = None
    required: bool = False
    read: Callable[[Any], Any] = lambda value: value
    write: Callable[[Any], Any] = lambda value: value
    shape: FieldShape = FieldShape.TEXT
    means: str = ""
    choices: Sequence[str] = ()
    refers_to: Section | None = None
    is_written: bool | None = None


_number = partial(TableKey, shape=FieldShape.NUMBER)
_lines = partial(TableKey, shape=FieldShape.LINES)

Fields: TypeAlias = Mapping[str, TableKey]
"""The keys of a table by name; the first one is its name."""


def _list_of(is_right: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(is_right, value))


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


def _whole(most: int, least: int = 1) -> Check:
    return lambda value: type(value) is int and least <= value <= most


_is_count = _whole(MOST)


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
NAMES = TableKey(
    _list_of(is_name),
    'a list of names, such as ["store", "delays"]',
    default=frozenset(),
    read=frozenset,
    write=sorted,
    shape=FieldShape.NAMES,
)
START = _number(
    lambda value: _read_start(value) is not None,
    '"head", "oldest", a position from 1 on, or a moment with its time zone, such as "2026-11-01T00:00:00Z"',
    read=_read_start,
    means="Where a new consumer role begins.",
    is_written=False,
)
COUNT = _number(_is_count, f"a whole number from 1 to {MOST}")
SECONDS = _number(lambda value: is_number(value, YEAR), f"a number of seconds from 0 to {YEAR}, which is a year")
MINUTES = _number(
    lambda value: value == "never" or is_number(value, YEAR // 60),
    f'a number of minutes from 0 to {YEAR // 60}, which is a year, or "never"',
    read=lambda value: math.inf if value == "never" else float(value),
    write=lambda value: "never" if value == math.inf else value,
)
SPAN = TableKey(
    is_span,
    'a number of seconds, minutes, hours, days or weeks such as "30m", "12h", "90d" or "4w", at most 100 years',
    read=_read_span,
    write=_write_span,
)
LAG = _number(
    lambda value: _is_count(value) or is_span(value),
    f"a number of envelopes from 1 to {MOST}, or {SPAN.wish}",
    read=lambda value: value if isinstance(value, int) else timedelta(seconds=_read_span(value)),
    write=lambda lag: lag if isinstance(lag, int) else _write_span(lag.total_seconds()),
    means="The most envelopes that it may lack, or the age of the oldest of them, such as 2h.",
)
SWITCH = TableKey(lambda value: isinstance(value, bool), "true or false", default=False, shape=FieldShape.SWITCH)
TEXT = TableKey(
    lambda value: isinstance(value, str) and len(value) <= MOST_LETTERS and "\0" not in value,
    f"a text of at most {MOST_LETTERS:,} letters",
    default="",
)

OF_SERVICE = replace(NAME, shape=FieldShape.CHOICE, refers_to=Section.SERVICE)


NODE: Fields = {
    "name": NAME,
    "service": replace(OF_SERVICE, required=False, default=""),
    "to": replace(NAMES, default=(), read=lambda to: tuple(sorted(to)), write=list),
    "emits": TableKey(
        lambda value: is_name(value) or NAMES.is_right(value),
        "the name of an event type, or a list of such names",
        default=(),
        read=lambda value: (value,) if isinstance(value, str) else tuple(sorted(set(value))),
        write=lambda emits: emits[0] if len(emits) == 1 else emits,
        shape=FieldShape.NAMES,
        means="The event types as which the bus emits what comes to the node.",
        refers_to=Section.EVENT_TYPE,
    ),
}

RETRY: Fields = {
    "attempts": replace(COUNT, means="How often an envelope, or a batch, is tried before it is parked."),
    "first_delay": replace(SECONDS, means="Seconds before the second attempt; doubled each time."),
    "longest_delay": replace(SECONDS, means="The most seconds between attempts."),
    "jitter": _number(
        lambda value: is_number(value, 1), "a number from 0 to 1", means="The part by which a delay varies at random."
    ),
}

INSTANCES: Fields = {
    "instances": _number(
        _whole(MOST_INSTANCES),
        f"a whole number from 1 to {MOST_INSTANCES:,}",
        default=1,
        means="So many programs may serve it side by side.",
    ),
    "standby": replace(SWITCH, means="Further programs wait until one of those is lost."),
}

KEYS: Fields = {
    "keys": _lines(
        _list_of(is_public_key),
        f"a list of public keys, each of {KEY_LENGTH} characters; xbus keys show prints one",
        default=(),
        read=lambda keys: tuple(sorted(set(keys))),
        means="Public keys for encrypted connections, one a line.",
    )
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

_READER = entries.ReaderSpec("", frozenset())

READING: Fields = {
    "ranges": replace(
        INSTANCES["instances"], default=_READER.ranges, means="With how many ranges it begins; its programs share them."
    ),
    "lease": _number(
        lambda value: is_number(value, YEAR) and value >= 1,
        f"a number of seconds from 1 to {YEAR}, which is a year",
        default=_READER.lease,
        read=float,
        means="Seconds after which the ranges of a silent program are given away.",
    ),
    "batch_items": replace(COUNT, default=_READER.batch_items, means="The most items of a batch."),
    "batch_bytes": replace(COUNT, default=_READER.batch_bytes, means="The bytes at which a batch ends."),
    "batch_wait": replace(
        SECONDS, default=_READER.batch_wait, read=float, means="Seconds that a batch waits for more items."
    ),
    "keeps": replace(SWITCH, default=_READER.keeps, means="Retention waits until it has read."),
}

LAGGING: Fields = {
    "max_lag": LAG,
    "when_behind": choice(
        "alarm", "detach", "skip", means="Beyond max_lag: tell people, take it off the bus, or have it do without."
    ),
}

FORMER: Fields = {"renamed_from": replace(NAME, required=False, is_written=False)}

BATCHES: Fields = {
    "batch_items": replace(READING["batch_items"], default=entries.BOT_BATCH_ITEMS),
    "batch_bytes": replace(READING["batch_bytes"], default=entries.BOT_BATCH_BYTES),
    "batch_wait": READING["batch_wait"],
}

RUNS: Fields = {
    "instances": replace(INSTANCES["instances"], means="So many of its runs may be under way at once."),
    "max_seconds": _number(
        lambda value: is_number(value, YEAR) and value > 0,
        f"a number of seconds above 0, up to {YEAR}, which is a year",
        default=entries.BOT_SECONDS,
        means="Seconds after which a run is ended.",
    ),
    "attempts": replace(COUNT, default=entries.BOT_ATTEMPTS, means="How often a run is tried before it has failed."),
    "settings": TableKey(
        lambda value: isinstance(value, dict) and is_plain(value),
        "a table of texts, numbers, booleans, lists and tables",
        default={},
        shape=FieldShape.TABLE,
        means="What each run gets, as JSON.",
    ),
    "description": replace(TEXT, means="What it is for."),
}

SECTIONS: Mapping[Section, Fields] = {
    Section.EVENT_TYPE: {
        "name": NAME,
        "immediate_reply": replace(SWITCH, is_written=True, means="Its emitter waits for what a consumer replies."),
        "node": TableKey(
            _list_of(lambda value: isinstance(value, dict)),
            "a list of tables: write [[event_type.node]]",
            default=[],
            shape=FieldShape.TABLES,
            is_written=False,
        ),
        "bad_items": choice("envelope", "isolate", means="Park the whole envelope, or the refused items alone."),
        "max_isolated": replace(
            COUNT,
            default=entries.MAX_ISOLATED,
            means="The most items of an event that are parked alone; with more, the envelope is.",
        ),
        "secret": _lines(
            _list_of(is_path),
            'a list of paths of keys, such as ["card.number", "iban"]',
            default=(),
            read=lambda paths: tuple(sorted(set(paths))),
            means="Fields of items that are shown only to who asks for secrets, such as card.number.",
        ),
        "keep": replace(
            SPAN,
            is_right=lambda value: value == FOR_EVER or is_span(value),
            wish=f'{SPAN.wish}, or "{FOR_EVER}"',
            means="How long settled events stay, such as 90d, or forever.",
        ),
        "keep_bytes": _number(
            _whole(MOST_POSITIONS), "a whole number of bytes from 1 on", means="Bytes of the newest events that stay."
        ),
        "keep_last_per_key": replace(COUNT, means="How many of the newest events of each partition key stay."),
        "archive_after": replace(SPAN, means="The age at which settled events move into the archive, such as 30d."),
        "compress": choice("none", "zstd", means="How the journal compresses the items."),
        **FORMER,
    },
    Section.SERVICE: {
        "name": NAME,
        "kind": replace(
            choice(
                "worker",
                "consumer",
                "runner",
                "gateway",
                means="Workers answer items; consumers end the line; runners run bots, gateways call subscribers. "
                "For good.",
                required=True,
            ),
            wish='"worker" or "consumer" or "runner" or "gateway"; a reader is a table of its own, [[reader]]',
        ),
        "failures": choice(
            "shared", "own", means="Whether a refusal stops the envelope for all who lack it, or for its own role."
        ),
        **RETRY,
        **FORMER,
    },
    Section.READER: {
        "name": NAME,
        "event_types": replace(NAMES, required=True, refers_to=Section.EVENT_TYPE, means="What it reads."),
        **READING,
        **LAGGING,
        "start": replace(START, means="Where a new reader begins."),
        **FORMER,
    },
    Section.ROLE: {
        "login": NAME,
        "service": OF_SERVICE,
        "ordered": replace(SWITCH, means="One envelope at a time, those of an ordering key in their order."),
        **INSTANCES,
        "absent_minutes": replace(
            MINUTES, means="Minutes of absence, while something waits, before health tells of it."
        ),
        "parked_minutes": replace(MINUTES, means="Minutes for which something is parked before health tells of it."),
        **LAGGING,
        **KEYS,
        "start": START,
        **FORMER,
    },
    Section.EMITTER_PROFILE: {
        "name": NAME,
        "event_types": replace(
            NAMES, refers_to=Section.EVENT_TYPE, is_written=True, means="What its emitters may send."
        ),
        "new_types": TableKey(
            lambda value: is_name(value) and value.endswith("*") and "*" not in value[:-1],
            'the beginning of names and a star, such as "shop_*", or "*" for any name',
            default="",
            means="Event types that its emitters make by sending to them: the beginning of their names, and a star.",
        ),
        "clients": replace(
            NAME,
            required=False,
            shape=FieldShape.CHOICE,
            refers_to=Section.EMITTER_PROFILE,
            means="Its emitters make API tokens, each for an emitter of this profile.",
        ),
        "keep_keys": replace(
            SPAN, means="How long the keys of removed envelopes are kept, such as 365d, else for ever."
        ),
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
    Section.BOT: {
        "name": NAME,
        "call": replace(TEXT, means="module:function that a run calls."),
        "command": _lines(
            _list_of(lambda word: isinstance(word, str) and "\0" not in word),
            'a list of texts, a program and its arguments, such as ["report", "--nightly"]',
            default=(),
            read=tuple,
            means="A program and its arguments, one a line, in the place of call.",
        ),
        "cron": replace(TEXT, means="When it runs: minute, hour, day, month, day of the week, such as 0 3 * * *."),
        "timezone": replace(NAME, required=False, default="UTC", means="The zone of cron, such as Europe/Paris."),
        "missed": replace(
            choice(
                *Missed, means="What becomes of times at which nobody could look: the last is made up for, all, none."
            ),
            default=Missed.ONCE,
            read=Missed,
        ),
        "reads": replace(NAMES, refers_to=Section.EVENT_TYPE, means="What it gets batches of, in the place of cron."),
        **BATCHES,
        "emits": replace(NAMES, refers_to=Section.EVENT_TYPE, means="What its runs may put."),
        "runners": replace(OF_SERVICE, required=False, means="The service whose programs run it."),
        **RUNS,
        **FORMER,
    },
    Section.SUBSCRIPTION: {
        "name": NAME,
        "event_types": replace(NAMES, required=True, refers_to=Section.EVENT_TYPE, means="What it gets."),
        "url": replace(TEXT, required=True, means="The address that is called."),
        "format": choice("json", "cloudevents", "routemaster", means="The format of the bodies of calls."),
        "verify": replace(SWITCH, default=True, means="Check the certificate of the subscriber."),
        "max": replace(
            COUNT, default=entries.SubscriptionSpec.max, means=f"The most items of a batch, up to {MOST_ITEMS:,}."
        ),
        "timeout": _number(
            _whole(MOST_MILLISECONDS, 0),
            f"a whole number of milliseconds from 0 to {MOST_MILLISECONDS}, which is an hour",
            default=entries.SubscriptionSpec.timeout,
            means="Milliseconds that a batch waits for more items.",
        ),
        "ranges": replace(
            INSTANCES["instances"], means="With how many ranges it begins; with one, all comes in the order of the log."
        ),
        "keeps": replace(SWITCH, default=True, means="Retention waits until it has been called."),
        **LAGGING,
        **RETRY,
        # A file without it leaves it as it is.
        "secret": replace(
            TEXT,
            default=None,
            is_written=False,
            means="Signs the calls; nothing shows it, and empty leaves it as it is.",
        ),
        "start": replace(START, means="Where a new subscription begins."),
        **FORMER,
    },
}
