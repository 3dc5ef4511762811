"""Notes an administrator's decisions about owed envelopes together with the change; the back carries them out."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.audit import act_here, note_acts
from xbus.broker.journal.configuration.chaining import SEPARATOR, stored_nodes
from xbus.broker.journal.configuration.entries import EventTypeSpec, RoleSpec, Section
from xbus.broker.journal.configuration.plan import Change, Move, Plan
from xbus.broker.journal.log.backlog_changes import FIRST_GRAPH, empty_versions, lost_services
from xbus.broker.journal.log.deliveries import read_cursors
from xbus.broker.journal.log.envelopes import is_in
from xbus.broker.journal.log.event_states import DROPPED, REROUTED
from xbus.broker.journal.log.reading import read_head
from xbus.broker.journal.log.role_progress import MOST_COUNTED, is_for
from xbus.errors import ConfigurationError
from xbus.states import EnvelopeState

# -- owed --------------------------------------------------------------------------------------------------------------
# Counts the envelopes owed by the parts that a plan removes, before anything changes.


class Owed(StrEnum):
    """The decision about a backlog of removed entries."""

    KEEP = "keep"
    """Deliver it as before: by the graph with which events were started, and to a role that comes back."""
    DROP = "drop"
    """Drop it, with a row in the history for each delivery."""
    REROUTE = "reroute"
    """Events take the new graph; what a role is owed goes to another role of its service."""


@dataclass(frozen=True)
class Arrears:
    """The backlog of a role that removed entries put in question.

    Args:
        change: what makes it go: a role that is removed, or an event type whose graph leads to its service no longer.
        service: the consumer service.
        role: the login; None for a service that has no role yet.
        envelopes: how many, ``MOST_COUNTED`` at the most.
        first: the lowest position.
        last: the highest position among those counted.
        oldest: when the first of them was sealed.
    """

    change: Change
    service: str
    role: str | None
    envelopes: int
    first: int
    last: int
    oldest: datetime

    def __str__(self) -> str:
        who = f'role "{self.role}"' if self.role is not None else f'service "{self.service}", which has no role yet,'
        more = " or more" if self.envelopes == MOST_COUNTED else ""
        number = "1 envelope" if self.envelopes == 1 else f"{self.envelopes} envelopes"
        where = f"position {self.first}" if self.envelopes == 1 else f"positions {self.first} to {self.last}"
        return f"{who} has not got {number}{more} yet: {where}, the oldest of {self.oldest:%Y-%m-%d %H:%M:%S} UTC"


def read_arrears(connection: sa.Connection, plan: Plan) -> list[Arrears]:
    """Read every backlog that ``plan`` puts in question."""
    return [*_of_roles(connection, plan), *_of_edits(connection, plan)]


def _of_roles(connection: sa.Connection, plan: Plan) -> Iterator[Arrears]:
    for change in removed_roles(plan):
        row = read_role(connection, change.name)
        leading = sa.select(model.node.c.graph_id).where(model.node.c.service_id == row.service_id)
        yield from _count(connection, change, row, connection.execute(leading).scalars().all())


def _of_edits(connection: sa.Connection, plan: Plan) -> Iterator[Arrears]:
    removed = {change.name for change in removed_roles(plan)}
    for change, entry in edits(plan):
        for service_id, name, graphs in _services_of_type(connection, plan, entry):
            roles = connection.execute(
                sa.select(model.role, sa.literal(name).label("service")).where(
                    model.role.c.service_id == service_id, model.role.c.removed_at.is_(None)
                )
            ).all()
            for role in roles:
                if role.login not in removed:
                    yield from _count(connection, change, role, graphs)
            if not roles:
                yield from _count_without_role(connection, change, service_id, name, graphs)


def removed_roles(plan: Plan) -> list[Change]:
    """List the roles that a plan removes."""
    return [change for change in plan.removals if isinstance(change.entry, RoleSpec)]


def edits(plan: Plan) -> list[tuple[Change, EventTypeSpec]]:
    """List the event types that a plan adds or changes."""
    return [
        (change, change.entry)
        for change in plan.changes
        if isinstance(change.entry, EventTypeSpec) and change.move not in (Move.REMOVE, Move.RENAME)
    ]


def _services_of_type(
    connection: sa.Connection, plan: Plan, entry: EventTypeSpec
) -> Iterator[tuple[int, str, list[int]]]:
    """Find the consumer services that a type's newest graph reaches and ``entry`` does not.

    Yield id, new name, and all versions that lead there.
    """
    versions = connection.execute(
        sa.select(model.graph.c.id)
        .join(model.event_type)
        .where(model.event_type.c.name == plan.stored_name(Section.EVENT_TYPE, entry.name))
        .order_by(model.graph.c.number)
    ).scalars()
    graphs = list(versions)
    if not graphs:
        return
    newest = (
        sa.select(model.service.c.id, model.service.c.name, model.emitting_service.c.service_id.is_not(None))
        .join(model.node, model.node.c.service_id == model.service.c.id)
        .outerjoin(model.emitting_service, model.emitting_service.c.service_id == model.service.c.id)
        .where(model.node.c.graph_id == graphs[-1], model.service.c.kind == "consumer")
        .distinct()
        .order_by(model.service.c.name)
    )
    wished = {node.service for node in stored_nodes(entry).values()}
    former = plan.stored_name(Section.EVENT_TYPE, entry.name) + SEPARATOR
    for service_id, stored, is_own in connection.execute(newest).all():
        name = plan.name_of(Section.SERVICE, stored)
        if is_own:
            name = f"{entry.name}{SEPARATOR}{stored.removeprefix(former)}"
        if name not in wished:
            leading = sa.select(model.node.c.graph_id).where(
                model.node.c.graph_id.in_(graphs), model.node.c.service_id == service_id
            )
            yield service_id, name, list(connection.execute(leading.distinct()).scalars())


def read_role(connection: sa.Connection, login: str) -> "sa.Row[tuple[object, ...]]":
    """Read the row of a role, with the name of its service."""
    statement = sa.select(model.role, model.service.c.name.label("service"))
    return connection.execute(statement.join(model.service).where(model.role.c.login == login)).one()


def _count(
    connection: sa.Connection, change: Change, role: "sa.Row[tuple[object, ...]]", graphs: Collection[int]
) -> Iterator[Arrears]:
    cursor = read_cursors(connection).get(role.id)
    if cursor is None:
        return
    envelope, delivery = model.envelope.c, model.delivery.c
    ahead = connection.execute(
        sa.select(envelope.position)
        .where(envelope.position > cursor.position, _takes(graphs), is_for(role.id))
        .order_by(envelope.position)
        .limit(MOST_COUNTED + cursor.above.bit_count())
    )
    rows = connection.execute(
        sa.select(delivery.position)
        .join(model.envelope, envelope.id == delivery.envelope_id)
        .where(delivery.role_id == role.id, _takes(graphs))
        .order_by(delivery.position)
        .limit(MOST_COUNTED)
    )
    lacking = {position for position in ahead.scalars() if cursor.owes(position) and not cursor.is_settled(position)}
    yield from _arrears(connection, change, role.service, role.login, lacking.union(rows.scalars()))


def _count_without_role(
    connection: sa.Connection, change: Change, service_id: int, name: str, graphs: Collection[int]
) -> Iterator[Arrears]:
    """Count what waits for the first role of a service that never had one."""
    ever = sa.select(model.role.c.id).where(model.role.c.service_id == service_id).limit(1)
    if connection.execute(ever).first() is None:
        position = model.envelope.c.position
        waiting = sa.select(position).where(position.is_not(None), _takes(graphs)).order_by(position)
        found = connection.execute(waiting.limit(MOST_COUNTED)).scalars()
        yield from _arrears(connection, change, name, None, set(found))


def _takes(graphs: Collection[int]) -> sa.ColumnElement[bool]:
    return sa.exists().where(model.event.c.envelope_id == model.envelope.c.id, model.event.c.graph_id.in_(list(graphs)))


def _arrears(
    connection: sa.Connection, change: Change, service: str, role: str | None, positions: set[int]
) -> Iterator[Arrears]:
    if positions:
        counted = sorted(positions)[:MOST_COUNTED]
        oldest = sa.select(model.envelope.c.closed_at).where(model.envelope.c.position == counted[0])
        yield Arrears(
            *(change, service, role, len(counted), counted[0], counted[-1]),
            oldest=connection.execute(oldest).scalar_one(),
        )


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
