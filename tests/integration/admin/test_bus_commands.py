"""``xbus apply``, ``xbus export`` and ``xbus password`` against a real database."""

from pathlib import Path

import pytest

from tests.integration.admin.conftest import Log, Xbus
from xbus.broker.journal.catalog import read_catalog, read_credentials, read_version
from xbus.broker.journal.connection import reading
from xbus.passwords import Passwords

GOOD = """\
[[event_type]]
name = "flights"

[[event_type.node]]
name = "enrich"
service = "airline_names"
to = ["store"]

[[event_type.node]]
name = "store"
service = "flight_store"

[[service]]
name = "airline_names"
kind = "worker"

[[service]]
name = "flight_store"
kind = "consumer"

[[role]]
login = "airline_names_1"
service = "airline_names"

[[role]]
login = "flight_store_1"
service = "flight_store"

[[emitter_profile]]
name = "airport"
event_types = ["flights"]

[[emitter]]
login = "airport_1"
profile = "airport"
"""

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
def bus(tmp_path: Path) -> Path:
    path = tmp_path / "bus.toml"
    path.write_text(GOOD)
    return path


def version(url: str) -> int:
    with reading(url) as connection:
        return read_version(connection)


def node(name: str, service: str, *to: str) -> str:
    return f'[[event_type.node]]\nname = "{name}"\nservice = "{service}"\nto = {[*to]}\n'


def test_a_file_is_applied(xbus: Xbus, bus: Path, database_url: str) -> None:
    result = xbus("apply", bus)
    assert result.exit_code == 0
    assert 'add event_type "flights"' in result.stdout
    assert "role flight_store_1 can't log in yet: xbus password role flight_store_1" in result.stdout
    with reading(database_url) as connection:
        catalog = read_catalog(connection)
    assert set(catalog.event_types) == {"flights"}
    assert {entry.login for entry in catalog.roles.values()} == {"airline_names_1", "flight_store_1"}


def test_a_file_comes_by_standard_input_too(xbus: Xbus, database_url: str) -> None:
    assert xbus("apply", "-", stdin=GOOD).exit_code == 0
    assert "[[role]]" in xbus("export").stdout


def test_applying_again_changes_nothing_and_says_so(xbus: Xbus, bus: Path, database_url: str) -> None:
    xbus("apply", bus)
    before = version(database_url)
    result = xbus("apply", bus)
    assert result.exit_code == 0
    assert "Nothing to change" in result.stdout
    assert version(database_url) == before


@pytest.mark.parametrize("options", [[], ["--prune"]])
def test_what_is_exported_can_be_applied_and_changes_nothing(
    xbus: Xbus, bus: Path, database_url: str, options: list[str]
) -> None:
    xbus("apply", bus)
    before = version(database_url)
    exported = xbus("export").stdout
    result = xbus("apply", "-", *options, stdin=exported)
    assert "Nothing to change" in result.stdout
    assert version(database_url) == before
    assert xbus("export").stdout == exported


def test_an_empty_bus_is_exported_as_an_empty_file(xbus: Xbus) -> None:
    assert xbus("export").stdout == ""


def test_no_secret_is_exported(xbus: Xbus, bus: Path) -> None:
    xbus("apply", bus)
    xbus("password", "role", "flight_store_1", "--stdin", stdin="open sesame\n")
    exported = xbus("export").stdout
    assert "argon2" not in exported
    assert "password" not in exported


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
        f'{bus}:15: kind must be "worker" or "consumer"',
        f'{bus}:27: role "flight_store_1": there is no service "gone"',
        f'{bus}:31: emitter_profile "airport": there is no event_type "x"',
        f"xbus: {bus} was not applied, nothing was changed: correct the 3 problems above",
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


def test_an_unknown_service_of_a_node_is_told_in_its_line(xbus: Xbus, bus: Path) -> None:
    bus.write_text(GRAPH + node("a", "gone"))
    assert f'{bus}:14: event_type "flights", node "a": there is no service "gone"' in xbus("apply", bus).stderr


def test_an_immediate_reply_is_refused_for_now(xbus: Xbus, bus: Path) -> None:
    bus.write_text('[[event_type]]\nname = "x"\nimmediate_reply = true\n')
    result = xbus("apply", bus)
    assert result.exit_code == 1
    assert f"{bus}:3: " in result.stderr
    assert "immediate replies are not served yet" in result.stderr


def test_what_the_file_does_not_name_stays(xbus: Xbus, bus: Path) -> None:
    xbus("apply", bus)
    exported = xbus("export").stdout
    bus.write_text('[[service]]\nname = "flight_store"\nkind = "consumer"\n')
    assert "Nothing to change" in xbus("apply", bus).stdout
    assert xbus("export").stdout == exported


def test_pruning_says_what_and_asks(xbus: Xbus, bus: Path, database_url: str) -> None:
    xbus("apply", bus)
    before = version(database_url)
    result = xbus("apply", "--prune", "-", stdin="")
    assert result.exit_code == 1
    assert 'remove role "flight_store_1"' in result.stdout
    assert "Remove what is told above?" in result.stdout
    assert version(database_url) == before


def test_pruning_goes_on_when_told_to(xbus: Xbus, bus: Path) -> None:
    xbus("apply", bus)
    empty = bus.with_name("empty.toml")
    empty.write_text("")
    assert xbus("apply", "--prune", empty, stdin="y\n").exit_code == 0
    assert xbus("export").stdout == ""


def test_pruning_does_not_ask_where_it_was_answered(xbus: Xbus, bus: Path) -> None:
    xbus("apply", bus)
    assert xbus("apply", "--prune", "--yes", "-", stdin="").exit_code == 0
    assert xbus("export").stdout == ""


def test_a_password_is_set(xbus: Xbus, bus: Path, database_url: str, tmp_path: Path) -> None:
    xbus("apply", bus)
    secret = tmp_path / "secret"
    secret.write_text("from a file\n")
    assert xbus("password", "emitter", "airport_1", "--file", secret).exit_code == 0
    assert xbus("password", "role", "flight_store_1", "--stdin", stdin="from a pipe\r\n").exit_code == 0
    assert xbus("password", "role", "airline_names_1", stdin="asked\nasked\n").exit_code == 0
    passwords = Passwords()
    with reading(database_url) as connection:
        emitter = read_credentials(connection, "emitter", "airport_1")
        consumer = read_credentials(connection, "role", "flight_store_1")
        worker = read_credentials(connection, "role", "airline_names_1")
    assert emitter is not None
    assert consumer is not None
    assert worker is not None
    assert passwords.verify("from a file", emitter[1])
    assert passwords.verify("from a pipe", consumer[1])
    assert passwords.verify("asked", worker[1])


def test_a_password_is_never_shown(xbus: Xbus, bus: Path) -> None:
    xbus("apply", bus)
    result = xbus("password", "role", "airline_names_1", stdin="open sesame\nopen sesame\n")
    assert "open sesame" not in result.output


@pytest.mark.parametrize(
    ("arguments", "stdin", "exit_code", "told"),
    [
        (["role", "nobody", "--stdin"], "x\n", 1, 'xbus: there is no role "nobody"'),
        (["emitter", "flight_store_1", "--stdin"], "x\n", 1, 'xbus: there is no emitter "flight_store_1"'),
        (["role", "flight_store_1", "--stdin"], "\n", 1, "xbus: standard input holds no password"),
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


def test_a_removed_role_tells_what_it_has_not_got(xbus: Xbus, log: Log) -> None:
    result = xbus("apply", "--prune", "--yes", "-", stdin="")
    assert 'remove role "store_1" (it has not got 1 envelope yet' in result.stdout
    assert 'remove role "counter_1" (it has not got 2 envelopes yet' in result.stdout
