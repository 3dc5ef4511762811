"""Lets all engines of a test process share the SQL that SQLAlchemy has compiled.

Each test has a database of its own, so an engine of its own, which compiles hundreds of statements anew: most of the
time of a small test. A compiled statement belongs to a dialect, and the dialects of one kind are alike within a run.
"""

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql.psycopg2 import PGDialect_psycopg2
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import LRUCache

MOST_STATEMENTS = 5_000


def new_cache() -> Any:
    """Make an empty cache, large enough for all statements of the tests."""
    return LRUCache(MOST_STATEMENTS)


def share(set_attribute: Callable[[object, str, object], object], cache: Any) -> None:
    """Have each engine take compiled statements from one cache, from its first connection on.

    Args:
        set_attribute: as ``setattr`` does for good, and ``MonkeyPatch.setattr`` until it is undone.
        cache: a cache of SQLAlchemy's.
    """

    @sa.event.listens_for(sa.Engine, "engine_connect")
    def take_shared(connection: sa.Connection) -> None:
        connection.engine._compiled_cache = cache

    for kind in (PGDialect_psycopg2, SQLiteDialect_pysqlite):
        set_attribute(kind, "__eq__", lambda one, other: type(one) is type(other))
        set_attribute(kind, "__hash__", lambda one: hash(type(one)))
