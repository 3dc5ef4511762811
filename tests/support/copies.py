"""Copies of a journal, made as its operators make them while the broker runs."""

import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from tests.support import postgres


def copy_journal(url: str, folder: Path, server: postgres.Server | None) -> str:
    """Copy a database.

    Args:
        url: the SQLAlchemy URL of the original.
        folder: where files are put.
        server: for PostgreSQL the one that gets the copy.

    Returns:
        The URL of the copy.
    """
    if url.startswith("sqlite"):
        return _vacuum_into(url.removeprefix("sqlite:///"), folder / "copy.db")
    assert server is not None
    return _dump_and_restore(url, folder / "xbus.dump", server)


def _vacuum_into(path: str, copy: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("VACUUM INTO ?", [str(copy)])
    return f"sqlite:///{copy}"


def _dump_and_restore(url: str, dump: Path, server: postgres.Server) -> str:
    programs = postgres.find_programs()
    copy = server.create_empty()
    subprocess.run([programs / "pg_dump", "-Fc", "-f", dump, "-d", _plain(url)], check=True)
    subprocess.run([programs / "pg_restore", "--exit-on-error", "-d", _plain(copy), dump], check=True)
    return copy


def _plain(url: str) -> str:
    """A URL as PostgreSQL's own programs take it."""
    return urlunsplit(urlsplit(url)._replace(scheme="postgresql"))
