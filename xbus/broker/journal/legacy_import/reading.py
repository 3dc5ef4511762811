"""Reads the configuration out of a database of xbus.broker 0.2.0."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, FromClause, func, inspect, or_, select

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
from xbus.broker.journal.legacy_import.source import reading_legacy
from xbus.broker.journal.legacy_import.tables import (
    MEMBERSHIPS,
    emission_profile,
    emitter,
    emitter_profile,
    emitter_profile_event_type_rel,
    event,
    event_consumer_inactive_rel,
    event_node,
    event_node_rel,
    event_type,
    group_permission,
    input_descriptor,
    permission,
    role,
    service,
    user,
    user_group,
)

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
