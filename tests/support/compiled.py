"""Lets all engines of a test process share the SQL that SQLAlchemy has compiled.

Each test has a database of its own, so an engine of its own, which compiles hundreds of statements anew: most of the
time of a small test. A compiled statement belongs to a dialect, and the dialects of one kind are alike within a run.
"""

from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql.psycopg2 import PGDialect_psycopg2
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import LRUCache

MOST_STATEMENTS = 5_000


def share(patch: pytest.MonkeyPatch) -> None:
    """Have each engine take compiled statements from one cache, from its first connection on."""
    cache: Any = LRUCache(MOST_STATEMENTS)

    @sa.event.listens_for(sa.Engine, "engine_connect")
    def take_shared(connection: sa.Connection) -> None:
        connection.engine._compiled_cache = cache

    for kind in (PGDialect_psycopg2, SQLiteDialect_pysqlite):
        patch.setattr(kind, "__eq__", lambda one, other: type(one) is type(other))
        patch.setattr(kind, "__hash__", lambda one: hash(type(one)))
