"""What the log looks like, and where it goes."""

import logging
from collections.abc import Iterator
from pathlib import Path

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
