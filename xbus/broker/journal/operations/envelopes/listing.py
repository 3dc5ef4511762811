"""Lists envelopes for a person, by what is known of them: type, emitter, role, age, key, and what is undelivered.

Two ways lead through the envelopes, both newest first. By time all envelopes are read in the order in which they were
opened. By the log the table of contents, cursors and delivery rows name the positions worth a look, so that a rare type
or an old delivery is found without reading what lies between.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.rows import NamedRows, find_id
from xbus.broker.journal.log.contents import find_newest
from xbus.broker.journal.log.deliveries import read_cursors
from xbus.broker.journal.log.planning import position_before
from xbus.broker.journal.log.reading import read_head
from xbus.broker.journal.log.role_progress import is_for
from xbus.broker.journal.operations.envelopes.details import (
    EnvelopeSummary,
    envelope_summaries,
    envelope_unknown,
    summarize,
)
from xbus.broker.journal.operations.failures import known_role_id
from xbus.broker.journal.operations.roles import LACKING, read_lacking_roles
from xbus.broker.journal.writes.cursor import Cursor
from xbus.errors import Refused
from xbus.ids import keyed_envelope_id
from xbus.states import EnvelopeState

PAGE_POSITIONS = 100
"""Positions that are looked at in one statement. More read further than a short list needs."""

NOT_SEALED = 2**62
"""The position that an envelope without one has in an order: above all others."""


@dataclass(frozen=True, slots=True)
class EnvelopeFilters:
    """Selects envelopes; None selects all.

    Args:
        state: in this state.
        event_type: with an event of this type.
        emitter: sent by the emitter with this login.
        role: received, and owed to the role with this login once, delivered or not.
        since: opened at this moment or later.
        key: to which an emitter gave this key.
        undelivered: received, and lacked by a role; by ``role`` where one is named.
    """

    state: EnvelopeState | None = None
    event_type: str | None = None
    emitter: str | None = None
    role: str | None = None
    since: datetime | None = None
    key: str | None = None
    undelivered: bool = False

    @property
    def by_log(self) -> bool:
        """True if the log names the envelopes: others than received ones can't match."""
        if self.role is not None or self.undelivered:
            return True
        return self.event_type is not None and self.state in (None, EnvelopeState.RECEIVED)


def list_envelopes(
    connection: sa.Connection,
    filters: EnvelopeFilters = EnvelopeFilters(),
    before: UUID | None = None,
    limit: int = 20,
) -> list[EnvelopeSummary]:
    """List envelopes, the newest first: by the time when they were opened, or by the log where that names them.

    Envelopes that were opened at the same moment are in the order of the log, those that have no position before them.

    Args:
        before: only those after this one: the last one of the page before.
        limit: the most envelopes of a page.

    Raises:
        Refused: no envelope has the id ``before`` (``envelope_unknown``), no type the given name (``unknown_type``), or
            no emitter or role the given login (``unknown_login``).
    """
    conditions = list(_conditions(connection, filters))
    place = None if before is None else _read_place(connection, before)
    if filters.by_log:
        return _list_by_log(connection, filters, conditions, place, limit)
    statement = _by_time(envelope_summaries().where(*conditions), place).limit(limit)
    cursors = read_cursors(connection)
    return [*summarize(connection, connection.execute(statement).all(), cursors)]


# -- conditions --------------------------------------------------------------------------------------------------------


def _conditions(connection: sa.Connection, filters: EnvelopeFilters) -> Iterator[sa.ColumnElement[bool]]:
    envelope = model.envelope.c
    emitter_id = None if filters.emitter is None else _known_emitter_id(connection, filters.emitter)
    if filters.state is not None:
        yield envelope.state == filters.state.value
    if emitter_id is not None:
        yield envelope.emitter_id == emitter_id
    if filters.since is not None:
        yield envelope.opened_at >= filters.since
    if filters.event_type is not None:
        type_id = known_type_id(connection, filters.event_type)
        yield sa.exists().where(model.event.c.envelope_id == envelope.id, model.event.c.event_type_id == type_id)
    if filters.role is not None:
        yield is_for(known_role_id(connection, filters.role))
    if filters.key is not None:
        yield envelope.id.in_(find_keyed_envelopes(connection, filters.key, emitter_id))


def known_type_id(connection: sa.Connection, name: str) -> int:
    """Find the id of an event type, also of a removed one.

    Raises:
        Refused: no event type has or had this name (``unknown_type``).
    """
    found = find_id(connection, model.event_type.c.name, name)
    if found is None:
        raise Refused(f'there is no event type "{name}"', "xbus type list shows the types", code="unknown_type")
    return found


def _known_emitter_id(connection: sa.Connection, login: str) -> int:
    found = find_id(connection, model.emitter.c.login, login)
    if found is None:
        raise Refused(f'there is no emitter "{login}"', "xbus export shows the emitters", code="unknown_login")
    return found


def find_keyed_envelopes(connection: sa.Connection, key: str, emitter_id: int | None) -> list[UUID]:
    """Find the envelopes to which one emitter, or any, gave a key, the newest last.

    A key makes the id, so no search is needed.
    """
    envelope = model.envelope.c
    asked = {emitter_id} if emitter_id is not None else set(connection.execute(sa.select(model.emitter.c.id)).scalars())
    found: list[UUID] = []
    generation = 0
    while asked:
        ids = [keyed_envelope_id(each, key, generation) for each in asked]
        rows = connection.execute(
            sa.select(envelope.id, envelope.emitter_id, envelope.state).where(envelope.id.in_(ids))
        ).all()
        found += [row.id for row in rows]
        # After a cancelled one the emitter may have sent another under the same key.
        asked = {row.emitter_id for row in rows if row.state == EnvelopeState.CANCELLED.value}
        generation += 1
    return found


# -- by time -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _ListPlace:
    """The place of an envelope in a list."""

    envelope_id: UUID
    opened_at: datetime
    position: int | None


def _read_place(connection: sa.Connection, envelope_id: UUID) -> _ListPlace:
    envelope = model.envelope.c
    statement = sa.select(envelope.opened_at, envelope.position).where(envelope.id == envelope_id)
    row = connection.execute(statement).one_or_none()
    if row is None:
        raise envelope_unknown(envelope_id)
    return _ListPlace(envelope_id, row.opened_at, row.position)


def _by_time(statement: NamedRows, place: _ListPlace | None) -> NamedRows:
    """Order envelopes by the moment when they were opened; those of one moment by the log."""
    envelope = model.envelope.c
    position = sa.func.coalesce(envelope.position, NOT_SEALED)
    if place is not None:
        before = sa.tuple_(
            sa.literal(place.opened_at, envelope.opened_at.type),
            sa.literal(NOT_SEALED if place.position is None else place.position, sa.BigInteger()),
            sa.literal(place.envelope_id, envelope.id.type),
        )
        # The first condition alone lets the database begin at the place in its index.
        statement = statement.where(
            envelope.opened_at <= place.opened_at, sa.tuple_(envelope.opened_at, position, envelope.id) < before
        )
    return statement.order_by(envelope.opened_at.desc(), position.desc(), envelope.id.desc())


# -- by the log --------------------------------------------------------------------------------------------------------

Newest = Callable[[int, int], list[int]]
"""Finds the newest positions worth a look, newest first: those below a position, and so many at the most."""


def _list_by_log(
    connection: sa.Connection,
    filters: EnvelopeFilters,
    conditions: list[sa.ColumnElement[bool]],
    place: _ListPlace | None,
    limit: int,
) -> list[EnvelopeSummary]:
    cursors = read_cursors(connection)
    newest = _find_by(connection, filters, cursors)
    position = model.envelope.c.position
    below = read_head(connection) + 1 if place is None or place.position is None else place.position
    found: list[EnvelopeSummary] = []
    while len(found) < limit and (positions := newest(below, PAGE_POSITIONS)):
        below = positions[-1]
        wanted = envelope_summaries().where(position.in_(positions), *conditions).order_by(position.desc())
        summaries = summarize(connection, connection.execute(wanted).all(), cursors)
        found.extend(summary for summary in summaries if _is_wanted(summary, filters))
    return found[:limit]


def _find_by(connection: sa.Connection, filters: EnvelopeFilters, cursors: dict[int, Cursor]) -> Newest:
    above = 0 if filters.since is None else position_before(connection, filters.since)
    if not filters.undelivered:
        graphs = _graphs(connection, filters)
        return lambda below, limit: find_newest(connection, graphs, below, limit, above)
    role_id = None if filters.role is None else known_role_id(connection, filters.role)
    roles = read_lacking_roles(connection, cursors, role_id)

    def newest(below: int, limit: int) -> list[int]:
        positions = {position for role in roles for position in role.newest(connection, below, limit, above)}
        return sorted(positions, reverse=True)[:limit]

    return newest


def _graphs(connection: sa.Connection, filters: EnvelopeFilters) -> Collection[int]:
    """Find the graphs of a type, those that lead to a role, or those that do both."""
    statement = sa.select(model.graph.c.id)
    if filters.event_type is not None:
        statement = statement.where(model.graph.c.event_type_id == known_type_id(connection, filters.event_type))
    if filters.role is not None:
        leads = sa.exists().where(
            model.node.c.graph_id == model.graph.c.id,
            model.node.c.service_id == model.role.c.service_id,
            model.role.c.login == filters.role,
        )
        statement = statement.where(leads)
    return connection.execute(statement).scalars().all()


def _is_wanted(summary: EnvelopeSummary, filters: EnvelopeFilters) -> bool:
    """Check what only the envelope's progress at its roles tells."""
    if filters.role is None and not filters.undelivered:
        return True
    concerned = [role for role in summary.roles if filters.role in (None, role.role)]
    return any(role.state in LACKING for role in concerned) if filters.undelivered else bool(concerned)
