"""Makes databases of the dumps of an earlier version."""

import io
import json
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

import psycopg2
import sqlalchemy as sa

from xbus.broker.journal.database import schema

DUMPS = Path(__file__).parent / "schema_0012"
NEXT_MIGRATION = "0013"


def restore(url: str, scratch: Path) -> None:
    """Make a journal of version 0012 in an empty database.

    Args:
        scratch: a folder for files of its own.
    """
    if url.startswith("sqlite"):
        restore_sqlite(Path(sa.make_url(url).database or ""), "sqlite.sql")
    else:
        _restore_postgresql(url, scratch)


def restore_sqlite(path: Path, dump: str) -> None:
    """Make an SQLite file of a dump."""
    connection = sqlite3.connect(path)
    try:
        connection.executescript((DUMPS / dump).read_text(encoding="utf-8"))
    finally:
        connection.close()


def envelopes(url: str) -> Mapping[str, Sequence[str]]:
    """The ids of its envelopes, by what has become of them."""
    kind = "sqlite" if url.startswith("sqlite") else "postgresql"
    made: dict[str, dict[str, list[str]]] = json.loads((DUMPS / "envelopes.json").read_text(encoding="utf-8"))
    return made[kind]


def _restore_postgresql(url: str, scratch: Path) -> None:
    schema.upgrade(url, _earlier_migrations(scratch))
    tables: dict[str, str] = json.loads((DUMPS / "postgresql.json").read_text(encoding="utf-8"))
    connection = psycopg2.connect(url.replace("+psycopg2", ""))
    try:
        with connection, connection.cursor() as cursor:
            for name, rows in tables.items():
                cursor.execute(f'DELETE FROM "{name}"')
                cursor.copy_expert(f'COPY "{name}" FROM STDIN', io.StringIO(rows))
            cursor.execute("SELECT table_name FROM information_schema.columns WHERE column_default LIKE 'nextval%'")
            for (name,) in cursor.fetchall():
                counted = f"pg_get_serial_sequence('\"{name}\"', 'id')"
                cursor.execute(f'SELECT setval({counted}, coalesce(max(id), 1), max(id) IS NOT NULL) FROM "{name}"')
    finally:
        connection.close()


def _earlier_migrations(scratch: Path) -> Path:
    folder = scratch / "migrations_0012"
    shutil.copytree(schema.PLACES[-1], folder, ignore=shutil.ignore_patterns("__pycache__"))
    for script in (folder / "versions").glob("*.py"):
        if script.name >= NEXT_MIGRATION:
            script.unlink()
    return folder
