"""Reads the configuration: from a file, and from the environment, which wins.

The file is in the format of :mod:`configparser`, without interpolation: a percent sign is a percent sign. The variable
of an option is made of its section and its name: ``XBUS_ZMQ__FRONTSOCKET``.
"""

import configparser
import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from xbus.config.sections import (
    OPTIONS,
    SECTIONS,
    UNUSED,
    UNUSED_SECTIONS,
    Config,
    DatabaseSettings,
    Option,
    ZmqSettings,
)
from xbus.config.values import has_secrets
from xbus.errors import ConfigurationError

FILE_VARIABLE = "XBUS_CONFIG"
"""The environment variable that names the file."""

_OF_OPTION = re.compile("XBUS_.*__.*")
"""The variables of options; others, such as ``XBUS_LOGIN``, have no double underscore."""

_BY_VARIABLE = {option.variable: option for option in OPTIONS}
_BY_PLACE = {(option.section, option.name): option for option in OPTIONS}


@dataclass(frozen=True)
class ConfigReading:
    """The options of the file and of the environment, and their problems.

    Args:
        config: the configuration; an option whose value is wrong has its default.
        sources: the file, or the variable, that sets an option; an option that nobody sets is missing.
        problems: every reason why the configuration can't be used.
    """

    config: Config
    sources: Mapping[Option, str]
    problems: tuple[ConfigurationError, ...]


def load(path: Path | None, environment: Mapping[str, str] | None = None) -> Config:
    """Read the configuration.

    Args:
        path: the file; relative paths start from its folder. None if the environment has all that differs from the
            defaults; relative paths start from the working directory then.
        environment: the environment variables; None for those of this process.

    Raises:
        ConfigurationError: there is neither a file nor a variable of an option, or the file can't be read, or there is
            an unknown section or option, or a bad value.
    """
    if path is None and not is_in(_environment(environment)):
        raise ConfigurationError(
            "no configuration file is named",
            f"give -c FILE, set {FILE_VARIABLE}, or set options as in {OPTIONS[0].variable}",
        )
    return load_or_default(path, environment)


def load_or_default(path: Path | None, environment: Mapping[str, str] | None = None) -> Config:
    """Read the configuration as :func:`load` does; it is all defaults if nobody has set anything.

    Raises:
        ConfigurationError: as of :func:`load`.
    """
    found = read(path, environment)
    if found.problems:
        raise found.problems[0]
    return found.config


def is_in(environment: Mapping[str, str]) -> bool:
    """Check whether the environment sets an option."""
    return any(map(_OF_OPTION.fullmatch, environment))


def read(path: Path | None, environment: Mapping[str, str] | None = None) -> ConfigReading:
    """Read file and environment to their ends, whatever is wrong in them.

    Args:
        path: the file; None for none.
        environment: as of :func:`load`.

    Raises:
        ConfigurationError: the file can't be read, or its form is not that of a configuration file.
    """
    found = _Found()
    notes: tuple[str, ...] = ()
    if path is not None:
        parser = _parse(path)
        found.take_file(path, parser)
        notes = _notes(path, parser)
    found.take_environment(_environment(environment))
    folder = Path.cwd() if path is None else path.absolute().parent
    config = _rooted(found.config(path, notes), folder)
    return ConfigReading(config, found.sources, (*found.problems, *_same_addresses(config.zmq)))


def _environment(given: Mapping[str, str] | None) -> Mapping[str, str]:
    return os.environ if given is None else given


@dataclass
class _Found:
    """Collects the values of options, the last one wins, and everything that is wrong."""

    values: dict[Option, object] = field(default_factory=dict)
    sources: dict[Option, str] = field(default_factory=dict)
    problems: list[ConfigurationError] = field(default_factory=list)

    def take_file(self, path: Path, parser: configparser.ConfigParser) -> None:
        for section in SECTIONS:
            given = parser[section] if parser.has_section(section) else {}
            known = {option.name for option in OPTIONS if option.section == section}
            self._refuse_unknown(path, f"option of [{section}]", given, known, UNUSED.get(section, ()))
            for name, text in given.items():
                if name in known:
                    self._take(_BY_PLACE[section, name], text, str(path), f"{path}: [{section}] {name}")
        self._refuse_unknown(path, "section", parser.sections(), SECTIONS, UNUSED_SECTIONS)

    def take_environment(self, environment: Mapping[str, str]) -> None:
        for variable in filter(_OF_OPTION.fullmatch, sorted(environment)):
            if variable in _BY_VARIABLE:
                self._take(_BY_VARIABLE[variable], environment[variable], variable, variable)
            else:
                near = difflib.get_close_matches(variable, _BY_VARIABLE, 1)
                meant = f"you may mean {near[0]}; " if near else ""
                cause = f"the environment variable {variable} belongs to no option"
                self.problems.append(ConfigurationError(cause, f"{meant}unset it, or see xbus config show"))

    def _take(self, option: Option, text: str, source: str, place: str) -> None:
        try:
            self.values[option] = option.check(text)
        except ValueError as error:
            value = "the value" if option.is_secret or has_secrets(text) else repr(text)
            cure = "leave the line out" if place.startswith(f"{source}:") else "unset it"
            self.problems.append(
                ConfigurationError(f"{place}: {value} {error}", f"correct it, or {cure} for the default")
            )
        else:
            self.sources[option] = source

    def _refuse_unknown(
        self, path: Path, what: str, given: Iterable[str], known: Iterable[str], unused: Iterable[str]
    ) -> None:
        shown = ", ".join(sorted({*known, *unused}))
        for name in given:
            if name not in {*known, *unused}:
                cause = f"{path}: {name!r} is no {what}"
                self.problems.append(ConfigurationError(cause, f"correct or remove it; there are {shown}"))

    def config(self, path: Path | None, notes: tuple[str, ...]) -> Config:
        """Make the configuration of the values that were found, and of defaults."""
        sections: dict[str, Any] = {
            name: kind(**{option.field: value for option, value in self.values.items() if option.section == name})
            for name, kind in SECTIONS.items()
        }
        return Config(**sections, notes=notes, file=None if path is None else path.absolute())


def _same_addresses(zmq: ZmqSettings) -> Iterator[ConfigurationError]:
    if zmq.frontsocket == zmq.backsocket and _is_one_place(zmq.frontsocket):
        cause = f"[zmq] frontsocket and backsocket are both {zmq.frontsocket}"
        yield ConfigurationError(cause, "give each its own port: emitters use the one, recipients the other")


def _is_one_place(address: str) -> bool:
    """Check whether an address is the same place each time; * or 0 as port means any free port."""
    return not address.startswith("tcp://") or address.rpartition(":")[2] not in ("*", "0")


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
            "compare it with the sample that xbus config init writes",
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
        journal=replace(config.journal, archive=_place(config.journal.archive, folder)),
        curve=replace(config.curve, key_file=folder / config.curve.key_file),
        logging=replace(config.logging, configfile=folder / logging_file if logging_file else None),
    )


def _place(written: str, folder: Path) -> str:
    return written if not written or "://" in written else str(folder / written)


def _rooted_at(prefix: str, address: str, folder: Path) -> str:
    if not address.startswith(prefix):
        return address
    place = address.removeprefix(prefix)
    # "file:" begins SQLite's own kind of URL, "@" a name of Linux that is no path.
    return address if place.startswith(("file:", "@")) else f"{prefix}{folder / place}"
