"""The database's schema: made and upgraded by Alembic's migrations, checked before anything else is done with it."""

import logging
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from xbus.broker.journal.database.connection import is_missing_file, reading, writing
from xbus.errors import SchemaError
from xbus.model import metadata

log = logging.getLogger(__name__)

HERE = Path(__file__).parent
PLACES = (HERE.parent / "migrations", HERE.parents[3] / "alembic")
"""The folders of the migrations: above this package if it is installed, at the top of a checkout."""

ONE_AT_A_TIME = 0x58627573
"""The key of PostgreSQL's advisory lock under which the schema is changed; any number that nobody else takes."""


def upgrade(url: str, migrations: Path | None = None) -> None:
    """Create the schema, or bring it to the version of this program; all of it or nothing.

    Args:
        url: the database's SQLAlchemy URL.
        migrations: the folder of the migrations; None for this program's.

    Raises:
        SchemaError: the schema is newer than this program, or the database has other tables.
        JournalUnavailable: the database can't be reached or written.
        ConfigurationError: the URL names neither SQLite nor PostgreSQL.
    """
    with writing(url) as connection:
        upgrade_connection(connection, migrations)


def upgrade_connection(connection: sa.Connection, migrations: Path | None = None) -> None:
    """Upgrade as :func:`upgrade` does, in the transaction of the only connection of a database.

    Raises:
        SchemaError: the schema is newer than this program, or the database has other tables.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(ONE_AT_A_TIME)))
    configuration = _alembic(migrations or _migrations())
    scripts = ScriptDirectory.from_config(configuration)
    before = _version(connection)
    if before is None:
        _refuse_foreign_tables(connection)
    _refuse_newer(before, scripts)
    configuration.attributes["connection"] = connection
    command.upgrade(configuration, "head")
    after = scripts.get_current_head()
    log.info("schema %s", "unchanged" if before == after else "upgraded", extra={"action": "upgrade", "version": after})


def check(url: str, migrations: Path | None = None) -> None:
    """Make sure that the database has the schema of this program.

    Args:
        url: the database's SQLAlchemy URL.
        migrations: the folder of the migrations; None for this program's.

    Raises:
        SchemaError: the schema is missing, older or newer.
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
        SchemaError: the schema is missing, older or newer.
    """
    scripts = ScriptDirectory.from_config(_alembic(migrations or _migrations()))
    version, wanted = _version(connection), scripts.get_current_head()
    if version is None:
        raise _not_set_up()
    _refuse_newer(version, scripts)
    if version != wanted:
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


def _refuse_newer(version: str | None, scripts: ScriptDirectory) -> None:
    known = {script.revision for script in scripts.walk_revisions()}
    if version is not None and version not in known:
        raise SchemaError(
            f"this program is older than the database (its schema is {version})", "install the newer version of xbusd"
        )


def _version(connection: sa.Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _alembic(migrations: Path) -> Config:
    configuration = Config()
    configuration.set_main_option("script_location", str(migrations).replace("%", "%%"))
    configuration.set_main_option("path_separator", "os")
    return configuration


def _migrations() -> Path:
    for place in PLACES:
        if (place / "env.py").is_file():
            return place
    raise SchemaError("the migrations are missing from this installation", "install xbusd again")
