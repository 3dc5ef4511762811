"""Carries out a plan: the statements that change the configuration."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import datetime
from itertools import count

from sqlalchemy import ColumnElement, Connection, Table, case, delete, func, insert, select, update

from xbus.broker.journal.audit import Act, act_here
from xbus.broker.journal.configuration.bots import (
    end_reader,
    remove_emitter,
    rename_emitter,
    rename_reader,
    write_bot,
    write_subscription,
)
from xbus.broker.journal.configuration.chaining import SEPARATOR, EmittingNode, emitting_nodes, stored_nodes
from xbus.broker.journal.configuration.decisions import take_first_graph
from xbus.broker.journal.configuration.entries import (
    BotSpec,
    BusSpec,
    EmitterSpec,
    Entry,
    EventTypeSpec,
    NodeSpec,
    ProfileSpec,
    ReaderSpec,
    RoleSpec,
    Section,
    ServiceSpec,
    Start,
    SubscriptionSpec,
)
from xbus.broker.journal.configuration.history import new_version
from xbus.broker.journal.configuration.logins import (
    delete_api_tokens,
    end_sessions,
    logins_without_password,
    replace_keys,
    set_password,
)
from xbus.broker.journal.configuration.plan import Change, Move, Plan, make_plan
from xbus.broker.journal.configuration.reading import read_current_nodes, read_stored
from xbus.broker.journal.database.rows import columns_of
from xbus.broker.journal.log.catalog import RetrySettings, name_column
from xbus.broker.journal.log.reading import is_kept, read_head
from xbus.broker.journal.operations.event_types import write_paths
from xbus.broker.journal.readers.settings import make_ranges, write_settings
from xbus.broker.journal.retention.lagging import write_limit
from xbus.broker.journal.writes import NO_LIMITS, SendingLimits
from xbus.clock import Clock, SystemClock
from xbus.errors import ConfigurationError
from xbus.model import (
    bot,
    cursor,
    edge,
    emitter,
    emitter_profile,
    emitting_service,
    envelope,
    event_type,
    graph,
    node,
    profile_event_type,
    role,
    sending_limit,
    service,
    subscription,
)
from xbus.passwords import Passwords

TABLES: Mapping[Section, Table] = {
    Section.SERVICE: service,
    Section.EVENT_TYPE: event_type,
    Section.READER: service,
    Section.ROLE: role,
    Section.EMITTER_PROFILE: emitter_profile,
    Section.EMITTER: emitter,
    Section.BOT: bot,
    Section.SUBSCRIPTION: subscription,
}
"""The table of each section, and each section after those that its entries refer to."""


def apply(
    connection: Connection,
    plan: Plan,
    at: datetime,
    *,
    finish: Callable[[], None] | None = None,
    acts: Sequence[Act] = (),
) -> None:
    """Make the changes of ``plan`` in the caller's transaction, and keep them in the history.

    No row is deleted to which the journal refers: an entry out of use keeps its row and gets ``removed_at``.

    Args:
        connection: with a transaction open; it must be rolled back when this raises.
        plan: without problems; an empty one changes nothing, not even the version.
        at: the moment of the change.
        finish: writes what else belongs to the change, if there is any: outside of it that would be an edit by hand.
        acts: what else the audit is told of it.

    Raises:
        ConfigurationError: the plan has problems, or the configuration was changed since it was made.
    """
    if plan.problems:
        raise ConfigurationError(
            "; ".join(problem.sentence for problem in plan.problems), "correct them all, then apply"
        )
    if plan.changes:
        told = [*_acts(plan, at), *acts]
        reason = "; ".join(map(str, plan.changes))
        with new_version(connection, "applied", reason, at, acts=told, expected=plan.version):
            _carry_out(connection, plan, at)
            if finish is not None:
                finish()


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
    """Write what is set of an entry, or the values of some of its fields, as JSON."""
    wanted = names or [
        field.name
        for field in fields(entry)
        if field.compare and field.name not in ("name", "login") and getattr(entry, field.name) is not None
    ]
    is_hidden = isinstance(entry, SubscriptionSpec)
    values = {name: "(hidden)" if is_hidden and name == "secret" else getattr(entry, name) for name in wanted}
    return json.dumps(values, default=_plain, ensure_ascii=False)


def _plain(value: object) -> object:
    match value:
        case NodeSpec(name=_, service=service, to=to, emits=emits):
            of_service = {"service": service, "to": to} if service else {}
            return of_service | ({"emits": emits} if emits else {})
        case frozenset():
            return sorted(value)
        case Mapping():
            return dict(value)
        case SendingLimits() | RetrySettings():
            return {name: limit for name, limit in asdict(value).items() if limit is not None}
    return str(value)


def _carry_out(connection: Connection, plan: Plan, at: datetime) -> None:
    for change in plan.renames:
        _rename(connection, change)
    others = [change for change in plan.changes if change.move is not Move.RENAME]
    for section in TABLES:
        of_section = [change for change in others if change.section is section]
        for change in of_section:
            if change.move is Move.REMOVE:
                _remove(connection, change, at)
            else:
                _write(connection, change, at)
        for change in of_section:
            # Nodes may emit types that came behind their own, and profiles name one another.
            if isinstance(change.entry, EventTypeSpec) and change.move is not Move.REMOVE:
                _write_nodes(connection, change.entry, at)
            if isinstance(change.entry, ProfileSpec) and change.move is not Move.REMOVE:
                _write_clients(connection, change.entry)


def _write(connection: Connection, change: Change, at: datetime) -> None:
    match change.entry:
        case ServiceSpec() as entry:
            _put(connection, service, entry.name, **columns_of(entry, "name"))
        case EventTypeSpec() as entry:
            columns = columns_of(entry, "name", "nodes", "secret")
            _put(connection, event_type, entry.name, **columns, secret=write_paths(entry.secret))
        case ReaderSpec() as entry:
            _write_reader(connection, entry)
        case RoleSpec() as entry:
            _write_role(connection, entry)
        case ProfileSpec() as entry:
            _write_profile(connection, entry)
        case EmitterSpec(login, profile) as entry:
            profile_id = _id(connection, emitter_profile, profile)
            public_keys = replace_keys(connection, emitter, login, entry.keys)
            emitter_id = _put(connection, emitter, login, profile_id=profile_id, public_keys=public_keys)
            _write_limits(connection, emitter, emitter_id, entry.limits)
        case BotSpec() as entry:
            write_bot(connection, entry, at)
            if entry.reads:
                _write_reader(connection, entry.reader)
            else:
                end_reader(connection, entry, at)
        case SubscriptionSpec() as entry:
            write_subscription(connection, entry, _write_reader(connection, entry.reader, **asdict(entry.retry)))


def _rename(connection: Connection, change: Change) -> None:
    """Give a row another name; what refers to it does so by its id."""
    table = TABLES[change.section]
    named = update(table).where(name_column(table) == change.former).values({name_column(table).name: change.name})
    connection.execute(named)
    if table is bot:
        rename_emitter(connection, change.former, change.name)
    if table is subscription:
        rename_reader(connection, change.name)
    if table is event_type:
        _rename_own(connection, change)


def _rename_own(connection: Connection, change: Change) -> None:
    """Have all that the bus has of its own for a type's nodes be called by the type's new name."""
    own = select(service.c.name).join(emitting_service, emitting_service.c.service_id == service.c.id)
    for name in connection.execute(own).scalars().all():
        former, separator, node_name = name.partition(SEPARATOR)
        if (former, separator) == (change.former, SEPARATOR):
            for table in (service, role, emitter_profile, emitter):
                new = {name_column(table).name: f"{change.name}{SEPARATOR}{node_name}"}
                connection.execute(update(table).where(name_column(table) == name).values(new))


def _remove(connection: Connection, change: Change, at: datetime) -> None:
    table = TABLES[change.section]
    connection.execute(update(table).where(name_column(table) == change.name).values(removed_at=at))
    if table in (emitter, role):
        end_sessions(connection, table, change.name)
        delete_api_tokens(connection, table, change.name)
    if table is role:
        end_cursor(connection, _id(connection, role, change.name))
    if table is event_type:
        # One that a program made is an operator's from now on: a push does not bring it back.
        of_name = update(table).where(name_column(table) == change.name)
        connection.execute(of_name.values(is_topic=False, publisher_id=None))
    if table is bot:
        remove_emitter(connection, change.name, at)
    if table is subscription:
        of_own = select(subscription.c.service_id).where(subscription.c.name == change.name)
        connection.execute(update(service).where(service.c.id.in_(of_own)).values(removed_at=at))


def _free_key(connection: Connection, name: str) -> str:
    """Make the key of a new service: its name, unless a renamed service has that key."""
    taken = set(connection.execute(select(service.c.key)).scalars())
    candidates = (name if number == 1 else f"{name}#{number}" for number in count(1))
    return next(key for key in candidates if key not in taken)


def _write_nodes(connection: Connection, entry: EventTypeSpec, at: datetime) -> None:
    event_type_id = _id(connection, event_type, entry.name)
    present = read_current_nodes(connection, event_type_id)
    if present != entry.nodes:
        for own in emitting_nodes(entry):
            _write_own(connection, own)
        graph_id = _write_graph(connection, event_type_id, entry, at)
        if present is not None and not present:
            take_first_graph(connection, entry, graph_id, at)


def _write_own(connection: Connection, own: EmittingNode) -> None:
    """Write what the bus has of its own for a node that emits: service, role, profile and emitter."""
    service_id = _put(connection, service, own.owner, kind="consumer")
    type_id = _id(connection, event_type, own.emits)
    emitted = select(emitting_service.c.event_type_id).where(emitting_service.c.service_id == service_id)
    match connection.execute(emitted).scalar_one_or_none():
        case None:
            connection.execute(insert(emitting_service).values(service_id=service_id, event_type_id=type_id))
        case former if former != type_id:
            # Envelopes of before may still be on their way to it.
            raise ConfigurationError(
                f'a node "{own.name}" of this event type emitted another type than "{own.emits}" before',
                "take another name for the node",
                code="node_emits_other",
            )
    start_cursor(connection, _put(connection, role, own.owner, service_id=service_id), None)
    _write_profile(connection, ProfileSpec(own.owner, frozenset({own.emits})))
    _put(connection, emitter, own.owner, profile_id=_id(connection, emitter_profile, own.owner), kind="node")


def _write_graph(connection: Connection, event_type_id: int, entry: EventTypeSpec, at: datetime) -> int:
    """Add a version, and return its id: events that were started with an older one keep it."""
    versions = select(func.count()).where(graph.c.event_type_id == event_type_id)
    number = connection.execute(versions).scalar_one() + 1
    graph_id = _insert(connection, graph, event_type_id=event_type_id, number=number, created_at=at)
    nodes = stored_nodes(entry).values()
    aside = {own.name for own in emitting_nodes(entry) if own.aside}
    ids = {
        each.name: _insert(
            connection,
            node,
            graph_id=graph_id,
            name=each.name,
            service_id=_id(connection, service, each.service),
            aside=each.name in aside,
        )
        for each in nodes
    }
    for each in nodes:
        for child in each.to:
            connection.execute(insert(edge).values(parent_id=ids[each.name], child_id=ids[child]))
    return graph_id


def _write_role(connection: Connection, entry: RoleSpec) -> None:
    service_row = connection.execute(select(service).where(service.c.name == entry.service)).one()
    columns = columns_of(entry, "login", "service", "keys", "max_lag", "when_behind")
    public_keys = replace_keys(connection, role, entry.login, entry.keys)
    role_id = _put(connection, role, entry.login, service_id=service_row.id, public_keys=public_keys, **columns)
    write_limit(connection, "role", role_id, entry.max_lag, entry.when_behind)
    if service_row.kind == "consumer":
        start_cursor(connection, role_id, entry.start)


def _write_reader(connection: Connection, entry: ReaderSpec, **retry: object) -> int:
    """Write a reader; gives its id. A new one gets its ranges at its start; a former one goes on where it stood."""
    service_id = _put(connection, service, entry.name, kind="reader", **retry)
    types = [_id(connection, event_type, name) for name in sorted(entry.event_types)]
    write_limit(connection, "reader", service_id, entry.max_lag, entry.when_behind)
    settings = columns_of(entry, "name", "event_types", "max_lag", "when_behind")
    if write_settings(connection, service_id, settings, types):
        make_ranges(connection, service_id, entry.ranges, position_before(connection, entry.start or "head") + 1)
    return service_id


def _write_profile(connection: Connection, entry: ProfileSpec) -> None:
    profile_id = _put(connection, emitter_profile, entry.name, new_types=entry.new_types, keep_keys=entry.keep_keys)
    connection.execute(delete(profile_event_type).where(profile_event_type.c.profile_id == profile_id))
    for name in sorted(entry.event_types):
        event_type_id = _id(connection, event_type, name)
        connection.execute(insert(profile_event_type).values(profile_id=profile_id, event_type_id=event_type_id))
    _write_limits(connection, emitter_profile, profile_id, entry.limits)


def _write_clients(connection: Connection, entry: ProfileSpec) -> None:
    clients_id = None if entry.clients is None else _id(connection, emitter_profile, entry.clients)
    of_name = emitter_profile.c.name == entry.name
    connection.execute(update(emitter_profile).where(of_name).values(clients_id=clients_id))


def _write_limits(connection: Connection, table: Table, subject_id: int, limits: SendingLimits) -> None:
    of_subject = (sending_limit.c.kind == table.name, sending_limit.c.subject_id == subject_id)
    connection.execute(delete(sending_limit).where(*of_subject))
    if limits != NO_LIMITS:
        row = {"kind": table.name, "subject_id": subject_id, **asdict(limits)}
        connection.execute(insert(sending_limit).values(row))


def _put(connection: Connection, table: Table, name: str, /, **values: object) -> int:
    """Bring the row of that name to ``values`` and into use, or insert it; returns its id."""
    found = connection.execute(update(table).where(name_column(table) == name).values(removed_at=None, **values))
    if found.rowcount:
        return _id(connection, table, name)
    key = {"key": _free_key(connection, name)} if table is service else {}
    return _insert(connection, table, **{name_column(table).name: name}, **key, **values)


def _insert(connection: Connection, table: Table, /, **values: object) -> int:
    new_id: int = connection.execute(insert(table).values(**values).returning(table.c.id)).scalar_one()
    return new_id


def _id(connection: Connection, table: Table, name: str) -> int:
    row_id: int = connection.execute(select(table.c.id).where(name_column(table) == name)).scalar_one()
    return row_id


def start_cursor(connection: Connection, role_id: int, start: Start | None = None) -> None:
    """Give a consumer role its place in the log.

    Unless ``start`` says otherwise the first role that its service ever had starts with all that waits for the service;
    further ones start at the head. A role that comes back goes on where it stood, as if it had only been absent: so
    applying an old file again undoes a removal made by mistake, and nothing that it was owed is lost. One that was
    detached stays so.
    """
    is_detached = select(role.c.detached_at.is_not(None)).where(role.c.id == role_id).scalar_subquery()
    until_position = case((is_detached, cursor.c.until_position), else_=None)
    returned = connection.execute(
        update(cursor).where(cursor.c.role_id == role_id).values(until_position=until_position)
    )
    if returned.rowcount == 0:
        position = _position_before(connection, role_id, start)
        connection.execute(
            insert(cursor).values(
                role_id=role_id, from_position=position + 1, position=position, handed_to=position, done=b""
            )
        )


def end_cursor(connection: Connection, role_id: int) -> None:
    """End what a removed role is owed at the present head; a worker role has no cursor and stays."""
    # One that was detached is owed less already.
    of_role = (cursor.c.role_id == role_id) & cursor.c.until_position.is_(None)
    connection.execute(update(cursor).where(of_role).values(until_position=read_head(connection) + 1))


def _has_predecessor(connection: Connection, role_id: int) -> bool:
    service_id = select(role.c.service_id).where(role.c.id == role_id).scalar_subquery()
    others = select(cursor.c.role_id).join(role, role.c.id == cursor.c.role_id).where(role.c.service_id == service_id)
    return connection.execute(others.limit(1)).first() is not None


def _position_before(connection: Connection, role_id: int, start: Start | None) -> int:
    """Find the last position that a new role is not owed."""
    if start is None:
        return read_head(connection) if _has_predecessor(connection, role_id) else 0
    return position_before(connection, start)


def position_before(connection: Connection, start: Start) -> int:
    """Find the last position before a start."""
    match start:
        case "head":
            return read_head(connection)
        case "oldest":
            return _before_first(connection, is_kept())
        case int():
            return min(start - 1, read_head(connection))
        case _:
            return _before_first(connection, envelope.c.closed_at >= start)


def _before_first(connection: Connection, which: ColumnElement[bool]) -> int:
    """Find the position before the first received envelope of some; the head if none is received."""
    first = select(envelope.c.position).where(envelope.c.position.is_not(None), which)
    position = connection.execute(first.order_by(envelope.c.position).limit(1)).scalar_one_or_none()
    return read_head(connection) if position is None else position - 1


# -- demo --------------------------------------------------------------------------------------------------------------
# The classic demo rows, which tutorials of the bus have always used; for trying only.

DEMO_PASSWORD = "password"  # noqa: S105
"""Known to everyone, so fit for nothing but a try."""

DEMO_LOGINS = frozenset({"test_emitter", "consumer_role", "worker_role"})


def demo_bus() -> BusSpec:
    """Make one event type that reaches one consumer by two ways: as emitted, and through a worker."""
    nodes = (
        NodeSpec("consumer", "consumer_service"),
        NodeSpec("worker", "worker_service", ("worker_consumer",)),
        NodeSpec("worker_consumer", "consumer_service"),
    )
    return BusSpec(
        event_types={"test_event": EventTypeSpec("test_event", False, {node.name: node for node in nodes})},
        services={
            "consumer_service": ServiceSpec("consumer_service", "consumer"),
            "worker_service": ServiceSpec("worker_service", "worker"),
        },
        roles={
            "consumer_role": RoleSpec("consumer_role", "consumer_service"),
            "worker_role": RoleSpec("worker_role", "worker_service"),
        },
        profiles={"test_profile": ProfileSpec("test_profile", frozenset({"test_event"}))},
        emitters={"test_emitter": EmitterSpec("test_emitter", "test_profile")},
    )


def add_demo_rows(connection: Connection, passwords: Passwords | None = None, clock: Clock | None = None) -> None:
    """Add the demo rows, or restore them, in the caller's transaction; repeats are harmless.

    A password that was set meanwhile stays.

    Raises:
        ConfigurationError: an entry of the same name is in the way, such as a service of another kind.
    """
    at = (clock or SystemClock()).now()
    apply(connection, make_plan(read_stored(connection), demo_bus()), at)
    missing = [(kind, login) for kind, login in logins_without_password(connection) if login in DEMO_LOGINS]
    if missing:
        hasher = passwords or Passwords()
        for kind, login in missing:
            set_password(connection, kind, login, hasher.hash_password(DEMO_PASSWORD), at)
