"""``xbus clearing`` with an emitter that only notes what it is to ask."""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner, Result

from examples.clearing_store import ClearingStore
from xbus.admin import address
from xbus.admin.cli import main
from xbus.errors import Failed, Refused, XbusError


class NotedEmitter:
    """Stands in for the emitter: what it was asked, and the reply or error that it gives."""

    notes: ClassVar[list[Any]]
    reply: ClassVar[Any]
    offered: ClassVar[Any] = []

    def __init__(self, url: str, login: str, password: str, **options: float) -> None:
        self.notes.append(("login", url, login, password))

    def __enter__(self) -> "NotedEmitter":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def consumers(self) -> Any:
        self.notes.append("consumers")
        return self.offered

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

    monkeypatch.setattr(address, "Emitter", Fresh)
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
        (Refused("no consumer gives replies", "announce the type", code="reply_unsupported"), 1),
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


def offer(*urls: str, types: tuple[str, ...] = ("data_clearing",)) -> list[Any]:
    """The introductions of consumers with clearing databases, as the front shows them; before them of one without."""
    features = {"immediate_reply": [True, [*types]]}
    return [
        ({"name": "Stock"}, {"clearing": [False, None], **features}),
        *(({"name": f"Shop {number}"}, {"clearing": [True, url], **features}) for number, url in enumerate(urls, 1)),
    ]


def put_aside(folder: Path, *clients: dict[str, Any]) -> str:
    """A clearing database with these items; its address."""
    url = f"sqlite:///{folder / 'clearing.db'}"
    store = ClearingStore(url)
    for client in clients:
        store.keep("9b2f3c1e-0000-4000-8000-000000000001", client)
    store.commit("9b2f3c1e-0000-4000-8000-000000000002")
    store.close()
    return url


def test_items_are_listed_from_the_database_that_the_consumer_announces(
    noted: type[NotedEmitter], tmp_path: Path
) -> None:
    noted.offered = offer(put_aside(tmp_path, {"number": 1, "name": "Ada"}, {"number": 2, "name": "Grace"}))
    lines = clearing("list").stdout.splitlines()
    assert [line.split()[:4] for line in lines] == [
        ["ID", "STATE", "TYPE", "ITEM"],
        ["2", "new", "client", "Client"],
        ["1", "new", "client", "Client"],
    ]
    assert '{"number": 2, "name": "Grace"}' in lines[1]
    (found,) = map(json.loads, clearing("list", "--before", "2", "-o", "json").stdout.splitlines())
    assert (found["item_id"], found["value"], found["consumer"]) == (1, {"number": 1, "name": "Ada"}, "Shop 1")
    assert found["event_id"] == "9b2f3c1e-0000-4000-8000-000000000001"
    assert len(clearing("list", "--limit", "1", "-o", "json").stdout.splitlines()) == 1
    assert clearing("list", "--state", "cleared").stdout == "No items.\n"
    assert len(clearing("list", "--state", "all").stdout.splitlines()) == 3
    assert noted.notes.count("consumers") == 5


def test_the_type_of_requests_chooses_the_consumer(noted: type[NotedEmitter], tmp_path: Path) -> None:
    noted.offered = offer(put_aside(tmp_path, {"number": 1}), types=("mending",))
    assert "client" in clearing("list", "--type", "mending").stdout
    none = "No registered consumer offers clearing to this emitter.\n"
    assert clearing("list", "--type", "data_clearing").stdout == none


def test_a_database_out_of_reach_hides_no_other(noted: type[NotedEmitter], tmp_path: Path) -> None:
    noted.offered = offer(
        f"sqlite:///{tmp_path / 'elsewhere.db'}",
        put_aside(tmp_path, {"number": 1, "name": "Ada"}),
        *("mysql://db/x", "postgresql://u@[::1/x", "no address"),
    )
    result = clearing("list")
    assert result.exit_code == 1
    assert "Shop 2" in result.stdout
    assert result.stderr.count("[clearing_unreadable]") == 4
    assert "elsewhere.db can't be read (there is no database" in result.stderr


def test_a_database_with_other_tables_is_told(noted: type[NotedEmitter], tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as database:
        database.execute("CREATE TABLE item (id INT)")
    noted.offered = offer(f"sqlite:///{other}")
    result = clearing("list")
    assert (result.exit_code, "[clearing_unreadable]" in result.stderr) == (3, True)


def test_a_refusal_of_the_consumer_leads_a_person_to_the_items(noted: type[NotedEmitter]) -> None:
    noted.reply = Refused("there is no item 7", "correct what the consumer refuses", code="reply_refused")
    told = clearing("show", "7")
    assert told.exit_code == 1
    assert told.stderr.startswith("xbus: there is no item 7: xbus clearing list --state all shows the items")
    assert told.stderr.endswith("[reply_refused]\n")
