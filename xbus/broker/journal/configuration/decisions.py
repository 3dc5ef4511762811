"""Notes an administrator's decisions about owed envelopes together with the change; the back carries them out."""

from collections.abc import Collection
from datetime import datetime

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.audit import act_here, note_acts
from xbus.broker.journal.configuration.entries import EventTypeSpec, RoleSpec, Section
from xbus.broker.journal.configuration.owed import Owed, edits, read_role, removed_roles
from xbus.broker.journal.configuration.plan import Change, Move, Plan
from xbus.broker.journal.log.backlog_changes import FIRST_GRAPH, empty_versions, lost_services
from xbus.broker.journal.log.deliveries import read_cursors
from xbus.broker.journal.log.envelopes import is_in
from xbus.broker.journal.log.event_states import DROPPED, REROUTED
from xbus.broker.journal.log.reading import read_head
from xbus.errors import ConfigurationError
from xbus.states import EnvelopeState


def heirs(connection: sa.Connection, plan: Plan, to: str | None) -> dict[str, str]:
    """Find for each consumer role that ``plan`` removes the login of the role that gets its backlog.

    Args:
        to: the login of that role; None for the only other role of its service.

    Raises:
        ConfigurationError: no role can get it, or ``to`` does not say which one.
    """
    going = {change.name for change in removed_roles(plan)}
    added = {
        change.name: change.entry.service
        for change in plan.changes
        if isinstance(change.entry, RoleSpec) and change.move is not Move.REMOVE
    }
    found: dict[str, str] = {}
    for login in sorted(going):
        row = read_role(connection, login)
        if read_cursors(connection).get(row.id) is None:
            continue
        stored = sa.select(model.role.c.login).where(
            model.role.c.service_id == row.service_id, model.role.c.removed_at.is_(None)
        )
        others = {plan.name_of(Section.ROLE, other) for other in connection.execute(stored).scalars()} - going
        others |= {name for name, service in added.items() if service == plan.name_of(Section.SERVICE, row.service)}
        if (to is None and len(others) != 1) or (to is not None and to not in others):
            names = ", ".join(f'"{name}"' for name in sorted(others)) or "none"
            raise ConfigurationError(
                f'the backlog of role "{login}" can go to another role of its service "{row.service}" only: {names}',
                "name one with --to, or answer keep or drop",
                code="no_heir",
            )
        found[login] = to or others.pop()
    return found


def decide(connection: sa.Connection, plan: Plan, owed: Owed, heirs: dict[str, str], at: datetime) -> None:
    """Note the decision about a backlog in the transaction that applies ``plan``; the back carries it out.

    Args:
        plan: applied.
        owed: the answer.
        heirs: see :func:`heirs`.
        at: the moment of the change.
    """
    if owed is Owed.KEEP:
        return
    move = DROPPED if owed is Owed.DROP else REROUTED
    for change in removed_roles(plan):
        row = read_role(connection, change.name)
        until = connection.execute(
            sa.select(model.cursor.c.until_position).where(model.cursor.c.role_id == row.id)
        ).scalar_one_or_none()
        if until is not None:
            heir = read_role(connection, heirs[change.name]).id if owed is Owed.REROUTE else None
            to = f', rerouted to role "{heirs[change.name]}"' if heir is not None else ", what it was owed dropped"
            _store(
                connection,
                *(move, at, f'role "{change.name}" was removed{to}'),
                *([row.id], until - 1),
                role_id=row.id,
                to_role_id=heir,
            )
    for change, entry in edits(plan):
        _decide_edit(connection, change, entry, move, at)


def _decide_edit(connection: sa.Connection, change: Change, entry: EventTypeSpec, move: str, at: datetime) -> None:
    graph_id = _newest_graph(connection, entry.name)
    graphs, services = lost_services(connection, graph_id)
    if not services or not _is_edited(connection, change, graph_id, at):
        return
    if move == REROUTED and not entry.immediate_reply:
        _take_graph(connection, graphs, graph_id)
    lost = model.service.c.key.in_(services)
    roles = connection.execute(sa.select(model.role.c.id).join(model.service).where(lost)).scalars()
    shown = connection.execute(sa.select(model.service.c.name).where(lost).order_by(model.service.c.name)).scalars()
    names = ", ".join(f'"{name}"' for name in shown)
    reason = f'{Section.EVENT_TYPE} "{entry.name}" leads no longer to {names}, what was owed {move}'
    until = read_head(connection)
    _store(connection, move, at, reason, list(roles), until, graph_id=graph_id)


def take_first_graph(connection: sa.Connection, entry: EventTypeSpec, graph_id: int, at: datetime) -> None:
    """Have events take the first graph of their type that were started while it led nowhere.

    The back sees to events that are sealed already, and to those that a front starts before it knows.
    """
    older = empty_versions(connection, graph_id)
    if not entry.immediate_reply:
        _take_graph(connection, older, graph_id)
    reason = f'{Section.EVENT_TYPE} "{entry.name}" led nowhere when it was started'
    values = {"move": FIRST_GRAPH, "at": at, "reason": reason, "position": 0, "graph_id": graph_id}
    connection.execute(sa.insert(model.decision).values(**values))


def _is_edited(connection: sa.Connection, change: Change, graph_id: int, at: datetime) -> bool:
    """Check whether a change has just made a version; a type may also come back with its former nodes."""
    if change.move is Move.CHANGE:
        return "nodes" in change.fields
    made = connection.execute(sa.select(model.graph.c.created_at).where(model.graph.c.id == graph_id)).scalar_one()
    return bool(made == at)


def _newest_graph(connection: sa.Connection, type_name: str) -> int:
    """Read the id of the newest version of a type's graph."""
    versions = sa.select(model.graph.c.id).join(model.event_type).where(model.event_type.c.name == type_name)
    found: int = connection.execute(versions.order_by(model.graph.c.number.desc()).limit(1)).scalar_one()
    return found


def _take_graph(connection: sa.Connection, older: Collection[int], graph_id: int) -> None:
    """Have the events of envelopes that are still open, which nobody has seen, take a new graph."""
    is_open = sa.select(model.envelope.c.id).where(is_in(EnvelopeState.OPEN))
    connection.execute(
        sa.update(model.event)
        .where(model.event.c.envelope_id.in_(is_open), model.event.c.graph_id.in_(older))
        .values(graph_id=graph_id)
    )


def _store(
    connection: sa.Connection,
    move: str,
    at: datetime,
    reason: str,
    role_ids: list[int],
    until: int,
    **subject: int | None,
) -> None:
    """Store a decision, which begins at the lowest cursor of some roles."""
    cursor, delivery = model.cursor.c, model.delivery.c
    stand = sa.select(sa.func.min(cursor.position)).where(cursor.role_id.in_(role_ids))
    row = sa.select(sa.func.min(delivery.position) - 1).where(delivery.role_id.in_(role_ids))
    starts = [connection.execute(statement).scalar_one() for statement in (stand, row)]
    # A service without any role is owed all that waits for its first one.
    position = min((start for start in starts if start is not None), default=0)
    values = {"move": move, "at": at, "reason": reason, "position": position, "until_position": until, **subject}
    connection.execute(sa.insert(model.decision).values(**values))
    note_acts(connection, [act_here(at, move, "what is owed", after=reason)])
