"""The format of the log: one line per record, as text or as JSON.

    2026-05-04 09:30:00,123 INFO xbus.broker.front.front: envelope received action=seal envelope_id=0197-…
    {"time": "2026-05-04T09:30:00.123Z", "level": "INFO", "logger": "xbus.broker.front.front",
     "message": "envelope received", "action": "seal", "envelope_id": "0197-…"}

Code logs a sentence that stays the same and hands the rest over as ``extra``: ``log.info("envelope received",
extra={"action": "seal", "envelope_id": ...})``. So the log can be searched by sentence, by action and by id.
"""

import configparser
import json
import logging
import logging.config
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

from xbus.config import LoggingSettings
from xbus.ending import printable
from xbus.errors import ConfigurationError, XbusError
from xbus.tracing import trace_of

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

CLEAR_LINE = "\r\x1b[K"
"""Takes a terminal to the beginning of its line and empties that."""

LONGEST_TEXT = 2000
"""The most characters of a message, or of a value beside it. Callers choose many of them, and how long they are."""

REFUSALS = ("refused", "login_refused", "login_taken_back")
"""Actions that callers cause as often as they like."""

REFUSALS_TOLD = 100
SECONDS_OF_REFUSALS = 60.0
"""So many refusals of one kind are told in so many seconds."""

QUIET = {"alembic": logging.WARNING, "python_multipart": logging.CRITICAL}
"""Libraries that tell too much, with the level from which they are heard. Anybody may send the monitor bodies that make
no sense, and python_multipart warns of each."""

USUAL_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
"""The fields of every record; any other came in as ``extra``. uvicorn repeats a message in colours in the last one."""


class TextFormatter(logging.Formatter):
    """Writes what came as ``extra`` behind the message as ``key=value``; a logging configuration file may name it."""

    def __init__(
        self, fmt: str | None = None, datefmt: str | None = None, style: Literal["%", "{", "$"] = "%", **options: Any
    ) -> None:
        super().__init__(fmt or FORMAT, datefmt, style, **options)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        extra = [f"{key}={_shown(value)}" for key, value in _extra(record).items()]
        record.message = printable(_cut(record.message))
        return " ".join([super().formatMessage(record), *extra])


class JsonFormatter(logging.Formatter):
    """Writes each record as an object in JSON on one line; a logging configuration file may name it.

    Values of ``extra`` are keys beside ``time`` (UTC), ``level``, ``logger`` and ``message``. An exception is
    ``error``, with its class, its text, its ``code`` if it is one of the bus, and ``traceback``.
    """

    is_for_programs = True
    """Has :mod:`xbus.ending` put the last line of a program into the log, too."""

    def format(self, record: logging.LogRecord) -> str:
        extra = {key: _plain(value) for key, value in _extra(record).items()}
        told: dict[str, object] = {
            **extra,
            "time": datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": _cut(record.getMessage()),
        }
        if record.exc_info and record.exc_info[1] is not None:
            told["error"] = self._error(record.exc_info[1])
        # The four that every record has come first.
        ordered = {key: told.pop(key) for key in ("time", "level", "logger", "message")} | told
        return json.dumps(ordered)

    def _error(self, error: BaseException) -> dict[str, str]:
        code = {"code": error.code} if isinstance(error, XbusError) else {}
        trace = self.formatException((type(error), error, error.__traceback__))
        return {"class": type(error).__name__, "text": str(error), **code, "traceback": trace}


def _extra(record: logging.LogRecord) -> dict[str, object]:
    """Collect what came as ``extra``, and the trace of the envelope that the record is about."""
    extra = {key: value for key, value in vars(record).items() if key not in USUAL_FIELDS}
    envelope_id = extra.get("envelope_id")
    trace = trace_of(envelope_id) if isinstance(envelope_id, UUID) else None
    return extra if trace is None else {**extra, "trace_id": trace.trace_id}


def _plain(value: object) -> object:
    """Keep what JSON has a form for; everything else becomes text."""
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else _cut(str(value))


FORMATTERS: dict[str, type[logging.Formatter]] = {"text": TextFormatter, "json": JsonFormatter}


def _shown(value: object) -> str:
    """Write the value on one line, in quotes if it could be mistaken for more than one word."""
    text = _cut(str(value))
    return text if text.isprintable() and " " not in text and text else repr(text)


def _cut(text: str) -> str:
    """Keep the beginning of a text that is too long."""
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}… ({len(text):,} characters)"


class RefusalFilter(logging.Filter):
    """Keeps refusals from filling the disk: of one kind it passes so many in a minute, and then counts.

    A kind is a verb and a code. The first line of the next minute has the number of those that were left out.

    Args:
        now: a clock in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._kinds: dict[tuple[object, object], _Refusals] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Let a record pass, or count it; one that is about no refusal passes."""
        if getattr(record, "action", None) not in REFUSALS:
            return True
        kind = getattr(record, "verb", ""), getattr(record, "code", "")
        told = self._kinds.get(kind)
        if told is None or self._now() - told.since >= SECONDS_OF_REFUSALS:
            if told is not None and told.left_out:
                record.left_out = told.left_out
            self._kinds[kind] = _Refusals(self._now())
            return True
        told.passed += 1
        if told.passed > REFUSALS_TOLD:
            told.left_out += 1
            return False
        return True


@dataclass(slots=True)
class _Refusals:
    """The refusals of one kind within a minute."""

    since: float
    passed: int = 1
    left_out: int = 0


def set_up(config: LoggingSettings) -> None:
    """Send the log where the configuration says.

    Args:
        config: the ``[logging]`` section.

    Raises:
        ConfigurationError: ``configfile`` can't be read or used.
    """
    if config.configfile is None:
        _use_standard_error(config.level, config.format)
    else:
        _use_file(config.configfile)


def check(config: LoggingSettings) -> None:
    """Look at the file of the log's configuration without using it: that would already open files of the log.

    Raises:
        ConfigurationError: ``configfile`` can't be read, or lacks a section.
    """
    if config.configfile is None:
        return
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(config.configfile.read_text(encoding="utf-8"))
        missing = [name for name in ("loggers", "handlers", "formatters") if not parser.has_section(name)]
        if missing:
            raise ValueError(f"it has no section [{missing[0]}]")
    except (OSError, ValueError, configparser.Error) as error:
        raise _unusable(config.configfile, error) from error


def _use_standard_error(level: str, form: str) -> None:
    handler = logging.StreamHandler()
    handler.addFilter(RefusalFilter())
    handler.setFormatter(_above_bars() if form == "text" else FORMATTERS[form]())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    if form == "json":
        logging.captureWarnings(True)
    for name, quiet_level in QUIET.items():
        logging.getLogger(name).setLevel(quiet_level)


def _above_bars() -> TextFormatter:
    """Make lines for a terminal in which another program may draw a progress bar; it draws that anew below."""
    return TextFormatter(CLEAR_LINE + FORMAT if clears_lines() else FORMAT)


def clears_lines() -> bool:
    """Check whether standard error is a terminal whose line can be cleared."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _use_file(path: Path) -> None:
    try:
        logging.config.fileConfig(path, disable_existing_loggers=False, encoding="utf-8")
    except Exception as error:  # fileConfig lets out whatever the classes named in the file raise
        raise _unusable(path, error) from error


def _unusable(path: Path, error: Exception) -> ConfigurationError:
    reason = " ".join(str(error).split()) or type(error).__name__
    return ConfigurationError(
        f"[logging] configfile: {path} can't be used ({reason})",
        "correct it as logging.config.fileConfig of Python wants it, or leave the option out",
    )
