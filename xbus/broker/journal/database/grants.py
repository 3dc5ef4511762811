"""Database roles of PostgreSQL that may do one thing in the journal, and see nothing else."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum

import sqlalchemy as sa

from xbus import model
from xbus.errors import Refused


class GrantPurpose(StrEnum):
    """The work for which a database role is."""

    LOG_READER = "log-reader"
    """Spark's source ``xbus`` reads the events of the log, and the items in them."""
    BULK_WORKER = "bulk-worker"
    """A bulk worker and its executors read events, and write outputs."""


@dataclass(frozen=True, slots=True)
class Grant:
    """The right to do something with a table.

    Args:
        privileges: as PostgreSQL calls them.
        columns: the only columns; empty for all.
    """

    privileges: str
    table: str
    columns: tuple[str, ...] = ()


def _read(*tables: sa.Table) -> list[Grant]:
    return [Grant("SELECT", table.name) for table in tables]


_VERSION = Grant("SELECT", "alembic_version")

GRANTS: Mapping[GrantPurpose, Sequence[Grant]] = {
    GrantPurpose.LOG_READER: (
        _VERSION,
        *_read(model.head, model.log_event, model.log_segment, model.object_store),
        # An envelope without events counts as well.
        Grant("SELECT", model.envelope.name, ("id", "position", "closed_at", "pruned_at")),
        *_read(model.archive_file, model.archived_envelope, model.archived_event),
        Grant("SELECT", model.event_type.name, ("id", "name")),
    ),
    GrantPurpose.BULK_WORKER: (
        _VERSION,
        *_read(model.log_segment, model.object_store, model.bulk_attempt),
        Grant("SELECT", model.event.name, ("id", "origin_id", "items")),
        # PostgreSQL lets nobody lock a row who may change none of its columns. This one is for people alone.
        Grant("UPDATE", model.bulk_attempt.name, ("started_at",)),
        Grant("SELECT, INSERT, DELETE", model.bulk_segment.name),
    ),
}
"""The statements that these programs execute need exactly this."""


def grant_statements(connection: sa.Connection, role: str, purpose: GrantPurpose) -> list[str]:
    """Write the SQL that takes everything from a role, and gives it what its work needs.

    Raises:
        Refused: the database is SQLite (``no_roles``), the role does not exist (``unknown_role``), or it owns
            tables or is a superuser, whom no grant limits (``role_too_mighty``).
    """
    if connection.dialect.name != "postgresql":
        raise Refused(
            "SQLite knows no roles", "the mode of the file says who may read it, and all of it", code="no_roles"
        )
    _check_role(connection, role)
    database, schema = connection.execute(sa.select(sa.func.current_database(), sa.func.current_schema())).one()
    grantee, place = _quote(role), _quote(schema)
    return [
        f"REVOKE ALL ON ALL TABLES IN SCHEMA {place} FROM {grantee}",
        f"REVOKE ALL ON ALL SEQUENCES IN SCHEMA {place} FROM {grantee}",
        f"GRANT CONNECT ON DATABASE {_quote(database)} TO {grantee}",
        f"GRANT USAGE ON SCHEMA {place} TO {grantee}",
        *(_statement(each, place, grantee) for each in GRANTS[purpose]),
    ]


def grant(connection: sa.Connection, role: str, purpose: GrantPurpose) -> None:
    """Execute those statements in the caller's transaction.

    Raises:
        Refused: as :func:`grant_statements`.
    """
    statements = grant_statements(connection, role, purpose)
    # By the driver itself, as a name may have a character that stands for a parameter.
    with closing(connection.connection.cursor()) as cursor:
        for statement in statements:
            cursor.execute(statement)


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _statement(grant: Grant, place: str, grantee: str) -> str:
    columns = f" ({', '.join(grant.columns)})" if grant.columns else ""
    return f"GRANT {grant.privileges}{columns} ON {place}.{grant.table} TO {grantee}"


def _check_role(connection: sa.Connection, role: str) -> None:
    wanted = sa.text("SELECT rolsuper FROM pg_roles WHERE rolname = :role")
    is_superuser = connection.execute(wanted, {"role": role}).scalar_one_or_none()
    if is_superuser is None:
        raise Refused(
            f'there is no database role "{role}"',
            "make it with CREATE ROLE ... LOGIN PASSWORD ...",
            code="unknown_role",
        )
    owned = sa.text("SELECT count(*) FROM pg_tables WHERE schemaname = current_schema() AND tableowner = :role")
    if is_superuser or connection.execute(owned, {"role": role}).scalar_one():
        raise Refused(
            f'the database role "{role}" is a superuser, or owns tables of the journal: nothing limits it',
            "make another one with CREATE ROLE ... LOGIN PASSWORD ...",
            code="role_too_mighty",
        )
