"""Opens the database of an xbus.broker 0.2.0 so that nothing can be written to it.

Its address may hold a password, and what a driver says of a malformed one may quote it: such words are not passed on.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg2
import sqlalchemy as sa
from psycopg2.extensions import parse_dsn
from sqlalchemy import event, exc
from sqlalchemy.pool import ConnectionPoolEntry, NullPool

from xbus.broker.journal.legacy_import.tables import TABLES
from xbus.errors import ConfigurationError, JournalUnavailable

CONNECT_SECONDS = 5

MOST_NAMED = 3
"""The most missing tables and columns that an error names."""

_FORMS = "write it as postgresql://user:password@host/name or as host=... dbname=... user=..."


@contextmanager
def reading_legacy(address: str) -> Iterator[sa.Connection]:
    """Connect to the old database in a transaction that only reads, and sees one moment of it.

    Args:
        address: a URL, ``postgresql://user:password@host:port/name`` with or without a driver's name, or the keywords
            of PostgreSQL, ``host=... dbname=...``. Missing parts come from PostgreSQL's variables and files.

    Raises:
        ConfigurationError: the address is invalid, or the database is not one of xbus.broker 0.2.0.
        JournalUnavailable: the database can't be reached.
    """
    parameters = _parameters(address)
    engine = sa.create_engine("postgresql+psycopg2://", connect_args=parameters, poolclass=NullPool)
    event.listen(engine, "connect", _forbid_writing)
    try:
        with _told_as_errors_of_ours(), engine.connect() as connection, connection.begin():
            _check(connection)
            yield connection
    finally:
        engine.dispose()


def _parameters(address: str) -> dict[str, object]:
    scheme, separator, rest = address.partition("://")
    if not separator:
        found = _of_keywords(address)
    elif scheme.partition("+")[0] in ("postgres", "postgresql"):
        found = _of_url(rest)
    else:
        raise ConfigurationError("the old database's address is not one of PostgreSQL", _FORMS)
    return {"connect_timeout": CONNECT_SECONDS, **found}


def _of_keywords(address: str) -> dict[str, object]:
    try:
        return parse_dsn(address)
    except psycopg2.Error:
        raise ConfigurationError("the old database's address can't be read", _FORMS) from None


def _of_url(rest: str) -> dict[str, object]:
    if rest.partition("?")[0].count("@") > 1:
        raise ConfigurationError("the old database's address has more than one @", "write an @ of the password as %40")
    if any(map(str.isspace, rest)):
        raise ConfigurationError("the old database's address can't be read", _FORMS)
    try:
        # As in xbus.config: where a reader with interpolation took it from, a percent sign is doubled.
        url = sa.make_url(f"postgresql://{rest.replace('%%', '%')}")
    except (exc.ArgumentError, ValueError):
        raise ConfigurationError("the old database's address can't be read", _FORMS) from None
    query = {key: value if isinstance(value, str) else ",".join(value) for key, value in url.query.items()}
    return {**url.translate_connect_args(username="user", database="dbname"), **query}


def _forbid_writing(connection: Any, _: ConnectionPoolEntry) -> None:
    connection.set_session(readonly=True, isolation_level="REPEATABLE READ")
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")
    connection.commit()


def _check(connection: sa.Connection) -> None:
    """Make sure that all tables and columns are there."""
    columns = sa.text(
        "SELECT attname FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid"
        " WHERE relname = :name AND pg_table_is_visible(attrelid) AND attnum > 0 AND NOT attisdropped"
    )
    missing: list[str] = []
    for table in TABLES:
        present = set(connection.execute(columns, {"name": table.name}).scalars())
        wanted = [column.name for column in table.columns]
        missing += [f"{table.name}.{name}" for name in wanted if name not in present] if present else [table.name]
    if missing:
        others = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
        raise ConfigurationError(
            f"this is not a database of xbus.broker 0.2.0 (it has no {', '.join(missing[:MOST_NAMED])}{others})",
            "give the address in the old broker's configuration; bring an older one to 0.2.0 first",
            code="not_legacy",
        )


@contextmanager
def _told_as_errors_of_ours() -> Iterator[None]:
    try:
        yield
    except (exc.OperationalError, exc.InterfaceError) as error:
        raise JournalUnavailable(
            f"the old database can't be reached ({_first_line(error)})",
            "see that it runs and that its address is right",
        ) from None
    except exc.DBAPIError as error:
        raise ConfigurationError(
            f"the old database can't be read ({_first_line(error)})",
            "see that the address is right and that its user may read all tables",
        ) from None
    except UnicodeDecodeError:
        raise ConfigurationError("the old database has text that is not in its encoding", "correct it there") from None


def _first_line(error: exc.DBAPIError) -> str:
    lines = str(error.orig).strip().splitlines()
    return lines[0] if lines else type(error.orig).__name__
