"""Reads what was made of an envelope, and what it was made of: through nodes that emit, replays, and sending again.

A node's envelope has the id of the one that it was made of as its key, so its ancestors are in it; and its own id is
computed of that key and its emitter, so that descendants are found without a search.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.paging import portions
from xbus.broker.journal.database.rows import grouped
from xbus.ids import keyed_envelope_id, parse_uuid
from xbus.states import EnvelopeState

MOST_LINKS = 1_000
"""Envelopes of one answer. More would be more than a person can read."""

MOST_GENERATIONS = 10
"""So many broken-off deliveries of one envelope are passed over in the search for what a node made of it."""


class Making(StrEnum):
    """The way in which an envelope came to be."""

    SENT = "sent"
    """A program sent it."""
    NODE = "node"
    """A node made it of the parent."""
    BOT = "bot"
    """A bot sent it."""
    REPLAY = "replay"
    """It brings the parent's events to a role once more."""
    REPEAT = "repeat"
    """It is the parent, sent again."""


@dataclass(frozen=True, slots=True)
class ChainLink:
    """An envelope of a chain.

    Args:
        parent_id: of which it was made; None for one that was not.
        way: how it came to be.
        emitter: the login of its emitter; of a node, the event type and the node.
        types: of its events, each once, in their order.
        position: None while it is open, and for one that was cancelled.
        items: of all its events; None as its position.
        by_bulk: the logins of the bulk workers, as Spark, that made outputs of its events.
    """

    envelope_id: UUID
    parent_id: UUID | None
    way: Making
    emitter: str
    state: EnvelopeState
    types: Sequence[str]
    position: int | None
    items: int | None
    opened_at: datetime
    closed_at: datetime | None
    by_bulk: Sequence[str] = ()


def read_ancestors(connection: sa.Connection, envelope_id: UUID) -> list[ChainLink]:
    """Read the ancestors of an envelope, the first one first and the envelope itself last; none for an unknown one."""
    found: list[ChainLink] = []
    wanted: UUID | None = envelope_id
    while wanted is not None and len(found) < MOST_LINKS:
        link = next(iter(_read(connection, [wanted])), None)
        if link is None:
            break
        found.append(link)
        wanted = link.parent_id
    return found[::-1]


def read_descendants(connection: sa.Connection, envelope_id: UUID) -> list[ChainLink]:
    """Read the descendants of an envelope, one generation behind the other, without the envelope itself."""
    emitters = connection.execute(sa.select(model.emitter.c.id).where(model.emitter.c.kind == "node")).scalars().all()
    found: dict[UUID, ChainLink] = {}
    parents: Sequence[UUID] = [envelope_id]
    while parents and len(found) < MOST_LINKS:
        ids = {*_derived(connection, parents, emitters), *_repeats(connection, parents)} - found.keys()
        links = [link for link in _read(connection, ids) if link.parent_id in parents]
        found |= {link.envelope_id: link for link in links[: MOST_LINKS - len(found)]}
        parents = [link.envelope_id for link in links]
    return list(found.values())


def read_chain(connection: sa.Connection, envelope_id: UUID) -> list[ChainLink]:
    """Read what an envelope was made of, itself, and what was made of it; none for an unknown one."""
    ancestors = read_ancestors(connection, envelope_id)
    return [*ancestors, *read_descendants(connection, envelope_id)] if ancestors else []


def _derived(connection: sa.Connection, parents: Iterable[UUID], emitters: Collection[int]) -> set[UUID]:
    """Find what nodes have made, or are making; those of broken-off deliveries are left out."""
    found: set[UUID] = set()
    keys = [(emitter_id, str(parent)) for parent in parents for emitter_id in emitters]
    for generation in range(MOST_GENERATIONS):
        ids = {keyed_envelope_id(*key, generation): key for key in keys}
        states = {} if not ids else _states(connection, ids)
        found |= {each for each, state in states.items() if state != EnvelopeState.CANCELLED}
        keys = [ids[each] for each, state in states.items() if state == EnvelopeState.CANCELLED]
    return found


IDS_AT_ONCE = 500


def _states(connection: sa.Connection, ids: Collection[UUID]) -> dict[UUID, str]:
    envelope = model.envelope.c
    found: dict[UUID, str] = {}
    for some in portions(ids, IDS_AT_ONCE):
        found |= dict(connection.execute(sa.select(envelope.id, envelope.state).where(envelope.id.in_(some))).all())
    return found


def _repeats(connection: sa.Connection, parents: Sequence[UUID]) -> set[UUID]:
    """Find the envelopes that repeat others, by their events: these have an index."""
    event, repeated = model.event.c, model.event.alias("repeated").c
    found: set[UUID] = set()
    for some in portions(parents, IDS_AT_ONCE):
        segments = sa.select(sa.func.coalesce(repeated.origin_id, repeated.id)).where(repeated.envelope_id.in_(some))
        found |= set(connection.execute(sa.select(event.envelope_id).where(event.origin_id.in_(segments))).scalars())
    return found


_LINK_COLUMNS = ("id", "origin_id", "idempotency_key", "state", "position", "items", "opened_at", "closed_at")
_LINKS = sa.select(
    *(model.envelope.c[name] for name in _LINK_COLUMNS), model.emitter.c.kind, model.emitter.c.login
).join(model.emitter, model.emitter.c.id == model.envelope.c.emitter_id)


def _read(connection: sa.Connection, ids: Collection[UUID]) -> list[ChainLink]:
    """Read envelopes as links, in the order of the log, open ones last."""
    found: list[ChainLink] = []
    for some in portions(ids, IDS_AT_ONCE):
        types, bulk = _read_types(connection, some), _read_bulk(connection, some)
        replays = set(
            connection.execute(
                sa.select(model.envelope_role.c.envelope_id).where(
                    model.envelope_role.c.envelope_id.in_(some), model.envelope_role.c.replay.is_not(None)
                )
            ).scalars()
        )
        for row in connection.execute(_LINKS.where(model.envelope.c.id.in_(some))):
            way = _way(row.kind, row.origin_id, is_replay=row.id in replays)
            parent_id = row.origin_id or (parse_uuid(row.idempotency_key) if way is Making.NODE else None)
            found.append(
                ChainLink(
                    *(row.id, parent_id, way, row.login, EnvelopeState(row.state), types.get(row.id, ())),
                    *(row.position, row.items, row.opened_at, row.closed_at, bulk.get(row.id, ())),
                )
            )
    return sorted(found, key=lambda link: (link.position is None, link.position or 0, link.opened_at))


def _way(kind: str, origin_id: UUID | None, *, is_replay: bool) -> Making:
    if origin_id is not None:
        return Making.REPLAY if is_replay else Making.REPEAT
    return {"node": Making.NODE, "bot": Making.BOT}.get(kind, Making.SENT)


def _read_types(connection: sa.Connection, ids: Sequence[UUID]) -> Mapping[UUID, Sequence[str]]:
    event, event_type = model.event.c, model.event_type.c
    statement = (
        sa.select(event.envelope_id, event_type.name)
        .join(model.event_type, event_type.id == event.event_type_id)
        .where(event.envelope_id.in_(ids))
        .order_by(event.number)
    )
    return _listed(connection, statement)


def _read_bulk(connection: sa.Connection, ids: Sequence[UUID]) -> Mapping[UUID, Sequence[str]]:
    event, attempt, role = model.event.c, model.bulk_attempt.c, model.role.c
    statement = (
        sa.select(event.envelope_id, role.login)
        .join(model.bulk_attempt, attempt.event_id == event.id)
        .join(model.role, role.id == attempt.role_id)
        .where(event.envelope_id.in_(ids), attempt.state.in_(["building", "ready"]))
        .order_by(role.login)
    )
    return _listed(connection, statement)


def _listed(connection: sa.Connection, statement: "sa.Select[UUID, str]") -> Mapping[UUID, Sequence[str]]:
    return {
        envelope_id: list(dict.fromkeys(names)) for envelope_id, names in grouped(connection.execute(statement)).items()
    }
