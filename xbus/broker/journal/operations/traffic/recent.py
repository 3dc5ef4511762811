"""Reads the newest envelopes with events of a type, by the log's table of contents."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.log.contents import find_newest

PAGE_ENVELOPES = 500
"""Envelopes of one read. More are fewer statements, and take more memory."""

MOST_READ = 200_000
"""Envelopes that are looked at for one type: where most of them are repeats, fewer events are found than asked for."""


@dataclass(frozen=True, slots=True)
class SentEvents:
    """The events of one type in an envelope that an emitter sent.

    Args:
        emitter: its login.
        events: how many.
        sealed_at: when the envelope was sealed.
    """

    position: int
    envelope_id: UUID
    emitter: str
    events: int
    sealed_at: datetime


def read_recent(connection: sa.Connection, type_name: str, last: int) -> Iterator[SentEvents]:
    """Read the last events of a type, newest first; retries and replays, which repeat others, are left out.

    Args:
        type_name: its present name; an unknown type has no events.
        last: how many events, at the most.
    """
    of_type = sa.select(model.event_type.c.id).where(model.event_type.c.name == type_name)
    type_id = connection.execute(of_type).scalar_one_or_none()
    graphs = connection.execute(sa.select(model.graph.c.id).where(model.graph.c.event_type_id == type_id)).scalars()
    leading, below, read = list(graphs.all()), 2**63 - 1, 0
    while leading and last > 0 and read < MOST_READ:
        positions = find_newest(connection, leading, below, PAGE_ENVELOPES)
        for sent in _read_page(connection, type_id, positions):
            taken = min(sent.events, last)
            yield SentEvents(sent.position, sent.envelope_id, sent.emitter, taken, sent.sealed_at)
            last -= taken
            if last == 0:
                return
        if len(positions) < PAGE_ENVELOPES:
            return
        read += len(positions)
        below = positions[-1]


def _read_page(connection: sa.Connection, type_id: int | None, positions: list[int]) -> list[SentEvents]:
    envelope, event, login = model.envelope.c, model.event.c, model.emitter.c.login
    found = (
        sa.select(envelope.position, envelope.id, login, sa.func.count(), envelope.closed_at)
        .join(model.event, event.envelope_id == envelope.id)
        .join(model.emitter, model.emitter.c.id == envelope.emitter_id)
        .where(envelope.position.in_(positions), event.event_type_id == type_id, envelope.origin_id.is_(None))
        .group_by(envelope.position, envelope.id, login, envelope.closed_at)
        .order_by(envelope.position.desc())
    )
    return [SentEvents(*row) for row in connection.execute(found)]
