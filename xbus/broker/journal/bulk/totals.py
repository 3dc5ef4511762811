"""Adds up the stored segments of an output."""

import hashlib
from dataclasses import dataclass
from uuid import UUID

import sqlalchemy as sa

from xbus import model

MISMATCH = "output_mismatch"
"""The code of the error of an output that is not what its worker says it is."""


@dataclass(frozen=True, slots=True)
class Totals:
    """The totals of an output's segments.

    Args:
        hash: as in ``model.bulk_attempt``.
    """

    items: int
    data_bytes: int
    hash: bytes


_SEGMENTS = (
    sa.select(
        model.bulk_segment.c["items"],
        sa.func.length(model.bulk_segment.c.data).label("size"),
        model.bulk_segment.c.hash,
    )
    .where(model.bulk_segment.c.attempt_id == sa.bindparam("attempt_id"))
    .order_by(model.bulk_segment.c.part, model.bulk_segment.c.number)
)


def read_totals(connection: sa.Connection, attempt_id: UUID) -> Totals:
    """Sum up the content of an output."""
    items = data_bytes = 0
    whole = hashlib.sha256()
    for count, size, digest in connection.execute(_SEGMENTS, {"attempt_id": attempt_id}):
        items += count
        data_bytes += size
        whole.update(digest)
    return Totals(items, data_bytes, whole.digest())
