"""Counts the envelopes that readers never get, because retention does not wait for them."""

from collections.abc import Sequence
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.readers.type_spans import is_in_span


def note_skipped(connection: sa.Connection, envelope_ids: Sequence[UUID]) -> None:
    """Count envelopes that are removed now at each range that has not passed them.

    Nobody knows any more which range an envelope belonged to: a range counts all that its reader wanted.
    """
    reader, read_type, range_ = model.reader.c, model.reader_event_type.c, model.reader_range.c
    wanted = (
        sa.select(reader.service_id, model.envelope.c.position)
        .join(model.reader_event_type, read_type.service_id == reader.service_id)
        .join(model.graph, model.graph.c.event_type_id == read_type.event_type_id)
        .join(model.event, model.event.c.graph_id == model.graph.c.id)
        .join(model.envelope, model.envelope.c.id == model.event.c.envelope_id)
        .where(
            sa.or_(~reader.keeps, reader.detached_at.is_not(None)),
            model.envelope.c.id.in_(list(envelope_ids)),
            model.envelope.c.position.is_not(None),
            is_in_span(model.envelope.c.position),
        )
        .distinct()
    )
    for service_id, position in connection.execute(wanted).all():
        behind = sa.exists().where(
            model.reader_stretch.c.range_id == range_.id, model.reader_stretch.c.position <= position
        )
        missed = sa.update(model.reader_range).where(
            range_.service_id == service_id, range_.completed_at.is_(None), behind
        )
        connection.execute(missed.values(skipped=range_.skipped + 1))
