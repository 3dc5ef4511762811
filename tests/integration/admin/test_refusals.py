"""What ``xbus`` refuses, with the line or the cause, and the exit code.

Nothing here gets as far as a statement that databases differ in, so one kind of database is enough.
"""

from pathlib import Path

import pytest

from tests.integration.admin.conftest import GOOD, Xbus, version
from tests.support.daemon import write_config

GRAPH = """\
[[service]]
name = "worker"
kind = "worker"
[[service]]
name = "other"
kind = "worker"
[[service]]
name = "consumer"
kind = "consumer"
[[event_type]]
name = "flights"
"""
"""Nodes are to be added; those of ``node()`` begin in line 12."""


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    return sqlite_url


def node(name: str, service: str, *to: str) -> str:
    return f'[[event_type.node]]\nname = "{name}"\nservice = "{service}"\nto = {[*to]}\n'


def test_every_error_is_told_with_its_line_and_nothing_is_changed(xbus: Xbus, bus: Path, database_url: str) -> None:
    wrong = GOOD.replace('kind = "worker"', 'kind = "robot"').replace(
        'event_types = ["flights"]', 'event_types = ["x"]'
    )
    wrong = wrong.replace('service = "flight_store"\n\n[[emitter_profile]]', 'service = "gone"\n\n[[emitter_profile]]')
    bus.write_text(wrong)
    before = version(database_url)
    result = xbus("apply", bus)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        f'{bus}:15: kind must be "worker" or "consumer" or "runner" or "gateway";'
        " a reader is a table of its own, [[reader]]",
        f'{bus}:27: role "flight_store_1": there is no service "gone"',
        f'{bus}:31: emitter_profile "airport": there is no event_type "x"',
        f"xbus: {bus} was not applied, nothing was changed: correct the 3 problems above [bad_bus_file]",
    ]
    assert version(database_url) == before


def test_a_file_that_is_no_toml_is_told_with_its_line(xbus: Xbus, bus: Path) -> None:
    bus.write_text('[[service]]\nname = "x\n')
    result = xbus("apply", bus)
    assert result.exit_code == 1
    assert result.stderr.splitlines()[0].startswith(f"{bus}:2: this is not TOML")


@pytest.mark.parametrize(
    ("nodes", "told"),
    [
        (
            node("a", "worker", "b") + node("b", "other", "a", "c") + node("c", "consumer"),
            'nodes lead back to themselves: "a", "b"',
        ),
        (
            node("c", "consumer") + node("a", "worker", "b") + node("b", "other", "a"),
            'no start node leads to "a", "b"',
        ),
        (node("a", "worker"), 'node "a" is of the worker service "worker" but leads to no node'),
        (
            node("a", "consumer", "b") + node("b", "consumer"),
            'node "a" is of the consumer service "consumer" but leads',
        ),
        (
            node("a", "worker", "b") + node("b", "worker", "c") + node("c", "consumer"),
            'worker service "worker" is twice on a path: by node "a" and by node "b"',
        ),
        (
            node("a", "worker", "b")
            + node("b", "other", "e")
            + node("c", "other", "d")
            + node("d", "worker", "e")
            + node("e", "consumer"),
            'worker services would wait for each other\'s answers: "other", "worker"',
        ),
        (node("a", "worker", "gone"), 'node "a" leads to "gone", which is not a node of this event type'),
    ],
)
def test_a_graph_that_can_not_run_is_refused_by_name(xbus: Xbus, bus: Path, nodes: str, told: str) -> None:
    bus.write_text(GRAPH + nodes)
    result = xbus("apply", bus)
    assert result.exit_code == 1
    assert f'{bus}:10: event_type "flights": {told}' in result.stderr
    assert xbus("export").stdout == ""


def test_a_missing_service_hides_no_fault_of_its_graph(xbus: Xbus, bus: Path) -> None:
    bus.write_text(GRAPH + node("a", "gone", "b") + node("b", "other", "a") + node("c", "lost"))
    told = xbus("apply", bus).stderr
    assert 'event_type "flights": nodes lead back to themselves: "a", "b"' in told
    assert told.count("there is no service") == 2


def test_an_unknown_service_of_a_node_is_told_in_its_line(xbus: Xbus, bus: Path) -> None:
    bus.write_text(GRAPH + node("a", "gone"))
    assert f'{bus}:14: event_type "flights", node "a": there is no service "gone"' in xbus("apply", bus).stderr


@pytest.mark.parametrize(
    ("arguments", "stdin", "exit_code", "told"),
    [
        (["role", "nobody", "--stdin"], "x\n", 1, 'xbus: there is no role "nobody"'),
        (["emitter", "flight_store_1", "--stdin"], "x\n", 1, 'xbus: there is no emitter "flight_store_1"'),
        (["role", "flight_store_1", "--stdin"], "\n", 1, "xbus: standard input has no password"),
        (["role", "flight_store_1", "--file", "gone"], "", 1, "xbus: password file gone can't be read (No such file"),
        (["role", "flight_store_1", "--file", "gone", "--stdin"], "x\n", 2, "exclude each other"),
        (["wizard", "flight_store_1"], "x\n", 2, "'wizard' is not one of"),
    ],
)
def test_a_password_that_can_not_be_set(
    xbus: Xbus, bus: Path, arguments: list[str], stdin: str, exit_code: int, told: str
) -> None:
    xbus("apply", bus)
    result = xbus("password", *arguments, stdin=stdin)
    assert result.exit_code == exit_code
    assert told in result.stderr


def test_a_configuration_must_be_named(xbus: Xbus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XBUS_CONFIG")
    result = xbus("export")
    assert result.exit_code == 1
    assert result.stderr == (
        "xbus: no configuration file is named: give -c FILE, set XBUS_CONFIG, or set options as in "
        "XBUS_DATABASE__SQLALCHEMY_DBURI [bad_configuration]\n"
    )


def test_the_command_line_goes_before_the_environment(xbus: Xbus, tmp_path: Path) -> None:
    result = xbus("export", "-c", tmp_path / "other.ini")
    assert result.exit_code == 1
    assert "other.ini can't be read (No such file or directory)" in result.stderr


def test_a_database_that_is_not_set_up_is_refused(xbus: Xbus, tmp_path: Path) -> None:
    config = write_config(tmp_path / "new.ini", f"sqlite:///{tmp_path}/new.db")
    result = xbus("export", "-c", config)
    assert result.exit_code == 1
    said = "the database is not set up: run setup_xbusbroker with the same configuration [bad_schema]"
    assert result.stderr == f"xbus: {said}\n"
    assert not (tmp_path / "new.db").exists()


def test_a_database_that_can_not_be_reached_may_be_tried_again(xbus: Xbus, tmp_path: Path) -> None:
    config = write_config(tmp_path / "gone.ini", "postgresql://nobody@127.0.0.1:1/gone")
    result = xbus("export", "-c", config)
    assert result.exit_code == 3
    assert len(result.stderr.splitlines()) == 1
    assert "see that the database runs" in result.stderr


@pytest.mark.parametrize("command", ["apply", "export", "password", "emit", "recipient run", "envelope list"])
def test_every_command_reads_the_configuration_and_explains_itself(xbus: Xbus, command: str) -> None:
    result = xbus(*command.split(), "--help")
    assert result.exit_code == 0
    assert "XBUS_CONFIG" in result.stdout


def test_the_program_tells_its_version_and_exit_codes(xbus: Xbus) -> None:
    assert xbus("--version").stdout.startswith("xbus, version ")
    assert "Exit codes:" in xbus("--help").stdout
