"""The configuration file: every option, its default, its unit, and the checks of its value.

The file is in the format of :mod:`configparser`, without interpolation: a percent sign is a percent sign. Each section
is a frozen dataclass below, each option one of its fields, so that ``config.ini.sample`` can be checked against them.
"""

import configparser
import logging
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from xbus.errors import ConfigurationError

T = TypeVar("T")

LARGEST_NUMBER = 2**53
"""No option needs more, and up to here a float keeps whole numbers exact."""

LARGEST_DAYS = 36_500
"""A hundred years."""

LARGEST_MINUTES = LARGEST_DAYS * 24 * 60


def _switch(value: str) -> bool:
    try:
        return configparser.ConfigParser.BOOLEAN_STATES[value.lower()]
    except KeyError:
        raise ValueError("is neither true nor false") from None


def _count(value: str) -> int:
    """Read a whole number of at least 1; ``1_000_000`` may be written for readability."""
    try:
        number = int(value)
    except ValueError:
        raise ValueError("is not a whole number") from None
    if not 1 <= number <= LARGEST_NUMBER:
        raise ValueError(f"is not between 1 and {LARGEST_NUMBER}")
    return number


def _limit(value: str) -> int:
    """Read a number as :func:`_count` does, or 0 for no limit."""
    return 0 if value == "0" else _count(value)


def _days(value: str) -> float:
    """Read a number of days, or 0 for ever."""
    try:
        number = float(value)
    except ValueError:
        raise ValueError("is not a number of days") from None
    if not 0 <= number <= LARGEST_DAYS:  # false for "nan" as well
        raise ValueError(f"is not a number of days between 0 and {LARGEST_DAYS}")
    return number


def _seconds(value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        raise ValueError("is not a number of seconds") from None
    if not 0 < number <= LARGEST_NUMBER:  # false for "nan" as well
        raise ValueError("is not a number of seconds above 0")
    return number


def _part(value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        raise ValueError("is not a number from 0 to 1") from None
    if not 0 <= number <= 1:
        raise ValueError("is not a number from 0 to 1")
    return number


def _seconds_or_never(value: str) -> float:
    """Read a number of seconds; 0 for never."""
    return 0.0 if re.fullmatch(r"0+\.?0*|\.0+", value) else _seconds(value)


def _minutes(value: str) -> float:
    """Read a number of minutes, or ``never``, which is infinite."""
    if value == "never":
        return math.inf
    try:
        number = float(value)
    except ValueError:
        raise ValueError("is neither a number of minutes nor the word never") from None
    if not 0 <= number <= LARGEST_MINUTES:  # false for "nan" as well
        raise ValueError(f"is neither a number of minutes between 0 and {LARGEST_MINUTES} nor the word never")
    return number


def _file(value: str) -> Path | None:
    return Path(value) if value else None


def _level(value: str) -> str:
    if value.upper() not in logging.getLevelNamesMapping():
        raise ValueError("is not one of DEBUG, INFO, WARNING, ERROR, CRITICAL")
    return value.upper()


def _socket(value: str) -> str:
    transport, separator, place = value.partition("://")
    if transport not in ("tcp", "ipc", "inproc") or not separator or not place:
        raise ValueError("is not an address such as tcp://127.0.0.1:1984, ipc:///run/xbus.socket or inproc://#name")
    if transport == "tcp" and not _is_port(place.rpartition(":")[2]):
        raise ValueError("has no port between 0 and 65535 at its end")
    return value


def _is_port(text: str) -> bool:
    return text == "*" or (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65535)


def _served_socket(value: str) -> str:
    if value.startswith("inproc://"):
        raise ValueError("is an address inside the broker, where nobody else can call")
    return _socket(value)


def _database(value: str) -> str:
    """Read an SQLAlchemy URL; the short names of PostgreSQL mean the driver that the bus brings along."""
    scheme, separator, rest = value.partition("://")
    if not separator or not scheme:
        raise ValueError("is not a database address such as sqlite:///xbus.db or postgresql://user:password@host/name")
    if scheme in ("postgres", "postgresql"):
        scheme = "postgresql+psycopg2"
    if scheme.partition("+")[0] not in ("postgresql", "sqlite"):
        raise ValueError("is neither an sqlite nor a postgresql address")
    if scheme.startswith("sqlite") and rest.partition("?")[0] in ("", "/", "/:memory:"):
        raise ValueError("is a database in memory, which would be gone with the program")
    # Written for a reader with interpolation, a percent sign is doubled; in a URL two in a row mean nothing.
    return f"{scheme}://{rest.replace('%%', '%')}"


def option(default: T, check: Callable[[str], T], name: str = "", *, secret: bool = False) -> T:
    """Declare a field that the configuration file may set.

    Args:
        default: its value where the file is silent.
        check: makes the value from the file's text; raises ValueError with the rest of the sentence "<value> ...".
        name: its name in the file; by default that of the field.
        secret: whether the value may hold a password, and so is never shown.
    """
    return field(default=default, repr=not secret, metadata={"check": check, "name": name})


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    """The database of the journal."""

    url: str = option("sqlite:///xbus.db", _database, name="sqlalchemy.dburi", secret=True)


@dataclass(frozen=True, slots=True)
class ZmqSettings:
    """The addresses of the broker."""

    frontsocket: str = option("tcp://127.0.0.1:1984", _served_socket)
    backsocket: str = option("tcp://127.0.0.1:4891", _served_socket)
    b2fsocket: str = option("inproc://#f2b", _socket)


@dataclass(frozen=True, slots=True)
class LoggingSettings:
    """The level and the destination of the log."""

    configfile: Path | None = option(None, _file)
    level: str = option("INFO", _level)


@dataclass(frozen=True, slots=True)
class SupervisionSettings:
    """Watching the recipients; ``interval``, ``timeout`` and ``heartbeat`` in seconds."""

    enabled: bool = option(False, _switch)
    interval: float = option(5.0, _seconds, name="node.polling.interval")
    timeout: float = option(1.0, _seconds, name="node.polling.timeout")
    misses: int = option(2, _count, name="node.misses.threshold")
    heartbeat: float = option(2.0, _seconds_or_never)


@dataclass(frozen=True, slots=True)
class FrontSettings:
    """The limits of emitters."""

    session_seconds: float = option(3600.0, _seconds)
    max_item_bytes: int = option(16 * 1024**2, _count)
    max_batch_bytes: int = option(16 * 1024**2, _count)
    max_envelope_items: int = option(100_000_000, _count)
    max_envelope_bytes: int = option(16 * 1024**3, _count)
    immediate_reply_timeout: float = option(30.0, _seconds)
    open_envelope_timeout: float = option(86400.0, _seconds)


@dataclass(frozen=True, slots=True)
class BackSettings:
    """The time-outs and retries of recipients, in seconds, and the bytes in flight to one."""

    start_event_timeout: float = option(30.0, _seconds)
    send_item_timeout: float = option(60.0, _seconds)
    end_event_timeout: float = option(300.0, _seconds)
    end_envelope_timeout: float = option(300.0, _seconds)
    stop_envelope_timeout: float = option(30.0, _seconds)
    reply_hold_timeout: float = option(60.0, _seconds)
    register_timeout: float = option(5.0, _seconds)
    worker_grace: float = option(5.0, _seconds)
    behind_after: float = option(10.0, _seconds)
    attempts: int = option(5, _count)
    first_delay: float = option(1.0, _seconds)
    longest_delay: float = option(300.0, _seconds)
    jitter: float = option(0.2, _part)
    trouble_after: int = option(5, _count)
    probe_interval: float = option(30.0, _seconds)
    bulk_lease: float = option(30.0, _seconds)
    session_seconds: float = option(3600.0, _seconds)
    window_bytes: int = option(8 * 1024**2, _count)


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """The sizes of writes and of the journal, in bytes, and the time to keep envelopes."""

    max_pending_bytes: int = option(64 * 1024**2, _count)
    max_segment_bytes: int = option(1024**2, _count)
    answer_timeout: float = option(15.0, _seconds)
    max_bytes: int = option(0, _limit)
    keep_settled_days: float = option(30.0, _days)
    owed_days: float = option(30.0, _days)


@dataclass(frozen=True, slots=True)
class HealthLimits:
    """The limits of health: ``interval`` in seconds, the others in minutes, infinite for never."""

    interval: float = option(30.0, _seconds)
    absent_minutes: float = option(15.0, _minutes)
    parked_minutes: float = option(0.0, _minutes)
    open_minutes: float = option(60.0, _minutes)


@dataclass(frozen=True, slots=True)
class DaemonSettings:
    """The process itself; ``stop_timeout`` in seconds."""

    stop_timeout: float = option(10.0, _seconds)


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration; each field is a section of the file.

    ``notes`` names the content of the file that has no effect, for the log. ``file`` is the file itself, for programs
    that this one starts; None if the configuration was made by other means.
    """

    database: DatabaseSettings = DatabaseSettings()
    zmq: ZmqSettings = ZmqSettings()
    logging: LoggingSettings = LoggingSettings()
    supervision: SupervisionSettings = SupervisionSettings()
    front: FrontSettings = FrontSettings()
    back: BackSettings = BackSettings()
    journal: JournalSettings = JournalSettings()
    health: HealthLimits = HealthLimits()
    daemon: DaemonSettings = DaemonSettings()
    notes: tuple[str, ...] = ()
    file: Path | None = None


SECTIONS: dict[str, type] = {f.name: f.type for f in fields(Config) if f.name != "notes" and isinstance(f.type, type)}
"""The sections of the file by name."""

UNUSED = {"supervision": {"backsocket"}}
"""Options of xbus.broker 0.2.0 that files still have and nothing needs, by section."""

UNUSED_SECTIONS = {"redis"}
"""Sections of xbus.broker 0.2.0 that files still have and nothing needs."""


def option_name(described: "Field[Any]") -> str:
    """Give the name of a section's field in the file."""
    return described.metadata["name"] or described.name


def load(path: Path) -> Config:
    """Read a configuration file.

    Args:
        path: the file; relative paths in it start from its folder.

    Raises:
        ConfigurationError: the file can't be read, or has an unknown section, an unknown option or a bad value.
    """
    parser = _parse(path)
    sections: dict[str, Any] = {name: _section(path, parser, name, kind) for name, kind in SECTIONS.items()}
    _refuse_unknown(path, "section", parser.sections(), {*SECTIONS, *UNUSED_SECTIONS})
    config = Config(**sections, notes=_notes(path, parser), file=path.absolute())
    return _rooted(config, path.absolute().parent)


def _parse(path: Path) -> configparser.ConfigParser:
    # No interpolation, and no section whose options show up in all others.
    parser = configparser.ConfigParser(interpolation=None, default_section="")
    try:
        parser.read_string(path.read_text(encoding="utf-8"), source=str(path))
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigurationError(
            f"the configuration file {path} can't be read ({reason})", "name a readable file with -c"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"the configuration file {path} is not text in UTF-8", "save it as UTF-8") from error
    except configparser.Error as error:
        raise ConfigurationError(
            f"the configuration file {path} is not well formed ({_malformation(error)})",
            "compare it with config.ini.sample",
        ) from error
    return parser


def _malformation(error: configparser.Error) -> str:
    """Describe the fault in the file's form without quoting lines, which may contain a password."""
    if isinstance(error, configparser.DuplicateOptionError):
        return f"line {error.lineno}: [{error.section}] {error.option} is given twice"
    if isinstance(error, configparser.DuplicateSectionError):
        return f"line {error.lineno}: [{error.section}] is given twice"
    if isinstance(error, configparser.MissingSectionHeaderError):
        return f"line {error.lineno}: there is no section above it"
    numbers = [str(number) for number, _ in getattr(error, "errors", ())]
    return f"line {', '.join(numbers)}: not an option with a value"


def _section(path: Path, parser: configparser.ConfigParser, name: str, kind: type[Any]) -> object:
    given = parser[name] if parser.has_section(name) else {}
    known = {option_name(described): described for described in fields(kind)}
    _refuse_unknown(path, f"option of [{name}]", given, {*known, *UNUSED.get(name, ())})
    values = {known[key].name: _value(path, name, known[key], text) for key, text in given.items() if key in known}
    return kind(**values)


def _value(path: Path, section: str, described: "Field[Any]", text: str) -> object:
    try:
        return described.metadata["check"](text)
    except ValueError as error:
        value = repr(text) if described.repr else "the value"
        raise ConfigurationError(
            f"{path}: [{section}] {option_name(described)}: {value} {error}",
            "correct it, or leave the line out for the default",
        ) from error


def _refuse_unknown(path: Path, what: str, given: Iterable[str], known: set[str]) -> None:
    unknown = [key for key in given if key not in known]
    if unknown:
        raise ConfigurationError(
            f"{path}: {unknown[0]!r} is no {what}", f"correct or remove it; there are {', '.join(sorted(known))}"
        )


def _notes(path: Path, parser: configparser.ConfigParser) -> tuple[str, ...]:
    sections = [f"[{name}]" for name in parser.sections() if name in UNUSED_SECTIONS]
    options = [f"[{name}] {key}" for name, keys in UNUSED.items() for key in keys if parser.has_option(name, key)]
    return tuple(f"{path}: {what} is not needed and has no effect" for what in sections + options)


def _rooted(config: Config, folder: Path) -> Config:
    """Make relative paths of the configuration absolute, from the file's folder."""
    sockets = {f.name: _rooted_at("ipc://", getattr(config.zmq, f.name), folder) for f in fields(ZmqSettings)}
    logging_file = config.logging.configfile
    return replace(
        config,
        database=DatabaseSettings(url=_rooted_at("sqlite:///", config.database.url, folder)),
        zmq=ZmqSettings(**sockets),
        logging=replace(config.logging, configfile=folder / logging_file if logging_file else None),
    )


def _rooted_at(prefix: str, address: str, folder: Path) -> str:
    if not address.startswith(prefix):
        return address
    place = address.removeprefix(prefix)
    # "file:" begins SQLite's own kind of URL, "@" a name of Linux that is no path.
    return address if place.startswith(("file:", "@")) else f"{prefix}{folder / place}"
