"""The commands for PostgreSQL of docs/backup.md do what the page says; test_docs.py follows those for SQLite."""

import re
from urllib.parse import urlsplit

import pytest
import sqlalchemy as sa

from tests.support import postgres
from tests.support.bus import add_bus
from tests.support.documentation import CHECKOUT, blocks
from xbus import model
from xbus.broker.journal.database import schema
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.database.place import read_place

SHOWN = "postgresql://xbus:password@db.example.com"


@pytest.fixture
def commands() -> list[str]:
    """Those of the page that are PostgreSQL's own, in order."""
    lines = [line for block in blocks(CHECKOUT / "docs" / "backup.md", "sh") for line in block.text.splitlines()]
    return [line for line in lines if not line.startswith("xbus ")]


def test_a_dump_and_a_base_backup_are_made_and_restored(commands: list[str]) -> None:
    with postgres.cluster() as live, postgres.cluster() as other:
        server = live.url.rpartition("/")[0]
        live.run(f"createdb --maintenance-db={live.url} xbus")
        schema.upgrade(f"{server}/xbus")
        add_bus(f"{server}/xbus", {"test_event": {"c": []}})
        for command in commands:
            live.run(command.replace(SHOWN, server))
        assert [command.split()[0] for command in commands] == ["pg_dump", "createdb", "pg_restore", "pg_basebackup"]

        schema.check(f"{server}/xbus_restored")
        other.stop()
        other.become_copy_of(live)
        other.start()
        copies = [f"{server}/xbus_restored", f"{other.url.rpartition('/')[0]}/xbus"]
        assert live.run("cat backup/PG_VERSION") == other.run("cat data/PG_VERSION")
        for copy in copies:
            assert logins(copy) == logins(f"{server}/xbus") == ["c_1"]
            assert place(copy) != place(f"{server}/xbus")


def test_the_page_shows_addresses_of_one_server(commands: list[str]) -> None:
    hosts = {urlsplit(url).hostname for command in commands for url in re.findall(r"postgresql://\S+", command)}
    assert hosts == {"db.example.com"}


def logins(url: str) -> list[str]:
    with reading(url) as connection:
        return list(connection.execute(sa.select(model.role.c.login)).scalars())


def place(url: str) -> str:
    with reading(url) as connection:
        return read_place(connection)
