"""Errors of the database reach logs and reports of exceptions, which must not have what the bus carries."""

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from xbus.broker.journal.database.engine import create_engine


def test_an_error_of_the_database_tells_nothing_of_items() -> None:
    """PostgreSQL may quote a statement that it can't parse; all of ours can be parsed."""
    engine = create_engine("sqlite://")
    with engine.connect() as connection, pytest.raises(DBAPIError) as error:
        connection.execute(sa.text("INSERT INTO no_table VALUES (:item)"), {"item": "a secret"})
    engine.dispose()
    assert "no_table" in str(error.value)
    assert "a secret" not in str(error.value)
