"""``xbus apply``, ``xbus export`` and ``xbus password`` against a real database."""

from pathlib import Path

import pytest

from tests.integration.admin.conftest import GOOD, Log, Xbus, version
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.log.catalog import read_catalog
from xbus.broker.journal.log.sessions import read_credentials
from xbus.passwords import Passwords


def test_a_file_is_applied(xbus: Xbus, bus: Path, database_url: str) -> None:
    result = xbus("apply", bus)
    assert result.exit_code == 0
    assert 'add event_type "flights"' in result.stdout
    assert f"Applied: the configuration is at version {version(database_url)}." in result.stdout
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


@pytest.mark.parametrize(
    ("edit", "place", "cause"),
    [
        (
            "INSERT INTO bot (name, emitter_id, command) SELECT 'b', min(id), '5' FROM emitter",
            'bot 1 "b"',
            "command is 5, and has to be a JSON list of texts",
        ),
        ("UPDATE event_type SET keep = 'soon' WHERE name = 'flights'", "event_type 1", "keep is no number"),
    ],
)
def test_an_export_leaves_out_a_row_that_can_not_be_read(
    xbus: Xbus, bus: Path, database_url: str, edit: str, place: str, cause: str
) -> None:
    xbus("apply", bus)
    with writing(database_url) as connection:
        if "keep" in edit and connection.dialect.name != "sqlite":
            pytest.skip("PostgreSQL takes no such row")
        connection.exec_driver_sql(edit)
    exported = xbus("export")
    assert (exported.exit_code, exported.stdout.count("[[service]]")) == (0, 2)
    assert f"left out: {place}: {cause}; correct that row, by SQL or with xbus apply" in exported.stderr
    refused = xbus("edit")
    assert refused.exit_code == 1
    assert cause in refused.stderr
    corrected = xbus("apply", bus)
    assert ("flights" in corrected.stdout) == ("keep" in edit)


def test_an_empty_bus_is_exported_as_an_empty_file(xbus: Xbus) -> None:
    assert xbus("export").stdout == ""


def test_no_secret_is_exported(xbus: Xbus, bus: Path) -> None:
    xbus("apply", bus)
    xbus("password", "role", "flight_store_1", "--stdin", stdin="open sesame\n")
    exported = xbus("export").stdout
    assert "argon2" not in exported
    assert "password" not in exported


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
    assert (result.exit_code, "nobody answers the question; give --yes" in result.stderr) == (2, True)
    assert 'remove role "flight_store_1"' in result.stdout
    assert "Remove the entries that are named above?" in result.stdout
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


def test_a_removed_role_that_is_owed_something_goes_only_with_a_word_about_that(xbus: Xbus, log: Log) -> None:
    result = xbus("apply", "--prune", "--yes", "-", stdin="")
    assert result.exit_code == 1
    assert 'remove role "store_1"\n  role "store_1" has not got 1 envelope yet: position' in result.stdout
    assert 'remove role "counter_1"\n  role "counter_1" has not got 2 envelopes yet: positions' in result.stdout
    assert "say --owed keep" in result.stderr
    assert xbus("apply", "--prune", "--yes", "-", stdin="").exit_code == 1
    assert xbus("apply", "--prune", "--yes", "--owed", "keep", "-", stdin="").exit_code == 0


def test_what_no_other_role_can_take_is_not_rerouted(xbus: Xbus, log: Log) -> None:
    result = xbus("apply", "--prune", "--yes", "--owed", "reroute", "-", stdin="")
    assert result.exit_code == 1
    assert "can go to another role of its service" in result.stderr
    assert "nothing" in xbus("apply", "--prune", "--yes", "-", stdin="").stderr


# -- a dry run ---------------------------------------------------------------------------------------------------------


def test_a_dry_run_shows_the_changes_and_makes_none(xbus: Xbus, bus: Path, database_url: str) -> None:
    before = version(database_url)

    result = xbus("apply", "--dry-run", bus)

    assert result.exit_code == 0
    assert 'add event_type "flights"' in result.stdout
    assert result.stdout.endswith("Nothing was changed: this was a dry run.\n")
    assert version(database_url) == before
    assert xbus("export").stdout == ""


def test_a_dry_run_shows_what_is_owed_and_asks_nothing(xbus: Xbus, log: Log, database_url: str) -> None:
    before = version(database_url)

    result = xbus("apply", "--dry-run", "--prune", "-")

    assert result.exit_code == 0
    assert 'remove role "store_1"' in result.stdout
    assert 'role "store_1" has not got 1 envelope yet: position 2' in result.stdout
    assert "To apply it, decide about what is owed: --owed keep, --owed drop, or --owed reroute." in result.stdout
    assert version(database_url) == before
    assert "decide about" not in xbus("apply", "--dry-run", "--prune", "--owed", "drop", "-").stdout
    nobody = xbus("apply", "--dry-run", "--prune", "--owed", "reroute", "-")
    assert (nobody.exit_code, "to another role of its service" in nobody.stderr) == (1, True)


def test_a_dry_run_tells_what_is_wrong(xbus: Xbus) -> None:
    result = xbus("apply", "--dry-run", "-", stdin='[[emitter]]\nlogin = "shop"\nprofile = "shops"\n')

    assert result.exit_code == 1
    assert 'there is no emitter_profile "shops"' in result.stderr


def test_an_unknown_option_proposes_none_that_removes(xbus: Xbus, bus: Path) -> None:
    result = xbus("apply", "--prun", bus)

    assert result.exit_code == 2
    assert "No such option" in result.stderr
    assert "--prune" not in result.stderr
