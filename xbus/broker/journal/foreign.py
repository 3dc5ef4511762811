"""Rows of somebody else's database, which a data set is compared with."""

from collections.abc import Iterator, Sequence
from typing import Any

from xbus.broker.journal.connection import connected

PAGE_ROWS = 10_000


def read_foreign(url: str, table: str) -> Iterator[tuple[Sequence[str], list[Sequence[Any]]]]:
    """The rows of a table, page by page, each with the names of the columns.

    Args:
        url: an SQLAlchemy URL of SQLite or PostgreSQL.
        table: its name, with the schema's before it if need be, or a query in brackets.

    Returns:
        At least one page, of no rows where there are none.

    Raises:
        JournalUnavailable: the database can't be reached.
        JournalError: it has no such table, or the query is wrong.
        ConfigurationError: the URL is of another database.
    """
    query = f"{table} AS wanted" if table.startswith("(") else _quoted(table)
    with connected(url) as connection, connection.begin():
        # As it stands: a colon or a per cent sign in a query is no parameter.
        plain = connection.execution_options(stream_results=True, no_parameters=True)
        result = plain.exec_driver_sql(f"SELECT * FROM {query}")
        names = tuple(result.keys())
        yield names, [tuple(row) for row in result.fetchmany(PAGE_ROWS)]
        while page := result.fetchmany(PAGE_ROWS):
            yield names, [tuple(row) for row in page]


def _quoted(table: str) -> str:
    return ".".join(f'"{part.replace(chr(34), chr(34) * 2)}"' for part in table.split("."))
