"""Sends the found envelopes to a role once more: as new envelopes for it alone, over the same items."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.audit import RepairDecision, note_acts
from xbus.broker.journal.commit.statements.closing import next_positions
from xbus.broker.journal.commit.statements.common import remember
from xbus.broker.journal.configuration.detaching import SUBJECT
from xbus.broker.journal.database.compression import OfEvent
from xbus.broker.journal.database.engine import driver_of
from xbus.broker.journal.log.segments import Content, content_hash
from xbus.broker.journal.replay.pages import FoundEnvelope
from xbus.broker.journal.replay.target import ReplayTarget
from xbus.ids import numbered_event_id, replayed_envelope_id
from xbus.states import EnvelopeState

REPLAYED = "replayed"
"""The name of an operator's replay in the history."""


@dataclass(frozen=True, slots=True)
class Sent:
    """The result of sending some envelopes.

    Args:
        envelopes: how many were sent; the others were sent before, or their items are not here.
        gone: how many were not sent as their items have gone since they were found.
    """

    envelopes: int
    events: int
    items: int
    gone: int

    def __add__(self, other: "Sent") -> "Sent":
        return Sent(
            self.envelopes + other.envelopes,
            self.events + other.events,
            self.items + other.items,
            self.gone + other.gone,
        )


def read_sent(
    connection: sa.Connection, target: ReplayTarget, replay: str, envelopes: Sequence[FoundEnvelope]
) -> frozenset[UUID]:
    """Read, by id, which of some envelopes a replay of this name has already sent to the role."""
    ids = _new_ids(target, replay, envelopes)
    there = sa.select(model.envelope.c.id).where(model.envelope.c.id.in_(list(ids)))
    return frozenset(ids[new_id] for new_id in connection.execute(there).scalars())


def send(
    connection: sa.Connection, target: ReplayTarget, replay: str, envelopes: Sequence[FoundEnvelope], at: datetime
) -> Sent:
    """Send those of some envelopes that a replay of this name has not sent yet, in their order.

    Args:
        connection: with a transaction open, in which ``target`` was found.
        replay: its name. Each name gives each envelope to a role once, whoever sends and however often.
        envelopes: with the events that are wanted.
        at: the moment at which the new ones are received.
    """
    here = _lock_here(connection, [envelope.envelope_id for envelope in envelopes])
    # From here on no other replay looks for envelopes, and so none makes the same.
    connection.execute(_LOCK_HEAD)
    sent = read_sent(connection, target, replay, envelopes)
    left = [each for each in envelopes if each.envelope_id in here and each.envelope_id not in sent]
    if left:
        _insert(connection, target, replay, left, at)
    return Sent(
        len(left),
        sum(len(envelope.events) for envelope in left),
        sum(envelope.items for envelope in left),
        sum(each.here and each.envelope_id not in here | sent for each in envelopes),
    )


def note_replay(connection: sa.Connection, target: ReplayTarget, what: str, decision: RepairDecision) -> None:
    """Keep in the history that a person sends something to a role again.

    Args:
        what: which part of the log, in a few words.
    """
    reason = f'{what} of type "{target.type_name}", by {decision.told}'
    remember(connection, decision.at, SUBJECT, target.role, REPLAYED, reason)
    thing = f'{what} of event_type "{target.type_name}" to role "{target.role}"'
    note_acts(connection, [decision.act(REPLAYED, thing)])


_LOCK_HEAD = sa.select(model.head.c.position).with_for_update()


def _new_ids(target: ReplayTarget, replay: str, envelopes: Sequence[FoundEnvelope]) -> dict[UUID, UUID]:
    """Map the ids that envelopes have in a replay to their own ids."""
    return {
        replayed_envelope_id(envelope.envelope_id, target.role_id, target.type_id, replay): envelope.envelope_id
        for envelope in envelopes
    }


def _lock_here(connection: sa.Connection, envelope_ids: Collection[UUID]) -> frozenset[UUID]:
    """Lock those of some envelopes whose items are here, so that they stay until the end of the transaction."""
    envelope = model.envelope.c
    here = (
        sa.select(envelope.id)
        .where(envelope.id.in_(envelope_ids), envelope.pruned_at.is_(None))
        .order_by(envelope.position)
        # Retention or an archive may be about to remove them.
        .with_for_update(read=True)
    )
    return frozenset(connection.execute(here).scalars())


def _insert(
    connection: sa.Connection, target: ReplayTarget, replay: str, envelopes: Sequence[FoundEnvelope], at: datetime
) -> None:
    new_ids = list(_new_ids(target, replay, envelopes))
    stored = _read_stored(connection, target, [envelope for envelope in envelopes if not envelope.is_whole])
    rows: list[dict[str, object]] = []
    events: list[dict[str, object]] = []
    roles: list[dict[str, object]] = []
    positions = next_positions(driver_of(connection), len(envelopes))
    for new_id, position, envelope in zip(new_ids, positions, envelopes, strict=True):
        rows.append(_envelope_row(target, new_id, position, envelope, at) | _content(target, envelope, stored))
        events += _event_rows(target, new_id, envelope)
        roles.append({"envelope_id": new_id, "role_id": target.role_id, "replay": replay})
    connection.execute(sa.insert(model.envelope), rows)
    connection.execute(sa.insert(model.event), events)
    connection.execute(sa.insert(model.envelope_role), roles)


def _envelope_row(
    target: ReplayTarget, new_id: UUID, position: int, envelope: FoundEnvelope, at: datetime
) -> dict[str, object]:
    return {
        "id": new_id,
        "emitter_id": envelope.emitter_id,
        # Nobody sees it before the transaction ends, so it need never be open.
        "state": EnvelopeState.RECEIVED,
        "opened_at": at,
        "closed_at": at,
        "position": position,
        "events": len(envelope.events),
        "items": envelope.items,
        "origin_id": envelope.envelope_id,
        # A key stands for the first envelope alone.
        **dict(zip([column.name for column in model.ENVELOPE_HEAD], envelope.head._replace(key=None), strict=True)),
    }


def _event_rows(target: ReplayTarget, new_id: UUID, envelope: FoundEnvelope) -> Iterator[dict[str, object]]:
    for number, event in enumerate(envelope.events, 1):
        yield {
            "id": numbered_event_id(new_id, number),
            "envelope_id": new_id,
            "number": number,
            "event_type_id": target.type_id,
            "graph_id": target.graph_id,
            "estimate": event.estimate,
            "items": event.items,
            "origin_id": event.event_id,
            **event.tags._asdict(),
        }


def _content(
    target: ReplayTarget, envelope: FoundEnvelope, stored: dict[UUID, tuple[list[bytes], int]]
) -> dict[str, object]:
    """Give bytes and hash of the new envelope: those of the whole one, or computed anew for a part."""
    if envelope.is_whole:
        return {"bytes": envelope.data_bytes, "hash": envelope.hash}
    of_events = [(event, *stored.get(event.event_id, ([], 0))) for event in envelope.events]
    contents = [Content(target.first_name, event.items, hashes, event.tags) for event, hashes, _ in of_events]
    whole = content_hash(contents, envelope.head.headers)
    return {"bytes": sum(data_bytes for _, _, data_bytes in of_events), "hash": whole}


def _read_stored(
    connection: sa.Connection, target: ReplayTarget, envelopes: Sequence[FoundEnvelope]
) -> dict[UUID, tuple[list[bytes], int]]:
    """Read the hashes and the total bytes of the segments of each event of the type in some envelopes."""
    segments, event = OfEvent(), model.event.c
    stored: dict[UUID, tuple[list[bytes], int]] = {}
    for envelope in envelopes:
        statement = (
            sa.select(event.id, segments.hash, segments.size)
            .select_from(segments.joined)
            .where(event.envelope_id == envelope.envelope_id, event.event_type_id == target.type_id)
            .where(segments.is_there)
            .order_by(event.id, model.segment.c.first_index)
        )
        for event_id, segment_hash, data_bytes in connection.execute(statement):
            hashes, total = stored.get(event_id, ([], 0))
            hashes.append(bytes(segment_hash))
            stored[event_id] = (hashes, total + data_bytes)
    return stored
