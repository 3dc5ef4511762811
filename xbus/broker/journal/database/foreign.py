"""Connections to somebody else's database, and rows of it that a data set is compared with."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import sqlalchemy as sa

from xbus.broker.journal.database.connection import check_there, connected
from xbus.broker.journal.database.engine import journal_errors, parse_url

PAGE_ROWS = 10_000


def read_foreign(url: str, table: str) -> Iterator[tuple[Sequence[str], list[Sequence[object]]]]:
    """Read the rows of a table, page by page, each with the names of the columns.

    Args:
        url: an SQLAlchemy URL of SQLite or PostgreSQL.
        table: its name, with the schema's before it if need be, or a query in brackets.

    Returns:
        At least one page, of no rows if the table has none.

    Raises:
        JournalUnavailable: the database can't be reached; for SQLite also if it has no such table.
        JournalError: it has no such table, or the query is wrong.
        ConfigurationError: the URL is of another database.
    """
    query = f"{table} AS wanted" if table.startswith("(") else _quoted(table)
    with reading_foreign(url) as connection, connection.begin():
        # Unchanged: a colon or a per cent sign in a query is no parameter.
        plain = connection.execution_options(stream_results=True, no_parameters=True)
        result = plain.exec_driver_sql(f"SELECT * FROM {query}")
        names = tuple(result.keys())
        yield names, [tuple(row) for row in result.fetchmany(PAGE_ROWS)]
        while page := result.fetchmany(PAGE_ROWS):
            yield names, [tuple(row) for row in page]


@contextmanager
def reading_foreign(url: str) -> Iterator[sa.Connection]:
    """Open a connection that only reads, to a database that is no journal.

    Raises:
        JournalUnavailable: the database can't be reached.
        JournalError: the file does not exist (``no_database``).
        ConfigurationError: the URL is none, or of a database of another kind.
    """
    if parse_url(url).get_backend_name() != "sqlite":
        with connected(url, any_server=True) as connection:
            yield connection
        return
    check_there(url)
    # Not as a journal of ours, which is switched to writing ahead: nothing of this file is to change.
    file = quote(str(Path(parse_url(url).database or "").absolute()))
    engine = sa.create_engine(f"sqlite:///file:{file}?mode=ro&uri=true")
    try:
        with journal_errors(), engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


def _quoted(table: str) -> str:
    return ".".join(f'"{part.replace(chr(34), chr(34) * 2)}"' for part in table.split("."))
