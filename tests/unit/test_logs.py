"""What the log looks like, and where it goes."""

import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from xbus import logs
from xbus.config import LoggingSettings
from xbus.errors import ConfigurationError

log = logging.getLogger("xbus.test")


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """The set-up is one for the whole process: put it back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    logging.captureWarnings(False)
    for handler in set(root.handlers) - set(handlers):
        handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_record_is_a_sentence_and_what_it_is_about(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up(LoggingSettings(level="INFO"))

    log.info("envelope received", extra={"action": "seal", "envelope_id": "0197", "items": 500})
    log.debug("not shown")

    line = capsys.readouterr().err.rstrip()
    assert line.endswith("INFO xbus.test: envelope received action=seal envelope_id=0197 items=500")


@pytest.mark.parametrize(
    ("value", "shown"),
    [("two words", "'two words'"), ("two\nlines", r"'two\nlines'"), ("", "''"), (None, "None"), (b"\x00", r"b'\x00'")],
)
def test_a_value_stays_on_its_line(capsys: pytest.CaptureFixture[str], value: object, shown: str) -> None:
    logs.set_up(LoggingSettings())

    log.info("something", extra={"value": value})

    assert capsys.readouterr().err.endswith(f"something value={shown}\n")


def test_a_traceback_follows_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up(LoggingSettings())
    try:
        raise ValueError("inner")
    except ValueError:
        log.exception("it failed", extra={"action": "test"})

    written = capsys.readouterr().err
    assert "it failed action=test\nTraceback" in written
    assert written.endswith("ValueError: inner\n")


def logged(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_json_is_an_object_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up(LoggingSettings(format="json"))

    log.info("envelope %s", "received", extra={"action": "seal", "items": 500, "path": Path("/x"), "raw": b"\x00"})
    log.warning("two\nlines, and \u2028 more")
    log.debug("not shown")

    first, second = logged(capsys)
    assert list(first)[:4] == ["time", "level", "logger", "message"]
    assert datetime.fromisoformat(first.pop("time")).tzinfo is UTC
    assert first == {
        "level": "INFO",
        "logger": "xbus.test",
        "message": "envelope received",
        "action": "seal",
        "items": 500,
        "path": "/x",
        "raw": "b'\\x00'",
    }
    assert second["message"] == "two\nlines, and \u2028 more"


def test_an_error_in_json_has_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up(LoggingSettings(format="json"))
    try:
        raise ConfigurationError("it is wrong", "correct it", code="bad_thing")
    except ConfigurationError:
        log.exception("it failed", extra={"action": "test"})

    (line,) = logged(capsys)
    assert line["message"] == "it failed"
    assert (line["error"]["class"], line["error"]["code"]) == ("ConfigurationError", "bad_thing")
    assert line["error"]["text"] == "it is wrong: correct it"
    assert line["error"]["traceback"].startswith("Traceback")


def test_fields_of_a_record_win_over_those_of_extra(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up(LoggingSettings(format="json"))

    log.info("said", extra={"level": 3, "time": "noon"})

    (line,) = logged(capsys)
    assert line["level"] == "INFO"
    assert line["time"] != "noon"


def test_a_configuration_file_is_honoured(tmp_path: Path) -> None:
    file = tmp_path / "logging.ini"
    file.write_text(
        f"""
[loggers]
keys = root
[handlers]
keys = file
[formatters]
keys = bus
[logger_root]
level = DEBUG
handlers = file
[handler_file]
class = FileHandler
args = ({str(tmp_path / "xbus.log")!r},)
formatter = bus
[formatter_bus]
class = xbus.logs.TextFormatter
format = %(levelname)s %(message)s
"""
    )
    logs.set_up(LoggingSettings(configfile=file, level="ERROR"))

    log.debug("said", extra={"action": "test"})

    assert (tmp_path / "xbus.log").read_text() == "DEBUG said action=test\n"


@pytest.mark.parametrize("text", [None, "", "[loggers]\nkeys = root\n", "no configuration"])
def test_a_configuration_file_that_can_not_be_used_is_refused(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "logging.ini"
    if text is not None:
        file.write_text(text)

    with pytest.raises(ConfigurationError, match=r"\[logging\] configfile: .*logging.ini can't be used"):
        logs.set_up(LoggingSettings(configfile=file))
