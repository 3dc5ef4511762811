"""``xbus clearing`` with an emitter that only notes what it is to ask."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner, Result

from xbus.admin.cli import main
from xbus.admin.commands import clearing as command
from xbus.errors import Failed, Refused, XbusError


class NotedEmitter:
    """Stands in for the emitter: what it was asked, and the reply or error that it gives."""

    notes: ClassVar[list[Any]]
    reply: ClassVar[Any]

    def __init__(self, url: str, login: str, password: str) -> None:
        self.notes.append(("login", url, login, password))

    def __enter__(self) -> "NotedEmitter":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ask(self, type_name: str, *items: object) -> Any:
        self.notes.append((type_name, *items))
        if isinstance(self.reply, XbusError):
            raise self.reply
        return self.reply


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> type[NotedEmitter]:
    class Fresh(NotedEmitter):
        notes: ClassVar[list[Any]] = []
        reply: ClassVar[Any] = [{"id": 7, "state": "new"}]

    monkeypatch.setattr(command, "Emitter", Fresh)
    for variable in ("XBUS_CONFIG", "XBUS_LOGIN", "XBUS_PASSWORD"):
        monkeypatch.delenv(variable, raising=False)
    return Fresh


def clearing(*arguments: str | Path) -> Result:
    command_line = ["clearing", *map(str, arguments), "--url", "tcp://here:1", "--login", "me"]
    return CliRunner().invoke(main, command_line, env={"XBUS_PASSWORD": "secret"}, prog_name="xbus")


def test_showing_asks_for_the_details_and_prints_them(noted: type[NotedEmitter]) -> None:
    result = clearing("show", "7")
    assert result.exit_code == 0, result.output
    assert noted.notes == [
        ("login", "tcp://here:1", "me", "secret"),
        ("data_clearing", {"action": "get_item_details", "item_id": 7}),
    ]
    assert json.loads(result.stdout) == [{"id": 7, "state": "new"}]


def test_clearing_sends_values_as_json_where_they_are_and_else_as_text(noted: type[NotedEmitter]) -> None:
    fields = ("email=a@b", "number=7", 'code="7"', "tags=[1]", "note=", "name=a=b", "height=NaN")
    assert clearing("clear", "7", *fields, "--type", "mending").exit_code == 0
    values = {"email": "a@b", "number": 7, "code": "7", "tags": [1], "note": "", "name": "a=b", "height": "NaN"}
    assert noted.notes[1] == ("mending", {"action": "clear_item", "item_id": 7, "values": values})


def test_values_come_from_a_file_too_and_the_command_line_wins(noted: type[NotedEmitter], tmp_path: Path) -> None:
    file = tmp_path / "values.json"
    file.write_text('{"email": "a@b", "number": 7}')
    assert clearing("clear", "7", "number=8", "--values", file).exit_code == 0
    assert noted.notes[1][1]["values"] == {"email": "a@b", "number": 8}


@pytest.mark.parametrize("content", [None, "{", "[1]", '{"a": NaN}', b"\xff"])
def test_a_file_that_holds_no_map_is_refused_before_anyone_is_called(
    noted: type[NotedEmitter], tmp_path: Path, content: str | bytes | None
) -> None:
    file = tmp_path / "values.json"
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    result = clearing("clear", "7", "--values", file)
    assert (result.exit_code, noted.notes) == (1, [])
    assert result.stderr.startswith(f"xbus: {file} ")


@pytest.mark.parametrize("arguments", [("clear", "7"), ("clear", "7", "email"), ("clear", "7", "=x"), ("show", "x")])
def test_a_wrong_command_line_is_told(noted: type[NotedEmitter], arguments: tuple[str, ...]) -> None:
    assert (clearing(*arguments).exit_code, noted.notes) == (2, [])


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (Refused("the consumer refused: there is no item 7", "correct it", code="reply_refused"), 1),
        (Failed("no reply came within 30 s", "see whether it runs", code="reply_timed_out"), 3),
    ],
)
def test_why_no_reply_came_is_told(noted: type[NotedEmitter], error: XbusError, exit_code: int) -> None:
    noted.reply = error
    result = clearing("show", "7")
    assert (result.exit_code, result.stderr) == (exit_code, f"xbus: {error} [{error.code}]\n")


def test_a_reply_may_be_nothing(noted: type[NotedEmitter]) -> None:
    noted.reply = None
    result = clearing("show", "7")
    assert (result.exit_code, result.stdout) == (0, "null\n")


def test_what_json_has_no_form_for_is_shown_as_text(noted: type[NotedEmitter]) -> None:
    noted.reply = {"data": b"\x01\xff", "at": datetime(2030, 1, 2, tzinfo=UTC), "name": "Zoë"}
    result = clearing("show", "7")
    assert json.loads(result.stdout) == {"data": "01ff", "at": "2030-01-02 00:00:00+00:00", "name": "Zoë"}
    assert '"name": "Zoë"' in result.stdout


def test_nothing_is_shown_that_a_terminal_obeys(noted: type[NotedEmitter]) -> None:
    noted.reply = ["\u202eevil\x9b\x1b[2J\U000e0001"]
    result = clearing("show", "7")
    assert json.loads(result.stdout) == noted.reply
    assert all(character.isprintable() for line in result.stdout.splitlines() for character in line)
