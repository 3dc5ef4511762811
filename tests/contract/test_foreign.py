"""Rows of somebody else's database."""

import pytest

from xbus.broker.journal.foreign import read_foreign
from xbus.broker.journal.journal import Journal
from xbus.errors import JournalError


async def test_a_query_is_carried_out_as_it_stands(shared_url: str, shared_journal: Journal) -> None:
    ((names, rows),) = read_foreign(shared_url, "(SELECT 'at :noon' AS told, '10%(x)s' AS part)")
    assert (tuple(names), rows) == (("told", "part"), [("at :noon", "10%(x)s")])


async def test_a_table_without_rows_has_columns(shared_url: str, shared_journal: Journal) -> None:
    ((names, rows),) = read_foreign(shared_url, "archive_run")
    assert "lease_until" in names
    assert rows == []


async def test_a_table_that_is_not_there_is_told(shared_url: str, shared_journal: Journal) -> None:
    with pytest.raises(JournalError):
        list(read_foreign(shared_url, "no_such_table"))
