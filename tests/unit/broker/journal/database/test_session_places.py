"""Each session of the journal's database is made in one place, by whose rules it is ended."""

import ast
from collections.abc import Iterator

import pytest

from tests.support.sources import CHECKOUT, modules_with

FOLDERS = ("xbus", "spark_worker", "alembic")

MAKERS = ("create_engine", "connect", "raw_connection", "engine_from_config", "create_async_engine")

DRIVERS = ("psycopg2", "psycopg", "sqlite3")

OTHERS = {
    ("xbus/broker/journal/configuration/checked.py", "sa.create_engine"): "a copy in memory, without wrong rows",
    ("xbus/broker/journal/database/foreign.py", "sa.create_engine"): "a file of somebody else, which is only read",
    ("xbus/broker/journal/legacy_import/reading.py", "sa.create_engine"): "the database of a 0.2.0, which is only read",
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


RAW = {
    "xbus/broker/journal/database/holding.py": "SQLite alone, whose file has one server",
    "xbus/broker/journal/database/raw_reader.py": "checks the server before each read",
}
"""The modules that take a connection past the check that an engine makes with each transaction."""

ANY_SERVER = {
    "xbus/broker/journal/database/connection.py": "hands on what its caller says",
    "xbus/broker/journal/database/engine.py": "hands on what its caller says",
    "xbus/broker/journal/database/foreign.py": "reads a database of somebody else, which is no journal",
}
"""The modules that let a session lead to a standby."""


def calls_of(word: str) -> Iterator[tuple[str, ast.Call]]:
    """Each call in a module that has the word, by its file."""
    for path, module in modules_with((word,), *FOLDERS):
        for node in ast.walk(module):
            if isinstance(node, ast.Call):
                yield path, node


def test_a_connection_past_the_check_of_the_server_has_a_reason() -> None:
    called = {
        path
        for path, call in calls_of("raw_connection")
        if isinstance(call.func, ast.Attribute) and call.func.attr == "raw_connection"
    }
    assert called == RAW.keys()
    reader = (CHECKOUT / "xbus/broker/journal/database/raw_reader.py").read_text(encoding="utf-8")
    assert reader.count("self._check_server()") == 2, "when a session is opened, and before each read"


def test_a_session_that_may_lead_to_a_standby_has_a_reason() -> None:
    given = {
        path
        for path, call in calls_of("any_server")
        if any(keyword.arg == "any_server" for keyword in call.keywords)
        or any("any_server" in ast.unparse(value) for value in call.args)
    }
    assert given == ANY_SERVER.keys()


@pytest.mark.parametrize("module", ["psycopg2", "sqlite3"])
def test_a_driver_makes_no_connection_by_another_name(module: str) -> None:
    """``from psycopg2 import connect`` would not be seen above."""
    for path, tree in modules_with((f"from {module} ", "from sqlalchemy "), *FOLDERS):
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module in (module, "sqlalchemy"):
                assert not {*MAKERS} & {alias.name for alias in node.names}, path
