"""Compresses the data of segments, and gives it back: all who read ``segment.data`` do so through here.

A row says by ``plain_bytes`` whether its data is compressed. Its hash, and all counts of bytes, are those of the plain
data, so nothing outside the journal tells a compressed segment from another. The format is a Zstandard frame (RFC 8878)
that names the size of its content.
"""

import hashlib

import sqlalchemy as sa
import zstandard

from xbus import model
from xbus.errors import JournalError

LEVEL = 1
"""The effort. More makes segments a few percent smaller, and takes several times as long."""

LEAST_BYTES = 4096
"""Less data is stored as it is: a compressor takes 50 microseconds to begin, and a page of the database holds it."""

LEAST_GAIN = 8
"""Data is stored as it is if it shrinks by less than this fraction: so readers need not unpack it."""

DAMAGED = "segment_damaged"

PLAIN_SIZE: sa.ColumnElement[int] = sa.func.coalesce(
    model.log_segment.c.plain_bytes, sa.func.length(model.log_segment.c.data), type_=sa.Integer
)
"""The bytes of a segment's plain data. On SQLite neither column makes the database read the data itself."""

PLAIN_SIZE_TEXT = "coalesce(plain_bytes, length(data))"
"""The same for statements that are written out."""


class OfEvent:
    """The segments of events, for statements that join other tables, where SQLite would read all of ``log_segment``.

    Args:
        event: the table of events, or an alias of it, whose own segments are meant.
    """

    def __init__(self, event: sa.FromClause = model.event) -> None:
        own, segment = event.c, model.segment.c
        self.joined: sa.Join = event.outerjoin(model.segment, segment.event_id == own.id)
        """A row for each segment; one for an event without any."""
        self.is_there: sa.ColumnElement[bool] = sa.or_(own.data.is_not(None), segment.event_id.is_not(None))
        """False in the row of an event without any."""
        self.items: sa.ColumnElement[int | None] = sa.func.coalesce(
            segment["items"], sa.case((own.data.is_not(None), own["items"])), type_=sa.BigInteger
        )
        self.hash: sa.ColumnElement[bytes | None] = sa.func.coalesce(segment.hash, own.data_hash, type_=sa.LargeBinary)
        self.size: sa.ColumnElement[int] = sa.func.coalesce(
            *(segment.plain_bytes, sa.func.length(segment.data), own.plain_bytes, sa.func.length(own.data)),
            type_=sa.Integer,
        )
        """The bytes of its plain data."""


def compress(data: bytes) -> tuple[bytes, int | None]:
    """Compress plain data, if that pays.

    Returns:
        Data and ``plain_bytes`` as they are stored.
    """
    if len(data) < LEAST_BYTES:
        return data, None
    # An object for each call, as none may serve two threads at a time.
    packed = zstandard.ZstdCompressor(level=LEVEL).compress(data)
    return (data, None) if len(packed) > len(data) - len(data) // LEAST_GAIN else (packed, len(data))


def verified(data: bytes, digest: bytes) -> bytes:
    """Give the data of a segment or of an output if it has its hash: nobody gets what a bad disk made of it.

    Raises:
        JournalError: it is damaged (``segment_damaged``).
    """
    if hashlib.sha256(data).digest() != digest:
        raise JournalError(
            "stored items are damaged: they do not have their hash",
            "find them by xbus fsck, and restore a backup or have them sent again",
            code=DAMAGED,
        )
    return data


def decompress(data: bytes, plain_bytes: int | None) -> bytes:
    """Give the plain data of a segment.

    Args:
        data: as stored.
        plain_bytes: as stored beside it; None where the data is plain.

    Raises:
        JournalError: the stored data is damaged (``segment_damaged``).
    """
    if plain_bytes is None:
        return data
    try:
        # Compared first, as a damaged size would have memory reserved for it.
        if zstandard.frame_content_size(data) == plain_bytes:
            return zstandard.ZstdDecompressor().decompress(data)
        cause = f"its frame does not hold {plain_bytes} bytes"
    except zstandard.ZstdError as error:
        cause = str(error)
    raise JournalError(f"a compressed segment is damaged: {cause}", "find it by xbus fsck", code=DAMAGED)
