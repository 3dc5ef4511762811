"""History that a new role asked for, and that no graph brings to it: its service had no node when that was sent."""

from collections.abc import Iterator
from dataclasses import dataclass

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.configuration import Move, Plan, RoleSpec
from xbus.broker.journal.log.reading import read_head
from xbus.broker.journal.log.repeats import read_consumer_services
from xbus.broker.journal.replay.target import is_rerouting, present_graph, unreached_graphs


@dataclass(frozen=True, slots=True)
class Unreached:
    """Events of a type that a new role wants by its ``start``, and that only a replay brings.

    Args:
        after: a position; they lie above it.
        until: the end of the log when the role was added.
        wants_reply: whether the type's events are answered by an immediate reply, so that they can't be replayed.
        rerouting: whether the back is still to have some of them take the present graph.
    """

    type_name: str
    role: str
    service: str
    after: int
    until: int
    wants_reply: bool
    rerouting: bool


@dataclass(frozen=True, slots=True)
class NoWay:
    """A new role that asked for history by its ``start``, while no event type leads to its service.

    Args:
        after: a position; what it asked for lies above it.
    """

    role: str
    service: str
    after: int


def find_unreached(connection: sa.Connection, plan: Plan) -> list[Unreached | NoWay]:
    """Find the history that the new roles of a plan want and don't get by themselves.

    Args:
        connection: in the transaction in which the plan was applied.
    """
    found: list[Unreached | NoWay] = []
    for change in plan.changes:
        entry = change.entry
        if change.move is Move.ADD and isinstance(entry, RoleSpec) and entry.start not in (None, "head"):
            found += _of_role(connection, entry)
    return found


def _of_role(connection: sa.Connection, role: RoleSpec) -> Iterator[Unreached | NoWay]:
    row = connection.execute(
        sa.select(model.role.c.service_id, model.cursor.c.from_position)
        .join(model.cursor, model.cursor.c.role_id == model.role.c.id)
        .where(model.role.c.login == role.login)
    ).one()
    after, until = row.from_position - 1, read_head(connection)
    event_type = model.event_type.c
    types = connection.execute(sa.select(model.event_type).where(event_type.removed_at.is_(None)).order_by("name"))
    leads_there = False
    for each in types.all():
        graph_id = present_graph(connection, each.id)
        if row.service_id not in read_consumer_services(connection, [graph_id])[graph_id]:
            continue
        leads_there = True
        graphs = unreached_graphs(connection, each.id, row.service_id)
        if graphs:
            rerouting = is_rerouting(connection, each.id)
            yield Unreached(each.name, role.login, role.service, after, until, each.immediate_reply, rerouting)
    if not leads_there:
        yield NoWay(role.login, role.service, after)
