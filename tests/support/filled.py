"""Fills the databases of tests: SQLite files that want the same are configured once, and copied from then on.

To configure a small bus takes some 200 statements, more time than most tests need for what they are about.
"""

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from xbus.broker.journal.database.connection import writing
from xbus.broker.journal.database.engine import parse_url
from xbus.testing.images import empty_image

MOST_IMAGES = 16
"""Tests of a module want the same; more images would take memory, half a megabyte each."""


class Images:
    """Keeps what came of files that were filled, the newest ones."""

    def __init__(self) -> None:
        self._images: dict[tuple[bytes, str], bytes] = {}

    def fill(self, url: str, wanted: str, fill: Callable[[], object]) -> None:
        """Fill a database, or copy what came of a file that held the same and wanted the same.

        Args:
            url: the database's SQLAlchemy URL.
            wanted: tells apart what is filled in.
            fill: does it.
        """
        path = _closed_file(url)
        if path is None:
            fill()
            return
        key = hashlib.sha256(path.read_bytes()).digest(), wanted
        if key in self._images:
            path.write_bytes(self._images[key])
            return
        fill()
        if _closed_file(url) is not None:
            self._images[key] = path.read_bytes()
        if len(self._images) > MOST_IMAGES:
            del self._images[next(iter(self._images))]


def _closed_file(url: str) -> Path | None:
    """The file of a database on SQLite that nobody has open."""
    name = parse_url(url).database
    if not url.startswith("sqlite") or not name or Path(f"{name}-wal").exists():
        return None
    return Path(name)


IMAGES = Images()
"""Those of a process of tests."""


def new_sqlite(path: Path) -> str:
    """Make an SQLite file with the bus's schema; its SQLAlchemy URL.

    The file is a copy: to make the tables anew takes a third of a second.
    """
    path.write_bytes(_empty_file())
    return f"sqlite:///{path}"


@cache
def _empty_file() -> bytes:
    """Give a file with the bus's schema as its first connection leaves it, which adds a write-ahead log."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "xbus.db"
        path.write_bytes(empty_image())
        with writing(f"sqlite:///{path}"):
            pass
        return path.read_bytes()
