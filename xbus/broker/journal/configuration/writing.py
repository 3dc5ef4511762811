"""Carries out a plan: the statements that change the configuration."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import datetime
from itertools import count

from sqlalchemy import ColumnElement, Connection, Table, delete, func, insert, select, update

from xbus.broker.journal.audit import Act, act_here
from xbus.broker.journal.configuration.cursors import end_cursor, start_cursor
from xbus.broker.journal.configuration.decisions import take_first_graph
from xbus.broker.journal.configuration.entries import (
    EmitterSpec,
    Entry,
    EventTypeSpec,
    NodeSpec,
    ProfileSpec,
    RoleSpec,
    Section,
    ServiceSpec,
)
from xbus.broker.journal.configuration.history import new_version
from xbus.broker.journal.configuration.logins import end_sessions, replace_keys
from xbus.broker.journal.configuration.plan import Change, Move, Plan
from xbus.broker.journal.configuration.reading import read_current_nodes
from xbus.broker.journal.operations.event_types import write_paths
from xbus.broker.journal.writes import NO_LIMITS, SendingLimits
from xbus.errors import ConfigurationError
from xbus.model import (
    edge,
    emitter,
    emitter_profile,
    event_type,
    graph,
    node,
    profile_event_type,
    role,
    sending_limit,
    service,
)

TABLES: Mapping[Section, Table] = {
    Section.EVENT_TYPE: event_type,
    Section.SERVICE: service,
    Section.ROLE: role,
    Section.EMITTER_PROFILE: emitter_profile,
    Section.EMITTER: emitter,
}

ORDER = (Section.SERVICE, Section.EVENT_TYPE, Section.ROLE, Section.EMITTER_PROFILE, Section.EMITTER)
"""Each section after those that its entries refer to."""


def apply(connection: Connection, plan: Plan, at: datetime) -> None:
    """Make the changes of ``plan`` in the caller's transaction, and keep them in the history.

    Nothing that the journal refers to is deleted: what goes out of use keeps its row and gets ``removed_at``.

    Args:
        connection: with a transaction open; it must be rolled back when this raises.
        plan: without problems; an empty one changes nothing, not even the version.
        at: the moment of the change.

    Raises:
        ConfigurationError: the plan has problems, or the configuration was changed since it was made.
    """
    if plan.problems:
        raise ConfigurationError(
            "; ".join(problem.sentence for problem in plan.problems), "correct them all, then apply"
        )
    if plan.changes:
        acts = list(_acts(plan, at))
        reason = "; ".join(map(str, plan.changes))
        with new_version(connection, "applied", reason, at, acts=acts, expected=plan.version):
            _carry_out(connection, plan, at)


def _acts(plan: Plan, at: datetime) -> Iterator[Act]:
    """Describe each change for the audit."""
    for change in plan.changes:
        thing = f'{change.section} "{change.name}"'
        match change.move:
            case Move.RENAME:
                yield act_here(at, "renamed", thing, before=change.former, after=change.name)
            case Move.REMOVE:
                yield act_here(at, "removed", thing, before=_told(change.entry))
            case Move.CHANGE:
                before = "" if change.before is None else _told(change.before, change.fields)
                yield act_here(at, "changed", thing, before=before, after=_told(change.entry, change.fields))
            case Move.ADD | Move.RESTORE:
                action = "added" if change.move is Move.ADD else "restored"
                yield act_here(at, action, thing, after=_told(change.entry))


def _told(entry: Entry, names: Sequence[str] = ()) -> str:
    """Write an entry, or the values of some of its fields, as JSON."""
    wanted = names or [field.name for field in fields(entry) if field.compare and field.name not in ("name", "login")]
    return json.dumps({name: getattr(entry, name) for name in wanted}, default=_plain, ensure_ascii=False)


def _plain(value: object) -> object:
    match value:
        case NodeSpec(name=_, service=service, to=to):
            return {"service": service, "to": to}
        case frozenset():
            return sorted(value)
        case SendingLimits():
            return {name: limit for name, limit in asdict(value).items() if limit is not None}
    return str(value)


def _carry_out(connection: Connection, plan: Plan, at: datetime) -> None:
    for change in plan.renames:
        _rename(connection, change)
    others = [change for change in plan.changes if change.move is not Move.RENAME]
    for change in sorted(others, key=lambda change: ORDER.index(change.section)):
        if change.move is Move.REMOVE:
            _remove(connection, change, at)
        else:
            _write(connection, change, at)


def _write(connection: Connection, change: Change, at: datetime) -> None:
    match change.entry:
        case ServiceSpec() as entry:
            _put(connection, service, entry.name, **_columns(entry, "name"))
        case EventTypeSpec() as entry:
            _write_event_type(connection, entry, at)
        case RoleSpec() as entry:
            _write_role(connection, entry)
        case ProfileSpec() as entry:
            _write_profile(connection, entry)
        case EmitterSpec(login, profile) as entry:
            profile_id = _id(connection, emitter_profile, profile)
            public_keys = replace_keys(connection, emitter, login, entry.keys)
            emitter_id = _put(connection, emitter, login, profile_id=profile_id, public_keys=public_keys)
            _write_limits(connection, emitter, emitter_id, entry.limits)


def _rename(connection: Connection, change: Change) -> None:
    """Give a row another name; what refers to it does so by its id."""
    table = TABLES[change.section]
    named = update(table).where(_name(table) == change.former).values({_name(table).name: change.name})
    connection.execute(named)


def _remove(connection: Connection, change: Change, at: datetime) -> None:
    table = TABLES[change.section]
    connection.execute(update(table).where(_name(table) == change.name).values(removed_at=at))
    if table in (emitter, role):
        end_sessions(connection, table, change.name)
    if table is role:
        end_cursor(connection, _id(connection, role, change.name))


def _free_key(connection: Connection, name: str) -> str:
    """Make the key of a new service: its name, unless a renamed service has that key."""
    taken = set(connection.execute(select(service.c.key)).scalars())
    candidates = (name if number == 1 else f"{name}#{number}" for number in count(1))
    return next(key for key in candidates if key not in taken)


def _write_event_type(connection: Connection, entry: EventTypeSpec, at: datetime) -> None:
    columns = _columns(entry, "name", "nodes", "secret")
    event_type_id = _put(connection, event_type, entry.name, **columns, secret=write_paths(entry.secret))
    present = read_current_nodes(connection, event_type_id)
    if present != entry.nodes:
        graph_id = _write_graph(connection, event_type_id, entry.nodes, at)
        if present is not None and not present:
            take_first_graph(connection, entry, graph_id, at)


def _write_graph(connection: Connection, event_type_id: int, nodes: Mapping[str, NodeSpec], at: datetime) -> int:
    """Add a version, and return its id: events that were started with an older one keep it."""
    versions = select(func.count()).where(graph.c.event_type_id == event_type_id)
    number = connection.execute(versions).scalar_one() + 1
    graph_id = _insert(connection, graph, event_type_id=event_type_id, number=number, created_at=at)
    ids = {
        entry.name: _insert(
            connection, node, graph_id=graph_id, name=entry.name, service_id=_id(connection, service, entry.service)
        )
        for entry in nodes.values()
    }
    for entry in nodes.values():
        for child in entry.to:
            connection.execute(insert(edge).values(parent_id=ids[entry.name], child_id=ids[child]))
    return graph_id


def _write_role(connection: Connection, entry: RoleSpec) -> None:
    service_row = connection.execute(select(service).where(service.c.name == entry.service)).one()
    role_id = _put(
        connection,
        role,
        entry.login,
        service_id=service_row.id,
        ordered=entry.ordered,
        absent_minutes=entry.absent_minutes,
        parked_minutes=entry.parked_minutes,
        instances=entry.instances,
        standby=entry.standby,
        public_keys=replace_keys(connection, role, entry.login, entry.keys),
    )
    if service_row.kind == "consumer":
        start_cursor(connection, role_id, entry.start)


def _write_profile(connection: Connection, entry: ProfileSpec) -> None:
    profile_id = _put(connection, emitter_profile, entry.name)
    connection.execute(delete(profile_event_type).where(profile_event_type.c.profile_id == profile_id))
    for name in sorted(entry.event_types):
        event_type_id = _id(connection, event_type, name)
        connection.execute(insert(profile_event_type).values(profile_id=profile_id, event_type_id=event_type_id))
    _write_limits(connection, emitter_profile, profile_id, entry.limits)


def _write_limits(connection: Connection, table: Table, subject_id: int, limits: SendingLimits) -> None:
    of_subject = (sending_limit.c.kind == table.name, sending_limit.c.subject_id == subject_id)
    connection.execute(delete(sending_limit).where(*of_subject))
    if limits != NO_LIMITS:
        row = {"kind": table.name, "subject_id": subject_id, **asdict(limits)}
        connection.execute(insert(sending_limit).values(row))


def _columns(entry: EventTypeSpec | ServiceSpec, *without: str) -> dict[str, object]:
    """Give an entry's fields that are kept, which have the names of its table's columns."""
    return {
        field.name: getattr(entry, field.name) for field in fields(entry) if field.compare and field.name not in without
    }


def _put(connection: Connection, table: Table, name: str, /, **values: object) -> int:
    """Bring the row of that name to ``values`` and into use, or insert it; returns its id."""
    found = connection.execute(update(table).where(_name(table) == name).values(removed_at=None, **values))
    if found.rowcount:
        return _id(connection, table, name)
    key = {"key": _free_key(connection, name)} if table is service else {}
    return _insert(connection, table, **{_name(table).name: name}, **key, **values)


def _insert(connection: Connection, table: Table, /, **values: object) -> int:
    new_id: int = connection.execute(insert(table).values(**values).returning(table.c.id)).scalar_one()
    return new_id


def _id(connection: Connection, table: Table, name: str) -> int:
    row_id: int = connection.execute(select(table.c.id).where(_name(table) == name)).scalar_one()
    return row_id


def _name(table: Table) -> ColumnElement[str]:
    column: ColumnElement[str] = table.c.login if "login" in table.c else table.c.name
    return column
