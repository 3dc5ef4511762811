"""Each session of the journal's database is made in one place, by whose rules it is ended."""

import ast
from collections.abc import Iterator

import pytest

from tests.support.sources import modules_with

FOLDERS = ("xbus", "spark_worker", "alembic")

MAKERS = ("create_engine", "connect", "raw_connection", "engine_from_config", "create_async_engine")

DRIVERS = ("psycopg2", "psycopg", "sqlite3")

OTHERS = {
    ("xbus/broker/journal/configuration/checked.py", "sa.create_engine"): "a copy in memory, without wrong rows",
    ("xbus/broker/journal/database/foreign.py", "sa.create_engine"): "a file of somebody else, which is only read",
    ("xbus/broker/journal/legacy_import/source.py", "sa.create_engine"): "the database of a 0.2.0, which is only read",
    ("xbus/emitter/outbox/file.py", "sqlite3.connect"): "the outbox is a file of its own",
}

PLACE = "xbus/broker/journal/database/engine.py"


def calls() -> Iterator[tuple[str, str]]:
    """Each call that makes an engine or a session past SQLAlchemy's engine, by its file."""
    words = ("create_engine", "create_async_engine", "engine_from_config", "raw_connection", *DRIVERS)
    for path, module in modules_with(words, *FOLDERS):
        for node in ast.walk(module):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MAKERS:
                written = ast.unparse(node.func)
                if written.split(".")[0] in ("sa", "sqlalchemy", *DRIVERS):
                    yield path, written


def test_engines_and_connections_are_made_in_one_place() -> None:
    made = set(calls())
    assert {written for place, written in made if place == PLACE} == {"sa.create_engine"}
    assert {(place, written) for place, written in made if place != PLACE} == set(OTHERS)


@pytest.mark.parametrize("module", ["psycopg2", "sqlite3"])
def test_a_driver_makes_no_connection_by_another_name(module: str) -> None:
    """``from psycopg2 import connect`` would not be seen above."""
    for path, tree in modules_with((f"from {module} ", "from sqlalchemy "), *FOLDERS):
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module in (module, "sqlalchemy"):
                assert not {*MAKERS} & {alias.name for alias in node.names}, path
