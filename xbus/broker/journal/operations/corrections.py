"""Items that a person corrects, for one role or for all: rows beside what the emitter sent, which never changes.

A correction for one role belongs to an event of the envelope that is parked for it. A correction for all belongs to the
item itself, that is, to the event whose segments hold it: all envelopes over these segments carry it, repeats included.
"""

import hashlib
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.audit import RepairDecision, note_acts
from xbus.broker.journal.commit.statements.common import remember
from xbus.broker.journal.commit.statements.progress import close_corrected
from xbus.broker.journal.log.overlays import CONCERNS_EVENT, CORRECTED
from xbus.broker.journal.operations.failures import role_name

ONE_AT_A_TIME = 0x58626372
"""The key of PostgreSQL's advisory lock under which a correction for all is added: their ids are in commit order."""


@dataclass(frozen=True, slots=True)
class Correction:
    """An item as it was, and as it is handed over instead; see ``model.correction``.

    Args:
        role: the login of the role that gets it so; None for all who lack it and all who come.
        event_id: an event of the envelope that was asked about.
    """

    role: str | None
    event_id: UUID
    index: int
    before: bytes
    after: bytes
    at: datetime
    reason: str


def read_corrections(connection: sa.Connection, envelope_id: UUID) -> list[Correction]:
    """Read what was corrected of an envelope, the oldest first.

    Of several of one item the last one counts: one for all replaces all before it, one for a role those for this role.
    """
    correction = model.correction.c
    statement = (
        sa.select(
            *(model.role.c.login, model.event.c.id, correction.item_index),
            *(correction.before, correction.after, correction.at, correction.reason),
        )
        .select_from(model.event)
        .join(model.correction, CONCERNS_EVENT)
        .outerjoin(model.role, model.role.c.id == correction.role_id)
        .where(model.event.c.envelope_id == envelope_id)
        .order_by(correction.id)
    )
    return [
        Correction(role, event_id, index, bytes(before), bytes(after), at, reason)
        for role, event_id, index, before, after, at, reason in connection.execute(statement)
    ]


def read_corrected_item(connection: sa.Connection, event_id: UUID, index: int) -> dict[int | None, bytes]:
    """Read how an item of an event is handed over now, if it is not as it was sent.

    Returns:
        By the id of the role that gets it so; None means all others.
    """
    correction = model.correction.c
    statement = (
        sa.select(correction.role_id, correction.after)
        .select_from(model.event)
        .join(model.correction, CONCERNS_EVENT)
        .where(model.event.c.id == event_id, correction.item_index == index)
        .order_by(correction.id)
    )
    counting: dict[int | None, bytes] = {}
    for role_id, after in connection.execute(statement):
        if role_id is None:
            counting.clear()
        counting[role_id] = bytes(after)
    return counting


def read_corrected_events(connection: sa.Connection, after: int) -> list[tuple[int, UUID]]:
    """Read which events have items that are corrected for all roles: correction id and event of the segments.

    Args:
        after: the id of a correction; only newer ones are read.
    """
    correction = model.correction.c
    statement = (
        sa.select(correction.id, correction.event_id)
        .where(correction.role_id.is_(None), correction.id > after)
        .order_by(correction.id)
    )
    return [(number, event_id) for number, event_id in connection.execute(statement)]


def list_sharing(connection: sa.Connection, envelope_id: UUID, segments_id: UUID, limit: int) -> list[UUID]:
    """List the other received envelopes that hold the items of an event, such as retries and replays, newest first.

    Args:
        envelope_id: the envelope that is left out.
        segments_id: the event whose segments hold the items.
    """
    event, envelope = model.event.c, model.envelope.c
    statement = (
        sa.select(envelope.id)
        .join(model.event, event.envelope_id == envelope.id)
        .where(
            sa.or_(event.id == segments_id, event.origin_id == segments_id),
            envelope.id != envelope_id,
            envelope.position.is_not(None),
        )
        .order_by(envelope.position.desc())
        .limit(limit)
    )
    return list(connection.execute(statement).scalars())


def hold_sealed(connection: sa.Connection, envelope_id: UUID, segments_id: UUID) -> bool:
    """Keep an envelope in the journal, and others from correcting items of an event, until the transaction ends.

    Args:
        segments_id: the event whose segments hold the items.

    Returns:
        Whether the envelope is still there with its items.
    """
    envelope = model.envelope.c
    there = sa.select(envelope.id).where(envelope.id == envelope_id, envelope.pruned_at.is_(None))
    if connection.execute(there.with_for_update(read=True)).one_or_none() is None:
        return False
    event = sa.select(model.event.c.id).where(model.event.c.id == segments_id)
    return connection.execute(event.with_for_update(key_share=True)).one_or_none() is not None


def add_correction(
    connection: sa.Connection,
    role_id: int | None,
    event_id: UUID,
    index: int,
    before: bytes,
    after: bytes,
    decision: RepairDecision,
) -> None:
    """Have an item handed over otherwise than it was sent.

    Args:
        connection: with a transaction open, in which it was made sure that the item may be corrected.
        role_id: the role that is to get it so; None for all who lack it and all who come.
        event_id: for one role, an event of the envelope that is parked; for all, the event of the segments.
        before: as its emitter sent it.
        after: as it is to be handed over.
    """
    if role_id is None and connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(ONE_AT_A_TIME)))
    row = {
        "role_id": role_id,
        "event_id": event_id,
        "item_index": index,
        "before": before,
        "after": after,
        "at": decision.at,
        "reason": decision.told,
    }
    connection.execute(sa.insert(model.correction).values(row))
    correction = model.correction.c
    corrected = sa.select(correction.item_index).where(correction.event_id == event_id)
    of_role = corrected.where(sa.or_(correction.role_id.is_(None), correction.role_id == role_id))
    close_corrected(connection, decision.at, event_id, role_id, connection.execute(of_role).scalars().all())
    for_whom = "all" if role_id is None else role_id
    remember(connection, decision.at, "item", f"{for_whom} {event_id} {index}", CORRECTED, decision.told)
    role = "all" if role_id is None else f'role "{role_name(connection, role_id)}"'
    thing = f"item {index} of event {event_id} for {role}"
    note_acts(connection, [decision.act(CORRECTED, thing, before=_digest(before), after=_digest(after))])


def _digest(item: bytes) -> str:
    """Name an item by its hash: the audit outlives the data, and must not hold it."""
    return f"SHA-256 {hashlib.sha256(item).hexdigest()}"
