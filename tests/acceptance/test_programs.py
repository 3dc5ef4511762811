"""``setup_xbusbroker`` and ``start_xbusbroker`` as an operator meets them: what they say, and how they end."""

import json
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import sqlalchemy as sa

from tests.support.daemon import write_config
from tests.support.processes import Process, run, script
from tests.support.waiting import wait_until
from xbus.broker.journal.database import schema
from xbus.broker.journal.database.connection import reading, writing
from xbus.model import emitter, role

PROGRAMS = ["setup_xbusbroker", "start_xbusbroker"]


@pytest.fixture
def config(tmp_path: Path, database_url: str) -> Path:
    return write_config(tmp_path / "config.ini", database_url)


def program(name: str, *arguments: str | Path) -> "CompletedProcess[str]":
    return run(script(name), *arguments)


def assert_refused(result: "CompletedProcess[str]", cause: str, cure: str, exit_code: int = 1) -> None:
    """One line that says what is wrong and what to do, beside what was logged."""
    said = [line for line in result.stderr.splitlines() if "broker: " in line and not line[0].isdigit()]
    assert result.returncode == exit_code, result
    assert len(said) == 1, result.stderr
    assert cause in said[0]
    assert cure in said[0]
    assert "Traceback" not in result.stderr


def test_setup_makes_the_schema_and_may_be_repeated(tmp_path: Path, empty_database_url: str) -> None:
    config = write_config(tmp_path / "config.ini", empty_database_url)

    for _ in range(2):
        result = program("setup_xbusbroker", "-c", config)
        assert (result.returncode, result.stdout) == (0, "The database is set up.\n"), result.stderr

    schema.check(empty_database_url)


def test_setup_adds_the_demo_rows_and_warns_of_their_passwords(config: Path, database_url: str) -> None:
    for _ in range(2):
        result = program("setup_xbusbroker", "-c", config, "--demo")
        assert result.returncode == 0, result.stderr
        assert "for trying only" in result.stdout

    with reading(database_url) as connection:
        assert connection.scalars(sa.select(emitter.c.login)).all() == ["test_emitter"]
        assert set(connection.scalars(sa.select(role.c.login))) == {"consumer_role", "worker_role"}


def test_a_relative_database_is_beside_its_configuration(tmp_path: Path) -> None:
    folder = tmp_path / "somewhere"
    folder.mkdir()
    config = write_config(folder / "config.ini", "sqlite:///bus.db")

    assert run(script("setup_xbusbroker"), "-c", config, cwd=tmp_path).returncode == 0

    schema.check(f"sqlite:///{folder / 'bus.db'}")


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_configuration_must_be_named(name: str, tmp_path: Path) -> None:
    assert_refused(run(script(name), cwd=tmp_path), "no configuration file is named", "give -c FILE, set XBUS_CONFIG")


def test_the_environment_names_the_configuration(tmp_path: Path, empty_database_url: str) -> None:
    config = write_config(tmp_path / "config.ini", empty_database_url)

    assert run(script("setup_xbusbroker"), env={"XBUS_CONFIG": str(config)}).returncode == 0

    schema.check(empty_database_url)


def test_the_environment_alone_configures_a_broker(tmp_path: Path, empty_database_url: str) -> None:
    environment = {
        "XBUS_DATABASE__SQLALCHEMY_DBURI": empty_database_url,
        "XBUS_ZMQ__FRONTSOCKET": "tcp://127.0.0.1:0",
        "XBUS_ZMQ__BACKSOCKET": "tcp://127.0.0.1:0",
    }
    assert run(script("setup_xbusbroker"), env=environment, cwd=tmp_path).returncode == 0
    ready = tmp_path / "ready.json"
    start = (script("start_xbusbroker"), "--ready-file", ready)
    broker = Process(*start, output=tmp_path / "broker.log", env=environment, cwd=tmp_path)
    try:
        wait_until(ready.exists, "the broker is ready")
        front = json.loads(ready.read_text())["front"]
        assert run(script("xbus"), "health", "--url", front, env=environment).returncode == 0
        assert broker.stop() == 0
    finally:
        broker.kill()


def test_the_log_of_a_broker_is_json_on_request(tmp_path: Path, config: Path) -> None:
    environment = {"XBUS_LOGGING__FORMAT": "json"}
    start = (script("start_xbusbroker"), "-c", config)
    broker = Process(*start, output=tmp_path / "broker.log", env=environment)
    try:
        wait_until(lambda: '"action": "ready"' in broker.text, "the broker is ready")
        assert broker.stop() == 0
    finally:
        broker.kill()

    records = [json.loads(line) for line in broker.text.splitlines()]
    assert all({"time", "level", "logger", "message", "action"} <= record.keys() for record in records)
    ended = run(script("start_xbusbroker"), "-c", config, "--only", "front", env=environment)
    last = json.loads(ended.stderr.splitlines()[-1])
    assert (ended.returncode, last["level"], last["code"]) == (1, "CRITICAL", "bad_configuration")


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_help_explains_every_option(name: str) -> None:
    result = program(name, "--help")

    assert result.returncode == 0
    assert "-c, --config FILE" in result.stdout


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("arguments", [["-c", "config.ini", "--bogus"], ["-c", "config.ini", "surplus"]])
def test_a_wrong_command_line_ends_with_2(name: str, arguments: list[str]) -> None:
    result = program(name, *arguments)

    assert result.returncode == 2
    assert "Usage: " in result.stderr


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_missing_file_is_refused(name: str, tmp_path: Path) -> None:
    result = program(name, "-c", tmp_path / "nothing.ini")

    assert_refused(result, "nothing.ini can't be read (No such file or directory)", "name a readable file")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    assert_refused(
        program("start_xbusbroker", "-c", tmp_path), "can't be read (Is a directory)", "name a readable file"
    )


@pytest.mark.parametrize(
    ("section", "line", "cause", "cure"),
    [
        ("zmq", "frontsokcet = tcp://*:1984", "'frontsokcet' is no option of [zmq]", "there are b2fsocket, backsocket"),
        ("front", "max_item_bytes = lots", "[front] max_item_bytes: 'lots' is not a whole number", "correct it"),
        ("frnt", "", "'frnt' is no section", "there are alerts, back, broker, curve, daemon"),
        ("logging", "configfile = nothing.ini", "[logging] configfile: ", "leave the option out"),
    ],
)
def test_a_wrong_configuration_is_refused(section: str, line: str, cause: str, cure: str, tmp_path: Path) -> None:
    config = tmp_path / "config.ini"
    config.write_text(f"[{section}]\n{line}\n")

    assert_refused(program("start_xbusbroker", "-c", config), cause, cure)
    assert list(tmp_path.iterdir()) == [config]


@pytest.mark.parametrize("arguments", [("setup_xbusbroker",), ("start_xbusbroker", "--start-timeout", "0")])
def test_an_unreachable_database_ends_it_with_3(arguments: tuple[str, ...], tmp_path: Path) -> None:
    config = write_config(tmp_path / "config.ini", "postgresql://xbus:secret@127.0.0.1:1/xbus")

    result = program(*arguments, "-c", config)

    assert_refused(result, "Connection refused", "see that the database runs and that sqlalchemy.dburi is right", 3)
    assert "secret" not in result.stdout + result.stderr


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_database_that_is_away_is_waited_for_until_the_time_is_over(name: str, tmp_path: Path) -> None:
    config = write_config(tmp_path / "config.ini", "postgresql://xbus:secret@127.0.0.1:1/xbus")

    result = program(name, "-c", config, "--start-timeout", "1.5")

    lines = result.stderr.splitlines()
    assert [line for line in lines if "the database is away, trying again in 1 s: " in line]
    assert "Connection refused" in lines[0]
    assert lines[-1].startswith(f"{name}: the database can't do its work now")
    assert result.returncode == 3


@pytest.mark.parametrize("options", [[], ["--drill"]])
def test_a_broker_that_waits_for_its_database_can_be_stopped(options: list[str], tmp_path: Path) -> None:
    config = write_config(tmp_path / "config.ini", "postgresql://xbus:secret@127.0.0.1:1/xbus")
    broker = Process(script("start_xbusbroker"), "-c", config, *options, output=tmp_path / "log")
    try:
        wait_until(lambda: "trying again" in broker.text, "it waits")
        assert broker.stop() == 0
        assert "Traceback" not in broker.text
    finally:
        broker.kill()


def test_a_database_that_is_not_set_up_is_refused(tmp_path: Path, empty_database_url: str) -> None:
    config = write_config(tmp_path / "config.ini", empty_database_url)

    refused = program("start_xbusbroker", "-c", config)
    assert_refused(refused, "the database is not set up", "run setup_xbusbroker with the same configuration")


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_database_of_a_newer_program_is_refused(name: str, config: Path, database_url: str) -> None:
    with writing(database_url) as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
        connection.exec_driver_sql("UPDATE configuration SET oldest_schema = '9999'")

    assert_refused(program(name, "-c", config), "this program is older than the database", "install the newer version")


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_database_of_an_unreleased_version_is_refused(name: str, config: Path, database_url: str) -> None:
    with writing(database_url) as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0043'")

    assert_refused(program(name, "-c", config), "the journal is of an unreleased version", "run xbus export")


def test_setup_leaves_a_database_of_something_else_alone(tmp_path: Path, empty_database_url: str) -> None:
    with writing(empty_database_url) as connection:
        connection.exec_driver_sql("CREATE TABLE role (id INTEGER)")
    config = write_config(tmp_path / "config.ini", empty_database_url)

    assert_refused(program("setup_xbusbroker", "-c", config), "tables of another program (role)", "database of its own")
