"""The schema on real databases: made, upgraded, checked, and the same as the tables of xbus.model."""

import shutil
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from pathlib import Path
from typing import Any

import alembic.command
import alembic.config
import pytest
import sqlalchemy as sa
import zstandard
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from tests.support.bus import add_demo
from tests.support.journal import NOW
from xbus.broker.journal.configuration.reading import read_stored
from xbus.broker.journal.configuration.table_checks import find_table_problems
from xbus.broker.journal.database import schema
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.database.engine import create_engine
from xbus.broker.journal.log.catalog import read_version
from xbus.broker.journal.people import Right, add_person, add_token, list_persons
from xbus.broker.journal.writes.fingerprint import fingerprint
from xbus.errors import JournalError, JournalUnavailable, SchemaError
from xbus.model import configuration, correction, emitter, envelope, event, failure, head, metadata, role, writer


@pytest.fixture
def engine(database_url: str) -> Iterator[sa.Engine]:
    engine = create_engine(database_url)
    yield engine
    engine.dispose()


def test_migrations_make_the_tables_of_the_model(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_server_default": True})

        assert compare_metadata(context, metadata) == []


def test_migrations_make_the_constraints_of_the_model(engine: sa.Engine) -> None:
    """What compare_metadata does not look at."""
    migrated = constraints(engine)
    with engine.begin() as connection:
        metadata.drop_all(connection)
        metadata.create_all(connection)

    assert migrated == constraints(engine)
    assert migrated["envelope"]["checks"]


def test_first_rows(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        assert connection.execute(sa.select(configuration)).all() == [(1, 1, False, 0)]
        assert connection.execute(sa.select(head)).all() == [(1, 0)]
        assert connection.execute(sa.select(writer)).all() == []


def test_upgrade_may_be_repeated(empty_database_url: str) -> None:
    schema.upgrade(empty_database_url)
    with writing(empty_database_url) as connection:
        connection.execute(sa.update(head).values(position=7))

    schema.upgrade(empty_database_url)

    schema.check(empty_database_url)
    with reading(empty_database_url) as connection:
        assert connection.execute(sa.select(head.c.position)).scalar_one() == 7


def test_upgrade_is_all_or_nothing(empty_database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_off(*_: object) -> None:
        raise JournalUnavailable("the power went out")

    with monkeypatch.context() as patch:
        patch.setattr("alembic.op.bulk_insert", break_off)
        with pytest.raises(JournalUnavailable, match="power"):
            schema.upgrade(empty_database_url)

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


def test_corrections_for_a_role_stay_as_they_are(empty_database_url: str, tmp_path: Path) -> None:
    schema.upgrade(empty_database_url, migrations_before(tmp_path, "0009"))
    with writing(empty_database_url) as connection:
        old = sa.MetaData()
        old.reflect(connection, only=["correction"])
        row_of_each_table(connection, old)
        before = connection.execute(sa.select(old.tables["correction"])).all()

    schema.upgrade(empty_database_url)

    schema.check(empty_database_url)
    with writing(empty_database_url) as connection:
        assert connection.execute(sa.select(old.tables["correction"])).all() == before
        for_all = {name: value for name, value in before[0]._mapping.items() if name not in ("id", "role_id")}
        connection.execute(sa.insert(old.tables["correction"]).values(for_all))
        connection.execute(sa.delete(correction).where(correction.c.role_id.is_(None)))
        connection.execute(sa.insert(old.tables["correction"]).values(for_all))
        newest = connection.execute(sa.select(sa.func.max(correction.c.id))).scalar_one()
    # What was removed does not give its id to what comes: by that the broker knows what is new.
    assert newest == before[0].id + 2


def test_envelopes_from_before_there_were_headers_have_none(empty_database_url: str, tmp_path: Path) -> None:
    schema.upgrade(empty_database_url, migrations_before(tmp_path, "0013"))
    with writing(empty_database_url) as connection:
        old = sa.MetaData()
        old.reflect(connection, only=["segment"])
        row_of_each_table(connection, old)
        before = {name: connection.execute(sa.select(old.tables[name])).all() for name in ("envelope", "event")}

    schema.upgrade(empty_database_url)

    schema.check(empty_database_url)
    with reading(empty_database_url) as connection:
        assert {name: connection.execute(sa.select(old.tables[name])).all() for name in before} == before
        assert connection.execute(sa.select(envelope.c.headers)).all() == [(None,)]
        assert connection.execute(sa.select(event.c.headers, event.c.partition_key)).all() == [(None, None)]


def test_a_registration_stays_as_it_is_and_others_come_beside_it(empty_database_url: str, tmp_path: Path) -> None:
    schema.upgrade(empty_database_url, migrations_before(tmp_path, "0014"))
    with writing(empty_database_url) as connection:
        old = sa.MetaData()
        old.reflect(connection, only=["registration"])
        row_of_each_table(connection, old)
        before = connection.execute(sa.select(old.tables["registration"])).all()

    schema.upgrade(empty_database_url)

    schema.check(empty_database_url)
    with writing(empty_database_url) as connection:
        assert connection.execute(sa.select(old.tables["registration"])).all() == before
        beside = {**before[0]._mapping, "token_hash": b"y"}
        connection.execute(sa.insert(old.tables["registration"]).values(beside))
        assert connection.execute(sa.select(role.c.instances, role.c.standby)).all() == [(1, False)]


def test_failures_of_before_are_in_groups(empty_database_url: str, tmp_path: Path) -> None:
    """More of them than the migration reads at once."""
    schema.upgrade(empty_database_url, migrations_before(tmp_path, "0023"))
    with writing(empty_database_url) as connection:
        old = sa.MetaData()
        old.reflect(connection, only=["failure", "history"])
        row_of_each_table(connection, old)
        (row,) = connection.execute(sa.select(old.tables["failure"])).all()
        same = dict(row._mapping)
        more = [{**same, "id": number, "message": f"no client {number}"} for number in range(2, 2502)]
        connection.execute(sa.insert(old.tables["failure"]), more)

    schema.upgrade(empty_database_url)

    schema.check(empty_database_url)
    with writing(empty_database_url) as connection:
        of = sa.select(failure.c.fingerprint, sa.func.count()).group_by(failure.c.fingerprint)
        found = {str(each): count for each, count in connection.execute(of)}
        assert sorted(found.values()) == [1, 2500]
        assert found[fingerprint(row.role_id, row.verb, row.code, "no client 7")] == 2500
        assert connection.execute(sa.select(failure.c.owner).distinct()).scalars().all() == [None]
        configured = alembic.config.Config()
        configured.set_main_option("script_location", str(schema.PLACES[-1]))
        configured.set_main_option("path_separator", "os")
        configured.attributes["connection"] = connection
        alembic.command.downgrade(configured, "0022")
        assert "fingerprint" not in {column["name"] for column in sa.inspect(connection).get_columns("failure")}
        alembic.command.upgrade(configured, "head")
    schema.check(empty_database_url)


def test_compression_can_be_taken_back(database_url: str) -> None:
    """For whoever has to go back to the version before, which reads plain data alone."""
    with writing(database_url) as connection:
        tables = sa.MetaData()
        tables.reflect(connection, only=["segment"])
        row_of_each_table(connection, tables)
        table = tables.tables["segment"]
        (row,) = connection.execute(sa.select(table)).all()
        frame = zstandard.ZstdCompressor().compress(b"plain" * 100)
        more = {"data": frame, "plain_bytes": 500}
        connection.execute(sa.insert(table), [{**row._mapping, **more, "first_index": index} for index in (2, 3, 5)])
        configured = alembic.config.Config()
        configured.set_main_option("script_location", str(schema.PLACES[-1]))
        configured.set_main_option("path_separator", "os")
        configured.attributes["connection"] = connection
        alembic.command.downgrade(configured, "0031")
        found = connection.execute(sa.select(table.c.first_index, table.c.data).order_by(table.c.first_index)).all()
        assert [(index, bytes(data)) for index, data in found] == [
            (1, row.data), *((index, b"plain" * 100) for index in (2, 3, 5))
        ]  # fmt: skip


def test_public_keys_can_be_taken_back_and_their_edits_are_noticed(database_url: str) -> None:
    def count(connection: sa.Connection) -> int:
        found: int = connection.execute(sa.select(configuration.c.version)).scalar_one()
        return found

    add_demo(database_url)
    with writing(database_url) as connection:
        configured = alembic.config.Config()
        configured.set_main_option("script_location", str(schema.PLACES[-1]))
        configured.set_main_option("path_separator", "os")
        configured.attributes["connection"] = connection
        alembic.command.downgrade(configured, "0016")
        assert "public_keys" not in {column["name"] for column in sa.inspect(connection).get_columns("role")}
        before = count(connection)
        connection.execute(sa.update(role).values(instances=2))
        assert count(connection) > before
        alembic.command.upgrade(configured, "head")
    schema.check(database_url)
    with writing(database_url) as connection:
        for table in (role, emitter):
            assert set(connection.execute(sa.select(table.c.public_keys)).scalars()) == {""}
            before = count(connection)
            connection.execute(sa.update(table).values(password_hash="x"))
            assert count(connection) == before
            connection.execute(sa.update(table).values(public_keys="x"))
            assert count(connection) > before


def test_pauses_and_triggers_can_be_taken_back(database_url: str) -> None:
    """For whoever has to go back to the version before."""
    with writing(database_url) as connection:
        configured = alembic.config.Config()
        configured.set_main_option("script_location", str(schema.PLACES[-1]))
        configured.set_main_option("path_separator", "os")
        configured.attributes["connection"] = connection
        before = ScriptDirectory.from_config(configured).get_revision("0015").down_revision
        alembic.command.downgrade(configured, str(before))
        assert "pause" not in sa.inspect(connection).get_table_names()
        connection.execute(sa.delete(metadata.tables["profile_event_type"]))
        alembic.command.upgrade(configured, "head")
    schema.check(database_url)


def test_limits_of_emitters_can_be_taken_back(database_url: str) -> None:
    """For whoever has to go back to the version before; an edit by SQL counts the version up again afterwards."""
    with writing(database_url) as connection:
        configured = alembic.config.Config()
        configured.set_main_option("script_location", str(schema.PLACES[-1]))
        configured.set_main_option("path_separator", "os")
        configured.attributes["connection"] = connection
        before = ScriptDirectory.from_config(configured).get_revision("0018").down_revision
        alembic.command.downgrade(configured, str(before))
        assert "sending_limit" not in sa.inspect(connection).get_table_names()
        alembic.command.upgrade(configured, "head")
    schema.check(database_url)
    with writing(database_url) as connection:
        limits = metadata.tables["sending_limit"]
        version = read_version(connection)
        connection.execute(sa.insert(limits).values(kind="emitter", subject_id=1, items_per_second=5))
        connection.execute(sa.update(limits).values(items_per_second=6))
        connection.execute(sa.delete(limits))
        assert read_version(connection) == version + 3


def test_people_and_their_profiles_stay_as_they_are(empty_database_url: str, tmp_path: Path) -> None:
    """SQLite makes both tables anew."""
    schema.upgrade(empty_database_url, migrations_before(tmp_path, "0020"))
    with writing(empty_database_url) as connection:
        old = sa.MetaData()
        old.reflect(connection, only=["person", "emission_profile"])
        people, profiles = old.tables["person"], old.tables["emission_profile"]
        connection.execute(sa.insert(people).values(id=7, login="ada", password_hash="x", email="a@b", removed_at=NOW))
        connection.execute(sa.insert(profiles).values(id=3, name="uploads", person_id=7, encoding="utf-8"))
        before = [connection.execute(sa.select(table)).all() for table in (people, profiles)]

    schema.upgrade(empty_database_url)

    schema.check(empty_database_url)
    with writing(empty_database_url) as connection:
        assert [connection.execute(sa.select(table)).all() for table in (people, profiles)] == before
        (ada,) = list_persons(connection)
        assert (ada.id, ada.rights, ada.disabled_at, ada.last_seen_at) == (7, frozenset(), NOW, None)
        assert ada.created_at > NOW
    with pytest.raises(JournalError), writing(empty_database_url) as connection:
        connection.execute(sa.delete(people))


def test_rights_of_people_can_be_taken_back(database_url: str) -> None:
    with writing(database_url) as connection:
        ada = add_person(connection, "ada", {Right.MANAGER}, "x", NOW)
        add_token(connection, ada.id, "nightly", (), None, NOW)
        configured = alembic.config.Config()
        configured.set_main_option("script_location", str(schema.PLACES[-1]))
        configured.set_main_option("path_separator", "os")
        configured.attributes["connection"] = connection
        alembic.command.downgrade(configured, "0019")
        assert "person_token" not in sa.inspect(connection).get_table_names()
        alembic.command.upgrade(configured, "head")
    schema.check(database_url)
    with reading(database_url) as connection:
        (ada,) = list_persons(connection)
    assert (ada.name, ada.rights) == ("ada", frozenset())


def test_secret_fields_can_be_taken_back_and_their_edits_are_noticed(database_url: str) -> None:
    add_demo(database_url)
    with writing(database_url) as connection:
        configured = alembic.config.Config()
        configured.set_main_option("script_location", str(schema.PLACES[-1]))
        configured.set_main_option("path_separator", "os")
        configured.attributes["connection"] = connection
        alembic.command.downgrade(configured, "0020")
        alembic.command.upgrade(configured, "head")
    schema.check(database_url)
    with writing(database_url) as connection:
        types = metadata.tables["event_type"]
        before = read_version(connection)
        connection.execute(sa.update(types).values(secret="iban"))
        assert read_version(connection) == before + 1
        assert read_stored(connection).in_use.event_types["test_event"].secret == ("iban",)
        assert find_table_problems(connection) == []
        connection.execute(sa.update(types).values(secret="iban\ncard..number"))
        (problem,) = find_table_problems(connection)
    assert problem.cause == "secret is 'iban\\ncard..number', and has to be paths like card.number, each on a line"


def row_of_each_table(connection: sa.Connection, tables: sa.MetaData) -> None:
    """Insert a row into each of some tables that are as an older program made them, all referring to each other."""
    values = {int: 1, str: uuid.UUID(int=1).hex, uuid.UUID: uuid.UUID(int=1), bytes: b"x", bool: False}
    checked = {"kind": "consumer", "state": "received"}
    for table in tables.sorted_tables:
        row = {
            column.name: checked.get(column.name) or values.get(column.type.python_type, NOW)
            for column in table.columns
            if not column.nullable and (column.server_default is None or column.primary_key)
        }
        if table.name == "correction":
            del row["id"]
        connection.execute(sa.insert(table).values(row))


def test_an_older_schema_is_refused_and_upgraded(database_url: str, newer_migrations: Path) -> None:
    with pytest.raises(SchemaError, match=r"older than this program .* run setup_xbusbroker"):
        schema.check(database_url, newer_migrations)

    schema.upgrade(database_url, newer_migrations)

    schema.check(database_url, newer_migrations)


def test_a_newer_schema_is_refused(empty_database_url: str, newer_migrations: Path) -> None:
    schema.upgrade(empty_database_url, newer_migrations)

    for refusing in (schema.check, schema.upgrade):
        with pytest.raises(SchemaError, match="this program is older than the database"):
            refusing(empty_database_url)


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
    with pytest.raises(JournalUnavailable, match="unable to open database file"):
        schema.upgrade(f"sqlite:///{tmp_path / 'missing' / 'xbus.db'}")


def migrations_before(tmp_path: Path, revision: str) -> Path:
    """The migrations of an older program."""
    folder = tmp_path / "older"
    shutil.copytree(schema.PLACES[-1], folder, ignore=shutil.ignore_patterns("__pycache__"))
    for script in (folder / "versions").glob("*.py"):
        if script.name >= revision:
            script.unlink()
    return folder


def test_the_files_of_the_migrations_begin_with_the_versions_that_they_make() -> None:
    """Commands read the newest version from the names: Alembic, which knows it too, takes long to import."""
    scripts = list(ScriptDirectory(str(schema.PLACES[-1])).walk_revisions())
    assert [Path(script.path).name[:4] for script in scripts] == [script.revision for script in scripts]
    assert [script.revision for script in scripts] == sorted((script.revision for script in scripts), reverse=True)


@pytest.fixture
def newer_migrations(tmp_path: Path) -> Path:
    """The migrations of a program that has one more."""
    folder = tmp_path / "migrations"
    shutil.copytree(schema.PLACES[-1], folder, ignore=shutil.ignore_patterns("__pycache__"))
    newest = ScriptDirectory(str(folder)).get_current_head()
    (folder / "versions" / "9999_one_more.py").write_text(
        f'revision = "9999"\ndown_revision = "{newest}"\n\n\ndef upgrade() -> None:\n    pass\n'
    )
    return folder


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
