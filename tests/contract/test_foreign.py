"""Rows of somebody else's database."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from xbus.broker.journal.database.foreign import read_foreign
from xbus.broker.journal.journal import Journal
from xbus.errors import JournalError


async def test_a_query_is_carried_out_as_it_stands(shared_url: str, shared_journal: Journal) -> None:
    ((names, rows),) = read_foreign(shared_url, "(SELECT 'at :noon' AS told, '10%(x)s' AS part)")
    assert (tuple(names), rows) == (("told", "part"), [("at :noon", "10%(x)s")])


async def test_a_table_without_rows_has_columns(shared_url: str, shared_journal: Journal) -> None:
    ((names, rows),) = read_foreign(shared_url, "archive_run")
    assert "lease_until" in names
    assert rows == []


async def test_the_short_name_of_postgresql_means_the_driver_that_is_there(
    shared_url: str, shared_journal: Journal
) -> None:
    short = shared_url.replace("postgresql+psycopg2://", "postgresql://")
    ((names, _),) = read_foreign(short, "archive_run")
    assert "lease_until" in names


def test_an_sqlite_file_stays_as_it_was(tmp_path: Path) -> None:
    """Ours are switched to writing ahead when they are opened; whose this is may not want that."""
    file = tmp_path / "odd name.db"
    with closing(sqlite3.connect(file)) as database:
        database.execute("CREATE TABLE orders (id INT)")
        database.execute("INSERT INTO orders VALUES (1)")
        database.commit()
    before = file.read_bytes()

    ((names, rows),) = read_foreign(f"sqlite:///{file}", "orders")

    assert (tuple(names), rows) == (("id",), [(1,)])
    assert file.read_bytes() == before


async def test_a_table_that_is_not_there_is_told(shared_url: str, shared_journal: Journal) -> None:
    with pytest.raises(JournalError):
        list(read_foreign(shared_url, "no_such_table"))
