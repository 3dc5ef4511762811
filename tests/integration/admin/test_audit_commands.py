"""``xbus audit``: an operator sees who did what, and verifies it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import CliRunner, Result

from tests.support.bus import add_bus
from tests.support.daemon import write_config
from xbus import model
from xbus.admin.cli import main
from xbus.broker.journal.audit import person
from xbus.broker.journal.database.connection import writing


@pytest.fixture
def config(database_url: str, tmp_path: Path) -> Path:
    add_bus(database_url, {"test_event": {"c": []}}, {"c": 1})
    return write_config(tmp_path / "config.ini", database_url)


def xbus(*arguments: str | Path, answer: str = "") -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], input=answer)


def listed(config: Path, *options: str) -> Sequence[dict[str, Any]]:
    result = xbus("audit", "list", "-c", config, "-o", "json", "--limit", "1000", *options)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_what_commands_do_is_listed_and_verified(config: Path) -> None:
    assert xbus("pause", "role", "c_1", "--reason", "moving house", "-c", config).exit_code == 0
    assert xbus("password", "role", "c_1", "--stdin", "-c", config, answer="hush hush\n").exit_code == 0

    password, pause = listed(config)[:2]
    assert (password["action"], password["object"], password["who"]) == ("password_set", 'role "c_1"', person())
    assert (pause["action"], pause["reason"], pause["row"]) == ("paused", "moving house", None)
    assert "hush" not in json.dumps(listed(config))

    verified = xbus("audit", "verify", "-c", config)
    assert (verified.exit_code, "Nobody has changed them." in verified.output) == (0, True)
    assert listed(config)[0]["row"] == len(listed(config))
    assert [row["action"] for row in listed(config, "--action", "paused")] == ["paused"]
    assert [row["object"] for row in listed(config, "--object", "c_1", "--since", "1h")][:2] == ['role "c_1"'] * 2
    shown = xbus("audit", "list", "-c", config, "--limit", "1").output.splitlines()
    assert shown[0].split()[:4] == ["ROW", "AT", "WHO", "FROM"]
    assert "password_set" in shown[1]
    assert shown[2] == f"There may be more: --before {listed(config)[0]['row']}"


def test_a_missing_end_is_found_by_a_noted_head(config: Path) -> None:
    head = xbus("audit", "verify", "-c", config).output.splitlines()[-1].removeprefix("Head: ")
    assert xbus("audit", "verify", "-c", config, "--head", head).exit_code == 0
    number, _, hashed = head.partition(":")

    other = f"{number}:{hashed[::-1]}"
    refused = xbus("audit", "verify", "-c", config, "--head", other)
    assert refused.exit_code == 1
    assert f"row {number} with the noted hash is missing" in refused.output
    assert xbus("audit", "verify", "-c", config, "--head", "17").exit_code == 2


def test_a_change_is_named(config: Path, database_url: str) -> None:
    xbus("audit", "verify", "-c", config)
    with writing(database_url) as connection:
        if connection.dialect.name == "sqlite":
            connection.execute(sa.text("DROP TRIGGER audit_unchanged"))
        else:
            connection.execute(sa.text("ALTER TABLE audit DISABLE TRIGGER USER"))
        connection.execute(sa.update(model.audit).where(model.audit.c.number == 2).values(who="eve"))

    found = xbus("audit", "verify", "-c", config)
    assert (found.exit_code, found.output.startswith("row 2 was changed")) == (1, True)
    assert json.loads(xbus("audit", "verify", "-c", config, "--json").output)["faults"] != []


def test_old_rows_are_cut_after_a_yes(config: Path) -> None:
    xbus("audit", "verify", "-c", config)
    number = len(listed(config))
    assert xbus("audit", "cut", "--before", "1d", "--reason", "old", "-c", config).output == "Nothing is so old.\n"
    cut = ("audit", "cut", "--before", "2100-01-01", "--reason", "too many", "-c", config)
    assert xbus(*cut, answer="n\n").exit_code != 0
    assert len(listed(config)) == number
    done = xbus(*cut, answer="y\n")
    assert f"Removed {number} rows." in done.output
    assert [row["action"] for row in listed(config)] == ["audit_cut"]
    assert xbus("audit", "verify", "-c", config).exit_code == 0
