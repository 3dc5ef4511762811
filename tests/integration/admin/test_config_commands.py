"""``xbus config``: a file is written, checked and shown."""

import json
import stat
from pathlib import Path

import pytest

from tests.integration.admin.conftest import Xbus
from tests.support.daemon import write_config
from xbus.config import OPTIONS, load


@pytest.fixture(autouse=True)
def inside_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "new").mkdir()
    monkeypatch.chdir(tmp_path / "new")


def test_a_new_file_explains_itself_and_is_right(xbus: Xbus) -> None:
    result = xbus("config", "init")

    assert result.exit_code == 0
    assert result.stdout == "config.ini is written. Edit it, then: xbus config check -c config.ini\n"
    file = Path("config.ini")
    assert "; The address that emitters connect to." in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) & 0o007 == 0
    assert load(file).front == load(None, {"XBUS_DAEMON__STOP_TIMEOUT": "10"}).front
    assert xbus("config", "check", "-c", file).stdout == "The configuration is right.\n"


def test_an_existing_file_stays(xbus: Xbus) -> None:
    Path("mine.ini").write_text("mine")

    result = xbus("config", "init", "mine.ini")

    assert (result.exit_code, Path("mine.ini").read_text()) == (1, "mine")
    assert "mine.ini exists already: name another file" in result.stderr
    assert "can't be written (No such file or directory)" in xbus("config", "init", "nowhere/mine.ini").stderr


def test_each_finding_is_told_with_its_cure(xbus: Xbus, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("bad.ini").write_text("[redis]\n[zmq]\nfrontsocket = x\n[front]\nmax_items = 1\n")
    monkeypatch.setenv("XBUS_LOGGING__LEVEL", "LOUD")

    result = xbus("config", "check", "-c", "bad.ini")

    assert result.exit_code == 1
    front, items, level, last = result.stderr.splitlines()
    assert front.startswith("bad.ini: [zmq] frontsocket: 'x' is not an address such as")
    assert front.endswith("correct it, or leave the line out for the default [bad_configuration]")
    assert items.startswith("bad.ini: 'max_items' is no option of [front]: correct or remove it; there are ")
    assert level.startswith("XBUS_LOGGING__LEVEL: 'LOUD' is not one of DEBUG")
    assert last == "xbus: the configuration can't be used: 3 problems above"
    assert result.stdout == "note: bad.ini: [redis] is not needed and has no effect\n"


@pytest.mark.parametrize("text", [None, "", "no sections"])
def test_a_bad_configuration_of_the_log_is_found(xbus: Xbus, text: str | None) -> None:
    if text is not None:
        Path("logging.ini").write_text(text)
    Path("my.ini").write_text("[logging]\nconfigfile = logging.ini\n")

    result = xbus("config", "check", "-c", "my.ini")

    assert result.exit_code == 1
    assert "[logging] configfile: " in result.stderr


def test_the_database_is_looked_at_on_request(xbus: Xbus, tmp_path: Path) -> None:
    assert xbus("config", "check", "--connect").exit_code == 0

    away = write_config(tmp_path / "away.ini", "postgresql://nobody@127.0.0.1:1/gone")
    assert xbus("config", "check", "-c", away).exit_code == 0
    result = xbus("config", "check", "-c", away, "--connect")
    assert result.exit_code == 3
    assert "see that the database runs" in result.stderr

    new = write_config(tmp_path / "fresh.ini", f"sqlite:///{tmp_path}/fresh.db")
    result = xbus("config", "check", "-c", new, "--connect")
    assert (result.exit_code, "the database is not set up" in result.stderr) == (1, True)


def test_what_is_in_force_is_shown_with_its_source(xbus: Xbus, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("my.ini").write_text("[zmq]\nfrontsocket = tcp://*:1\nbacksocket = tcp://*:2\n")
    monkeypatch.setenv("XBUS_DATABASE__SQLALCHEMY_DBURI", "postgresql://xbus:secret@db/xbus?sslpassword=secret")
    monkeypatch.setenv("XBUS_ZMQ__FRONTSOCKET", "tcp://*:3")

    shown = xbus("config", "show", "-c", "my.ini").stdout

    rows = {tuple(line.split()) for line in shown.splitlines()}
    assert ("[zmq]", "frontsocket", "tcp://*:3", "XBUS_ZMQ__FRONTSOCKET") in rows
    assert ("[zmq]", "backsocket", "tcp://*:2", "my.ini") in rows
    assert ("[health]", "open_minutes", "60", "default") in rows
    assert "postgresql+psycopg2://xbus:***@db/xbus?sslpassword=***" in shown
    assert "secret" not in shown
    objects = [json.loads(line) for line in xbus("config", "show", "-c", "my.ini", "--json").stdout.splitlines()]
    assert len(objects) == len(OPTIONS)
    assert objects[1] == {
        "section": "zmq",
        "option": "frontsocket",
        "value": "tcp://*:3",
        "from": "XBUS_ZMQ__FRONTSOCKET",
        "variable": "XBUS_ZMQ__FRONTSOCKET",
    }


@pytest.mark.parametrize("command", ["check", "show"])
def test_there_must_be_a_configuration(xbus: Xbus, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XBUS_CONFIG")
    assert "no configuration file is named" in xbus("config", command).stderr

    monkeypatch.setenv("XBUS_ZMQ__FRONTSOCKET", "tcp://127.0.0.1:3")
    assert xbus("config", command).exit_code == 0
