"""The schema on real databases: made, upgraded, checked, and the same as the tables of xbus.model."""

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from tests.support.bus import add_demo
from xbus.broker.journal.configuration.reading import read_stored
from xbus.broker.journal.database import schema
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.database.engine import create_engine
from xbus.broker.journal.log.catalog import read_version
from xbus.errors import JournalUnavailable, SchemaError
from xbus.model import configuration, head, metadata, views, writer


@pytest.fixture
def engine(database_url: str) -> Iterator[sa.Engine]:
    engine = create_engine(database_url)
    yield engine
    engine.dispose()


def test_migrations_make_the_tables_of_the_model(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        # PostgreSQL can't compare defaults of JSON.
        compare = {"compare_server_default": lambda *about: False if isinstance(about[2].type, sa.JSON) else None}
        context = MigrationContext.configure(connection, opts=compare)

        assert compare_metadata(context, metadata) == []


def test_migrations_make_the_constraints_of_the_model(engine: sa.Engine) -> None:
    """What compare_metadata does not look at."""
    migrated = constraints(engine)
    with engine.begin() as connection:
        for name in views.tables:
            connection.execute(sa.text(f"DROP VIEW {name}"))
        metadata.drop_all(connection)
        metadata.create_all(connection)

    assert migrated == constraints(engine)
    assert migrated["envelope"]["checks"]


def test_the_views_have_the_columns_of_the_model(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        for view in views.sorted_tables:
            made = {column["name"]: column for column in sa.inspect(connection).get_columns(view.name)}
            assert [*made] == [column.name for column in view.columns]
            if engine.dialect.name == "postgresql":
                kinds = {name: column["type"]._type_affinity for name, column in made.items()}
                assert kinds == {column.name: column.type._type_affinity for column in view.columns}


def test_first_rows(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        (row,) = connection.execute(sa.select(configuration)).all()
        assert (*row[:4], *row[5:]) == (1, 1, False, 0, "0100")
        assert len(row.bus) == 32
        assert connection.execute(sa.select(head)).all() == [(1, 0)]
        assert connection.execute(sa.select(writer)).all() == []


WATCHED = (
    *("bot", "edge", "emitter", "emitter_profile", "emitting_service", "event_type", "graph", "lag_limit", "node"),
    *("pause", "profile_event_type", "reader", "reader_event_type", "role", "sending_limit", "service", "subscription"),
)


def test_an_edit_of_any_column_of_the_configuration_is_noticed(database_url: str) -> None:
    add_demo(database_url)
    unseen = []
    with writing(database_url) as connection:
        for table in (metadata.tables[name] for name in WATCHED):
            # SQLite's triggers see rows, and some tables have none.
            if not connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one():
                continue
            for column in table.columns:
                before = read_version(connection)
                connection.execute(sa.update(table).values({column: column}))
                if read_version(connection) == before:
                    unseen.append((table.name, column.name))
    assert unseen == [("emitter", "password_hash"), ("role", "password_hash")]


def test_upgrade_may_be_repeated(empty_database_url: str) -> None:
    schema.upgrade(empty_database_url)
    with writing(empty_database_url) as connection:
        connection.execute(sa.update(head).values(position=7))

    schema.upgrade(empty_database_url)

    schema.check(empty_database_url)
    with reading(empty_database_url) as connection:
        assert connection.execute(sa.select(head.c.position)).scalar_one() == 7


def test_upgrade_is_all_or_nothing(empty_database_url: str, tmp_path: Path) -> None:
    broken = migrations_with(tmp_path, "raise RuntimeError('the power went out')")
    with pytest.raises(RuntimeError, match="power"):
        schema.upgrade(empty_database_url, broken)

    with reading(empty_database_url) as connection:
        assert sa.inspect(connection).get_table_names() == []
    schema.upgrade(empty_database_url)


def test_upgrades_at_the_same_time_wait_for_each_other(empty_database_url: str) -> None:
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(schema.upgrade, [empty_database_url] * 4))

    schema.check(empty_database_url)


def test_a_database_without_schema_is_refused(empty_database_url: str) -> None:
    with pytest.raises(SchemaError, match="not set up: run setup_xbusbroker"):
        schema.check(empty_database_url)


def test_the_check_leaves_no_file_behind(tmp_path: Path) -> None:
    with pytest.raises(SchemaError):
        schema.check(f"sqlite:///{tmp_path / 'xbus.db'}")

    assert list(tmp_path.iterdir()) == []


def test_an_older_schema_is_refused_and_upgraded(database_url: str, tmp_path: Path) -> None:
    add_demo(database_url)
    newer = migrations_with(tmp_path, "op.add_column('event_type', sa.Column('colour', sa.Text, server_default='red'))")
    with pytest.raises(SchemaError, match=r"older than this program .* run setup_xbusbroker"):
        schema.check(database_url, newer)

    schema.upgrade(database_url, newer)

    schema.check(database_url, newer)
    with writing(database_url) as connection:
        colours = connection.execute(sa.text("SELECT DISTINCT colour FROM event_type")).scalars().all()
        assert colours == ["red"]
        assert {"test_event"} <= read_stored(connection).in_use.event_types.keys()
        before = read_version(connection)
        connection.execute(sa.text("UPDATE event_type SET colour = 'blue'"))
        assert read_version(connection) > before, "its triggers are there still"


@pytest.mark.parametrize("version", ["0001", "0043", "0099", "1975ea83b712"])
def test_a_journal_of_an_unreleased_version_is_refused_with_the_way_out(database_url: str, version: str) -> None:
    with writing(database_url) as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = :version"), {"version": version})

    for refusing in (schema.check, schema.upgrade):
        with pytest.raises(SchemaError) as refused:
            refusing(database_url)
        assert refused.value.code == "journal_unreleased"
        assert version in refused.value.cause
        way = ["xbus export", "drain", "archive", "setup_xbusbroker", "xbus apply"]
        assert way == sorted(way, key=refused.value.next_step.index)


def test_a_newer_schema_is_refused(empty_database_url: str, tmp_path: Path) -> None:
    schema.upgrade(empty_database_url, migrations_with(tmp_path, "pass"))

    for refusing in (schema.check, schema.upgrade):
        with pytest.raises(SchemaError, match="this program is older than the database"):
            refusing(empty_database_url)


def test_a_newer_schema_that_only_adds_serves_the_program_of_before(empty_database_url: str, tmp_path: Path) -> None:
    """So a pair of brokers is upgraded one after the other, and a return to the version of before needs no restore."""
    adding = migrations_with(tmp_path / "adds", "op.add_column('event_type', sa.Column('colour', sa.Text))", adds=True)
    schema.upgrade(empty_database_url)
    schema.upgrade(empty_database_url, adding)
    for allowed in (schema.check, schema.upgrade):
        allowed(empty_database_url)
    schema.check(empty_database_url, adding)
    with reading(empty_database_url) as connection:
        assert "colour" in {each["name"] for each in sa.inspect(connection).get_columns("event_type")}


def test_tables_of_something_else_are_refused(empty_database_url: str) -> None:
    with writing(empty_database_url) as connection:
        connection.exec_driver_sql("CREATE TABLE event (id INTEGER)")

    with pytest.raises(SchemaError, match=r"another program \(event\)"):
        schema.upgrade(empty_database_url)


@pytest.mark.parametrize("work", [schema.upgrade, schema.check])
def test_an_unreachable_server_is_named_with_the_cure(work: Callable[[str], None]) -> None:
    with pytest.raises(JournalUnavailable, match=r"Connection refused.*: see that the database runs"):
        work("postgresql+psycopg2://xbus:secret@127.0.0.1:1/xbus")


def test_an_sqlite_file_that_can_not_be_made(tmp_path: Path) -> None:
    with pytest.raises(JournalUnavailable, match="there is no folder"):
        schema.upgrade(f"sqlite:///{tmp_path / 'missing' / 'xbus.db'}")


def test_the_files_of_the_migrations_begin_with_the_versions_that_they_make() -> None:
    """Commands read the newest version from the names: Alembic, which knows it too, takes long to import."""
    scripts = list(ScriptDirectory(str(schema.PLACES[-1])).walk_revisions())
    assert [Path(script.path).name[:4] for script in scripts] == [script.revision for script in scripts]
    assert [script.revision for script in scripts] == sorted((script.revision for script in scripts), reverse=True)


def migrations_with(folder: Path, change: str, *, adds: bool = False) -> Path:
    """The migrations of a program that has one more, with a statement that changes the tables."""
    migrations = folder / "migrations"
    shutil.copytree(schema.PLACES[-1], migrations, ignore=shutil.ignore_patterns("__pycache__"))
    newest = ScriptDirectory(str(migrations)).get_current_head()
    (migrations / "versions" / "9999_one_more.py").write_text(
        f'import sqlalchemy as sa\nfrom alembic import op\n\nrevision = "9999"\ndown_revision = "{newest}"\n'
        f"ONLY_ADDS = {adds}\n\n\n"
        f"def upgrade() -> None:\n    {change}\n"
    )
    return migrations


def constraints(engine: sa.Engine) -> dict[str, dict[str, Any]]:
    """The checks, keys and indexes of every table, in a form that can be compared."""
    inspector = sa.inspect(engine)
    return {
        table: {
            "checks": sorted((check["name"], check["sqltext"]) for check in inspector.get_check_constraints(table)),
            "primary": inspector.get_pk_constraint(table),
            "foreign": sorted(inspector.get_foreign_keys(table), key=itemgetter("name")),
            "unique": sorted(inspector.get_unique_constraints(table), key=itemgetter("name")),
            "indexes": sorted(
                (str(index["name"]), str(index["column_names"])) for index in inspector.get_indexes(table)
            ),
        }
        for table in metadata.tables
    }
