"""Databases to measure with, each thrown away afterwards."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeAlias

from tests.support import postgres
from xbus.broker.journal.database import schema

Databases: TypeAlias = Callable[[], AbstractContextManager[str]]
"""Makes databases of one kind, with the bus's tables: each is there, under its SQLAlchemy URL, within a ``with``."""


@contextmanager
def databases(kind: str) -> Iterator[Databases]:
    """Databases of a kind.

    Raises:
        NotFound: there is no PostgreSQL on this machine.
    """
    with KINDS[kind]() as of_kind:
        yield of_kind


@contextmanager
def _sqlite() -> Iterator[Databases]:
    @contextmanager
    def database() -> Iterator[str]:
        with tempfile.TemporaryDirectory(prefix="xbus-benchmark-") as folder:
            url = f"sqlite:///{Path(folder) / 'xbus.db'}"
            schema.upgrade(url)
            yield url

    yield database


@contextmanager
def _postgresql() -> Iterator[Databases]:
    with postgres.server(on_disk=True) as server:
        yield of_server(server)


def of_server(server: postgres.Server) -> Databases:
    """Databases on a PostgreSQL server."""

    @contextmanager
    def database() -> Iterator[str]:
        url = server.create()
        try:
            yield url
        finally:
            server.drop(url)

    return database


KINDS: Mapping[str, Callable[[], AbstractContextManager[Databases]]] = {"sqlite": _sqlite, "postgresql": _postgresql}
