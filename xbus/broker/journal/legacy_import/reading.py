"""Reads the configuration out of a database of xbus.broker 0.2.0."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg2
import sqlalchemy as sa
from psycopg2.extensions import parse_dsn
from sqlalchemy import ColumnElement, Connection, FromClause, column, exc, func, inspect, or_, select, table
from sqlalchemy.event import listen
from sqlalchemy.pool import ConnectionPoolEntry, NullPool

from xbus.broker.journal.database.rows import grouped
from xbus.broker.journal.legacy_import.rows import (
    OldBus,
    OldDescriptor,
    OldEmissionProfile,
    OldEmitter,
    OldEventType,
    OldNode,
    OldProfile,
    OldRole,
    OldService,
    OldUser,
)
from xbus.errors import ConfigurationError, JournalUnavailable

# -- tables ------------------------------------------------------------------------------------------------------------
# The tables of xbus.broker 0.2.0, as far as they are read.

service = table("service", column("id"), column("name"), column("is_consumer"), column("description"))

event_type = table("event_type", column("id"), column("name"), column("description"), column("immediate_reply"))

event_node = table("event_node", column("id"), column("service_id"), column("type_id"), column("is_start"))

event_node_rel = table("event_node_rel", column("parent_id"), column("child_id"))

role = table("role", column("login"), column("password"), column("service_id"))

emitter_profile = table("emitter_profile", column("id"), column("name"), column("display_name"), column("description"))

# Its "event_id" is that of an event type.
emitter_profile_event_type_rel = table("emitter_profile_event_type_rel", column("event_id"), column("profile_id"))

emitter = table("emitter", column("login"), column("password"), column("profile_id"))

user = table(
    "user",
    column("user_id"),
    column("user_name"),
    column("email_address"),
    column("display_name"),
    column("password"),
)

user_group = table("user_group", column("user_id"), column("group_id"))

group_permission = table("group_permission", column("group_id"), column("permission_id"))

permission = table("permission", column("permission_id"), column("permission_name"))

input_descriptor = table(
    "input_descriptor", column("id"), column("name"), column("descriptor"), column("descriptor_mimetype")
)

emission_profile = table(
    "emission_profile", column("name"), column("owner_id"), column("input_descriptor_id"), column("encoding")
)

event = table("event", column("execution_state"))

event_consumer_inactive_rel = table("event_consumer_inactive_rel", column("event_id"), column("retry_event_id"))

MEMBERSHIPS = (user_group, group_permission)
"""A broker without users may lack them."""

TABLES = (
    *(service, event_type, event_node, event_node_rel, role),
    *(emitter_profile, emitter_profile_event_type_rel, emitter),
    *(user, permission, input_descriptor, emission_profile),
    *(event, event_consumer_inactive_rel),
)


# -- source ------------------------------------------------------------------------------------------------------------
# Opens the database of an xbus.broker 0.2.0 so that nothing can be written to it.
#
# Its address may hold a password, and what a driver says of a malformed one may quote it: such words are not passed on.

CONNECT_SECONDS = 5

MOST_NAMED = 3
"""The most missing tables and columns that an error names."""

_FORMS = "write it as postgresql://user:password@host/name or as host=... dbname=... user=..."


@contextmanager
def reading_legacy(address: str) -> Iterator[sa.Connection]:
    """Connect to the old database in a transaction that only reads, and sees one moment of it.

    Args:
        address: a URL, ``postgresql://user:password@host:port/name`` with or without a driver's name, or the keywords
            of PostgreSQL, ``host=... dbname=...``. Missing parts come from PostgreSQL's variables and files.

    Raises:
        ConfigurationError: the address is invalid, or the database is not one of xbus.broker 0.2.0.
        JournalUnavailable: the database can't be reached.
    """
    parameters = _parameters(address)
    engine = sa.create_engine("postgresql+psycopg2://", connect_args=parameters, poolclass=NullPool)
    listen(engine, "connect", _forbid_writing)
    try:
        with _told_as_errors_of_ours(), engine.connect() as connection, connection.begin():
            _check(connection)
            yield connection
    finally:
        engine.dispose()


def _parameters(address: str) -> dict[str, object]:
    scheme, separator, rest = address.partition("://")
    if not separator:
        found = _of_keywords(address)
    elif scheme.partition("+")[0] in ("postgres", "postgresql"):
        found = _of_url(rest)
    else:
        raise ConfigurationError("the old database's address is not one of PostgreSQL", _FORMS)
    return {"connect_timeout": CONNECT_SECONDS, **found}


def _of_keywords(address: str) -> dict[str, object]:
    try:
        return parse_dsn(address)
    except psycopg2.Error:
        raise ConfigurationError("the old database's address can't be read", _FORMS) from None


def _of_url(rest: str) -> dict[str, object]:
    if rest.partition("?")[0].count("@") > 1:
        raise ConfigurationError("the old database's address has more than one @", "write an @ of the password as %40")
    if any(map(str.isspace, rest)):
        raise ConfigurationError("the old database's address can't be read", _FORMS)
    try:
        # As in xbus.config: where a reader with interpolation took it from, a percent sign is doubled.
        url = sa.make_url(f"postgresql://{rest.replace('%%', '%')}")
    except (exc.ArgumentError, ValueError):
        raise ConfigurationError("the old database's address can't be read", _FORMS) from None
    query = {key: value if isinstance(value, str) else ",".join(value) for key, value in url.query.items()}
    return {**url.translate_connect_args(username="user", database="dbname"), **query}


def _forbid_writing(connection: Any, _: ConnectionPoolEntry) -> None:
    connection.set_session(readonly=True, isolation_level="REPEATABLE READ")
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")
    connection.commit()


def _check(connection: sa.Connection) -> None:
    """Make sure that all tables and columns are there."""
    columns = sa.text(
        "SELECT attname FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid"
        " WHERE relname = :name AND pg_table_is_visible(attrelid) AND attnum > 0 AND NOT attisdropped"
    )
    missing: list[str] = []
    for each in TABLES:
        present = set(connection.execute(columns, {"name": each.name}).scalars())
        wanted = [column.name for column in each.columns]
        missing += [f"{each.name}.{name}" for name in wanted if name not in present] if present else [each.name]
    if missing:
        others = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
        raise ConfigurationError(
            f"this is not a database of xbus.broker 0.2.0 (it has no {', '.join(missing[:MOST_NAMED])}{others})",
            "give the address in the old broker's configuration; bring an older one to 0.2.0 first",
            code="not_legacy",
        )


@contextmanager
def _told_as_errors_of_ours() -> Iterator[None]:
    try:
        yield
    except (exc.OperationalError, exc.InterfaceError) as error:
        raise JournalUnavailable(
            f"the old database can't be reached ({_first_line(error)})",
            "see that it runs and that its address is right",
        ) from None
    except exc.DBAPIError as error:
        raise ConfigurationError(
            f"the old database can't be read ({_first_line(error)})",
            "see that the address is right and that its user may read all tables",
        ) from None
    except UnicodeDecodeError:
        raise ConfigurationError("the old database has text that is not in its encoding", "correct it there") from None


def _first_line(error: exc.DBAPIError) -> str:
    lines = str(error.orig).strip().splitlines()
    return lines[0] if lines else type(error.orig).__name__


UNDELIVERED = ("wait", "exec")
"""States of events that the old broker still has to deliver."""


def read_legacy(address: str) -> OldBus:
    """Read the configuration in the old database; write nothing there.

    Args:
        address: as for :func:`reading_legacy`.

    Raises:
        ConfigurationError: the address is invalid, or the database is not one of xbus.broker 0.2.0.
        JournalUnavailable: the database can't be reached.
    """
    with reading_legacy(address) as connection:
        return OldBus(
            services=_services(connection),
            event_types=_event_types(connection),
            nodes=_nodes(connection),
            roles=_roles(connection),
            profiles=_profiles(connection),
            emitters=_emitters(connection),
            users=_users(connection),
            descriptors=_descriptors(connection),
            emission_profiles=_emission_profiles(connection),
            without_counterpart=_without_counterpart(connection),
            undelivered=_undelivered(connection),
        )


def _services(connection: Connection) -> tuple[OldService, ...]:
    rows = connection.execute(select(service).order_by(service.c.name))
    return tuple(OldService(str(row.id), row.name, bool(row.is_consumer)) for row in rows)


def _event_types(connection: Connection) -> tuple[OldEventType, ...]:
    rows = connection.execute(select(event_type).order_by(event_type.c.name))
    return tuple(OldEventType(str(row.id), row.name, bool(row.immediate_reply)) for row in rows)


def _nodes(connection: Connection) -> tuple[OldNode, ...]:
    children = grouped(connection.execute(select(event_node_rel.c.parent_id, event_node_rel.c.child_id)))
    rows = connection.execute(select(event_node).order_by(event_node.c.id))
    return tuple(
        OldNode(
            *(str(row.id), str(row.type_id), str(row.service_id), bool(row.is_start)),
            tuple(sorted(map(str, children[row.id]))),
        )
        for row in rows
    )


def _roles(connection: Connection) -> tuple[OldRole, ...]:
    rows = connection.execute(select(role).order_by(role.c.login))
    return tuple(OldRole(row.login, row.password, str(row.service_id)) for row in rows)


def _profiles(connection: Connection) -> tuple[OldProfile, ...]:
    allows = emitter_profile_event_type_rel.c
    allowed = grouped(connection.execute(select(allows.profile_id, allows.event_id)))
    rows = connection.execute(select(emitter_profile).order_by(emitter_profile.c.name))
    return tuple(OldProfile(str(row.id), row.name, frozenset(map(str, allowed[row.id]))) for row in rows)


def _emitters(connection: Connection) -> tuple[OldEmitter, ...]:
    rows = connection.execute(select(emitter).order_by(emitter.c.login))
    return tuple(OldEmitter(row.login, row.password, str(row.profile_id)) for row in rows)


def _users(connection: Connection) -> tuple[OldUser, ...]:
    permissions = _permissions(connection)
    rows = connection.execute(select(user).order_by(user.c.user_name))
    return tuple(
        OldUser(
            *(str(row.user_id), row.user_name, row.display_name, row.email_address, row.password),
            frozenset(permissions.get(row.user_id, ())),
        )
        for row in rows
    )


def _permissions(connection: Connection) -> Mapping[int, Sequence[str]]:
    """Read the names of permissions by the id of the user whose groups have them."""
    if not all(inspect(connection).has_table(each.name) for each in MEMBERSHIPS):
        return {}
    rows = connection.execute(
        select(user_group.c.user_id, permission.c.permission_name)
        .join(group_permission, group_permission.c.group_id == user_group.c.group_id)
        .join(permission, permission.c.permission_id == group_permission.c.permission_id)
        .where(permission.c.permission_name.is_not(None))
    )
    return grouped(rows)


def _descriptors(connection: Connection) -> tuple[OldDescriptor, ...]:
    rows = connection.execute(select(input_descriptor).order_by(input_descriptor.c.name))
    return tuple(OldDescriptor(str(row.id), row.name, bytes(row.descriptor), row.descriptor_mimetype) for row in rows)


def _emission_profiles(connection: Connection) -> tuple[OldEmissionProfile, ...]:
    rows = connection.execute(select(emission_profile).order_by(emission_profile.c.name))
    return tuple(
        OldEmissionProfile(row.name, _id(row.owner_id), _id(row.input_descriptor_id), row.encoding) for row in rows
    )


def _id(value: Any) -> str | None:
    return None if value is None else str(value)


def _without_counterpart(connection: Connection) -> dict[str, int]:
    described = (
        _count(connection, table, or_(*(func.coalesce(column, "") != "" for column in columns)))
        for table, columns in (
            (service, (service.c.description,)),
            (event_type, (event_type.c.description,)),
            (emitter_profile, (emitter_profile.c.description, emitter_profile.c.display_name)),
        )
    )
    return {"description": sum(described)}


def _undelivered(connection: Connection) -> int:
    missed = event_consumer_inactive_rel.c
    partly = select(func.count(missed.event_id.distinct())).where(missed.retry_event_id.is_(None))
    of_them: int = connection.execute(partly).scalar_one()
    return of_them + _count(connection, event, event.c.execution_state.in_(UNDELIVERED))


def _count(connection: Connection, table: FromClause, *conditions: ColumnElement[bool]) -> int:
    number: int = connection.execute(select(func.count()).select_from(table).where(*conditions)).scalar_one()
    return number
