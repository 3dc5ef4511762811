"""``xbus emit`` with an emitter that only notes what is asked of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner, Result

from xbus.admin.cli import main
from xbus.admin.commands import emit as command
from xbus.emitter import Receipt
from xbus.errors import ConnectionLost, Refused, XbusError


class NotedEmitter:
    """Stands in for the emitter: what was sent, and whether the envelope was sealed or cancelled."""

    notes: ClassVar[list[Any]]
    refusal: ClassVar[XbusError | None]

    def __init__(self, url: str, login: str, password: str) -> None:
        self.notes.append(("login", url, login, password))

    def __enter__(self) -> "NotedEmitter":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @contextmanager
    def envelope(self) -> Iterator[Any]:
        try:
            yield SimpleNamespace(event=self._event, receipt=Receipt("e1", 1234, 1, 2, b""))
        except BaseException:
            self.notes.append("cancelled")
            raise
        self.notes.append("sealed")

    @contextmanager
    def _event(self, type_name: str) -> Iterator[Any]:
        self.notes.append(("event", type_name))
        yield SimpleNamespace(send=self._send)

    def _send(self, item: object) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.notes.append(item)


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> type[NotedEmitter]:
    class Fresh(NotedEmitter):
        notes: ClassVar[list[Any]] = []
        refusal: ClassVar[XbusError | None] = None

    monkeypatch.setattr(command, "Emitter", Fresh)
    for variable in ("XBUS_CONFIG", "XBUS_LOGIN", "XBUS_PASSWORD"):
        monkeypatch.delenv(variable, raising=False)
    return Fresh


def emit(path: Path, content: str, *options: str, stdin: str = "", **environment: str) -> Result:
    path.write_text(content)
    arguments = ["emit", str(path), "--type", "flights", "--url", "tcp://here:1", *options]
    return CliRunner().invoke(main, arguments, input=stdin, env=environment, prog_name="xbus")


def test_a_file_is_one_envelope(noted: type[NotedEmitter], tmp_path: Path) -> None:
    result = emit(tmp_path / "a.csv", "id,name\n1,x\n2,y\n", "--login", "me", XBUS_PASSWORD="secret")
    assert result.exit_code == 0
    assert noted.notes == [
        ("login", "tcp://here:1", "me", "secret"),
        ("event", "flights"),
        {"id": "1", "name": "x"},
        {"id": "2", "name": "y"},
        "sealed",
    ]
    assert result.stdout == "2 items sent: envelope e1, position 1,234\n"


def test_login_and_password_come_from_where_they_are_said(noted: type[NotedEmitter], tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("filed\n")
    emit(tmp_path / "a.jsonl", "1", "--password-file", str(secret), XBUS_LOGIN="you", XBUS_PASSWORD="unused")
    assert noted.notes[0] == ("login", "tcp://here:1", "you", "filed")


def test_login_and_password_are_asked_for(noted: type[NotedEmitter], tmp_path: Path) -> None:
    result = emit(tmp_path / "a.jsonl", "1", stdin="me\nsecret\n")
    assert noted.notes[0] == ("login", "tcp://here:1", "me", "secret")
    assert "secret" not in result.output


def test_a_bad_line_is_told_and_cancels_the_envelope(noted: type[NotedEmitter], tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    result = emit(path, "1\n{\n3\n", "--login", "me", XBUS_PASSWORD="secret")
    assert result.exit_code == 1
    assert noted.notes[-2:] == [1, "cancelled"]
    assert f"xbus: {path}:2: this is not JSON" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("code", ["bad_items", "item_too_large"])
def test_an_item_that_the_bus_can_not_take_is_told_with_its_line(
    noted: type[NotedEmitter], tmp_path: Path, code: str
) -> None:
    noted.refusal = Refused("an item of 99 bytes is too large", code=code)
    path = tmp_path / "a.csv"
    result = emit(path, "id\n1\n", "--login", "me", XBUS_PASSWORD="secret")
    assert result.exit_code == 1
    assert f"xbus: {path}:2: an item of 99 bytes is too large" in result.stderr
    assert noted.notes[-1] == "cancelled"


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [(Refused("no such type", "see xbus export"), 1), (ConnectionLost("the front went away", "try again"), 3)],
)
def test_other_errors_are_told_as_they_are(
    noted: type[NotedEmitter], tmp_path: Path, error: XbusError, exit_code: int
) -> None:
    noted.refusal = error
    result = emit(tmp_path / "a.csv", "id\n1\n", "--login", "me", XBUS_PASSWORD="secret")
    assert result.exit_code == exit_code
    assert result.stderr.splitlines()[-1] == f"xbus: {error}"


def test_a_file_of_another_kind_is_refused_before_anyone_is_called(noted: type[NotedEmitter], tmp_path: Path) -> None:
    result = emit(tmp_path / "a.xlsx", "", "--login", "me", XBUS_PASSWORD="secret")
    assert result.exit_code == 1
    assert noted.notes == []


def test_a_password_file_without_a_password_is_refused(noted: type[NotedEmitter], tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("")
    result = emit(tmp_path / "a.csv", "", "--login", "me", "--password-file", str(secret))
    assert result.exit_code == 1
    assert "holds no password in its first line" in result.stderr
