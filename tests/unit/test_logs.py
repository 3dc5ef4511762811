"""What the log looks like, and where it goes."""

import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser

from xbus import ending, logs, tracing
from xbus.config import LoggingSettings
from xbus.errors import ConfigurationError, Refused
from xbus.headers import pack_headers
from xbus.logs import JsonFormatter, TextFormatter

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


FORGED = "a type\n2026-05-04 09:30:00,123 INFO xbus: all is well\x1b[2J\u202e"


def test_a_message_stays_on_its_line_and_works_on_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up(LoggingSettings())

    log.info("refused: there is no event type %s, élan", FORGED)

    line = r"a type\n2026-05-04 09:30:00,123 INFO xbus: all is well\x1b[2J\u202e, élan"
    assert capsys.readouterr().err.endswith(f"INFO xbus.test: refused: there is no event type {line}\n")


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_is_too_long_is_cut(capsys: pytest.CaptureFixture[str], form: str) -> None:
    logs.set_up(LoggingSettings(format=form))

    log.info("login %s refused", "x" * 1_000_000, extra={"login": "y" * 1_000_000, "several": ["z" * 1_000_000]})

    told = capsys.readouterr().err
    assert len(told) < 8 * logs.LONGEST_TEXT
    assert "(1,000,000 characters)" in told


def test_a_flood_of_refusals_is_counted() -> None:
    now = 0.0
    passes = logs.RefusalFilter(lambda: now).filter
    told: list[object] = []

    def refuse(verb: str, count: int) -> int:
        records = [log.makeRecord("x", 20, "x", 1, "no", (), None) for _ in range(count)]
        for record in records:
            record.__dict__.update(action="refused", verb=verb, code="session_unknown")
        passed = [record for record in records if passes(record)]
        told[:] = [record.__dict__.get("left_out") for record in passed]
        return len(passed)

    assert (refuse("send_item", 1_000), refuse("end_event", 10)) == (logs.REFUSALS_TOLD, 10)
    now = 61.0
    assert refuse("send_item", 2) == 2
    assert told == [1_000 - logs.REFUSALS_TOLD, None]
    assert passes(log.makeRecord("x", 20, "x", 1, "an envelope", (), None))


def test_bodies_that_make_no_sense_fill_no_log(capsys: pytest.CaptureFixture[str]) -> None:
    """Anybody may send one to the log-in of the monitor."""
    logs.set_up(LoggingSettings())
    with pytest.raises(MultipartParseError):
        MultipartParser(b"boundary", {}).write(b"nonsense")
    assert capsys.readouterr().err == ""


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


def test_a_message_of_the_web_server_is_not_repeated_in_colours(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up(LoggingSettings(format="json"))

    log.info("Started", extra={"color_message": "Started \x1b[36m"})

    assert "color_message" not in logged(capsys)[0]


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


def test_a_program_ends_with_one_line_whatever_others_have_said(capsys: pytest.CaptureFixture[str]) -> None:
    ending.tell("xbus", Refused("the consumer says \x1b[2J\nxbus: all is well\u202e", "ask it, élan", code="refused"))

    line = r"xbus: the consumer says \x1b[2J\nxbus: all is well\u202e: ask it, élan [refused]"
    assert capsys.readouterr().err == f"{line}\n"


def test_a_line_about_an_envelope_names_its_trace() -> None:
    trace_id, envelope_id = "0af7651916cd43dd8448eb211c80319c", uuid4()
    headers = pack_headers({"traceparent": f"00-{trace_id}-b7ad6b7169203331-01"})
    record = logging.makeLogRecord({"msg": "not delivered", "envelope_id": envelope_id})
    other = logging.makeLogRecord({"msg": "not delivered", "envelope_id": uuid4()})
    with tracing.following("deliver", [(envelope_id, headers)], {}):
        assert f"trace_id={trace_id}" in TextFormatter().format(record)
        assert json.loads(JsonFormatter().format(record))["trace_id"] == trace_id
        assert "trace_id" not in TextFormatter().format(other)
    assert "trace_id" not in TextFormatter().format(record)
