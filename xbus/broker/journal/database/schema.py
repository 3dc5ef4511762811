"""The database's schema: made and upgraded by Alembic's migrations, checked before anything else is done with it."""

import logging
import re
from collections.abc import Sequence
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.schema import SetColumnComment, SetTableComment

from xbus import model
from xbus.broker.journal.database.connection import is_missing_file, reading, writing
from xbus.errors import SchemaError
from xbus.model import metadata, views

log = logging.getLogger(__name__)

HERE = Path(__file__).parent
SCRIPTS = re.compile(r"versions/([0-9]{4})_\w+\.py")
"""The file of a migration, with its number: the version that it makes."""

VERSION = re.compile(r"[0-9]{4}")
"""A version, as our programs write it."""

PLACES = (HERE.parent / "migrations", HERE.parents[3] / "alembic")
"""The folders of the migrations: above this package if it is installed, at the top of a checkout."""

ALEMBIC = sa.table("alembic_version", sa.column("version_num", sa.Text))
"""The table in which Alembic keeps the version."""

ONLY_ADDS = "ONLY_ADDS"
"""A migration that sets this to true lets earlier programs go on: it adds tables, or columns with defaults."""

ONE_AT_A_TIME = 0x58627573
"""The key of PostgreSQL's advisory lock under which the schema is changed; any number that nobody else takes."""


def upgrade(url: str, migrations: Path | None = None) -> None:
    """Create the schema, or bring it to the version of this program; all of it or nothing.

    Args:
        url: the database's SQLAlchemy URL.
        migrations: the folder of the migrations; None for this program's.

    A newer schema that this program may use stays as it is.

    Raises:
        SchemaError: this program is too old for the schema, or that is unreleased, or the database has other tables.
        JournalUnavailable: the database can't be reached or written.
        ConfigurationError: the URL names neither SQLite nor PostgreSQL.
    """
    with writing(url) as connection:
        upgrade_connection(connection, migrations)


def upgrade_connection(connection: sa.Connection, migrations: Path | None = None) -> None:
    """Upgrade as :func:`upgrade` does, in the transaction of the only connection of a database.

    Raises:
        SchemaError: this program is too old for the schema, or that is unreleased, or the database has other tables.
    """
    # Alembic takes as long to import as a whole command should take, and only an upgrade needs it.
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(ONE_AT_A_TIME)))
    folder = migrations or _migrations()
    versions = _versions(folder)
    before = _version(connection)
    if before is None:
        _refuse_foreign_tables(connection)
    if before is not None and not _is_known(connection, before, versions):
        return
    configuration = Config()
    configuration.set_main_option("script_location", str(folder).replace("%", "%%"))
    configuration.set_main_option("path_separator", "os")
    configuration.attributes["connection"] = connection
    command.upgrade(configuration, "head")
    after = versions[-1]
    if before != after:
        _comment(connection)
        made = [
            each
            for each in ScriptDirectory.from_config(configuration).walk_revisions()
            if each.revision > (before or "")
        ]
        if changing := [each.revision for each in made if not getattr(each.module, ONLY_ADDS, False)]:
            connection.execute(sa.update(model.configuration).values(oldest_schema=max(changing)))
    log.info("schema %s", "unchanged" if before == after else "upgraded", extra={"action": "upgrade", "version": after})


def check(url: str, migrations: Path | None = None) -> None:
    """Make sure that the database has the schema of this program.

    Args:
        url: the database's SQLAlchemy URL.
        migrations: the folder of the migrations; None for this program's.

    Raises:
        SchemaError: the schema is missing, older, too new or unreleased.
        JournalUnavailable: the database can't be reached.
        ConfigurationError: the URL names neither SQLite nor PostgreSQL.
    """
    if is_missing_file(url):
        raise _not_set_up()
    with reading(url) as connection:
        check_connection(connection, migrations)


def check_connection(connection: sa.Connection, migrations: Path | None = None) -> None:
    """Check as :func:`check` does, over an open connection.

    Raises:
        SchemaError: the schema is missing, older, too new or unreleased.
    """
    versions = _versions(migrations or _migrations())
    version, wanted = _version(connection), versions[-1]
    if version is None:
        raise _not_set_up()
    if _is_known(connection, version, versions) and version != wanted:
        raise SchemaError(
            f"the database is older than this program (its schema is {version}, {wanted} is needed)",
            "stop the brokers on it, then run setup_xbusbroker with the same configuration",
        )


def _not_set_up() -> SchemaError:
    return SchemaError("the database is not set up", "run setup_xbusbroker with the same configuration")


def _refuse_foreign_tables(connection: sa.Connection) -> None:
    foreign = sorted(metadata.tables.keys() & set(sa.inspect(connection).get_table_names()))
    if foreign:
        raise SchemaError(
            f"the database already has tables of another program ({', '.join(foreign)})",
            "give the bus a database of its own in sqlalchemy.dburi",
        )


def _is_known(connection: sa.Connection, version: str, versions: Sequence[str]) -> bool:
    """Tell a schema that this program makes from a later one that it may use.

    Raises:
        SchemaError: this program is too old for the schema, or no migration knows it.
    """
    if version in versions:
        return True
    if VERSION.fullmatch(version) and version > versions[-1]:
        if connection.execute(sa.select(model.configuration.c.oldest_schema)).scalar_one() <= versions[-1]:
            return False
        raise SchemaError(
            f"this program is older than the database (its schema is {version})", "install the newer version of xbusd"
        )
    raise SchemaError(
        f"the journal is of an unreleased version of xbusd (its schema is {version}), which can't be upgraded",
        "with that version run xbus export, and drain the bus or archive its envelopes; then have this version make a "
        "new journal with setup_xbusbroker, and run xbus apply with the exported file",
        code="journal_unreleased",
    )


def _comment(connection: sa.Connection) -> None:
    """Have PostgreSQL keep what the model says of tables and columns; SQLite keeps no comments."""
    if connection.dialect.name != "postgresql":
        return
    for table in metadata.sorted_tables:
        connection.execute(SetTableComment(table))
        for column in table.columns:
            if column.comment:
                connection.execute(SetColumnComment(column))
    for view in views.sorted_tables:
        text = str(view.comment).replace("'", "''")
        connection.exec_driver_sql(f"COMMENT ON VIEW {view.name} IS '{text}'")
        for column in view.columns:
            if column.comment:
                connection.execute(SetColumnComment(column))


def _version(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table(ALEMBIC.name):
        return None
    return connection.execute(sa.select(ALEMBIC.c.version_num)).scalar()


def _versions(migrations: Path) -> list[str]:
    """List the versions that the migrations make, oldest first."""
    paths = (path.relative_to(migrations).as_posix() for path in migrations.glob("versions/*.py"))
    return sorted(found[1] for path in paths if (found := SCRIPTS.fullmatch(path)))


def _migrations() -> Path:
    for place in PLACES:
        if (place / "env.py").is_file():
            return place
    raise SchemaError("the migrations are missing from this installation", "install xbusd again")
