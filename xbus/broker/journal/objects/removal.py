"""Removes objects to which no segment refers, and never one to which a commit under way may refer.

A row of ``model.object_removal`` dooms an object. From its commit on no new segment refers to the object: a write that
would puts its data into the database instead. So an object goes like this:

1. Retention dooms it when its last segment goes, or a look through the store does.
2. A transaction in which no other one refers to objects looks whether a segment does. If so, it is spared.
3. Otherwise it is removed from the store, and that is noted.
4. The row goes ``FORGET_SECONDS`` later. A write may have found the object in the store before, and commit so late: it
   notices by its own clock.
"""

import time
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.rows import insert_new
from xbus.broker.journal.writes import StoredObject

REFERRING = 0x584F6272
"""The key of PostgreSQL's advisory lock of transactions that refer to objects; SQLite has one writer anyway."""

FORGET_SECONDS = 3600.0
"""Seconds for which a removed object is remembered. More keep rows, fewer give a stopped process less time to end."""

FRESH_SECONDS = FORGET_SECONDS / 4
"""Seconds within which what was stored must be referred to."""


def find_doomed(connection: sa.Connection, stored: Collection[StoredObject]) -> set[bytes]:
    """Find the objects to which a write must not refer, in the transaction that would."""
    # By the same clock as ``StoredObject.put_at``, which only grows.
    now = time.monotonic()
    if connection.dialect.name == "postgresql":
        connection.execute(_LOCK_SHARED)
    doomed = set(connection.execute(_DOOMED, {"hashes": [each.hash for each in stored]}).scalars())
    return {bytes(each) for each in doomed} | {each.hash for each in stored if now - each.put_at > FRESH_SECONDS}


def doom(connection: sa.Connection, objects: Iterable[tuple[int, bytes]]) -> None:
    """Let no new segment refer to objects: ids of stores, and hashes."""
    rows = [{"store_id": store_id, "hash": digest} for store_id, digest in sorted(set(objects))]
    if rows:
        connection.execute(insert_new(connection, model.object_removal), rows)


def read_doomed(connection: sa.Connection, store_id: int, limit: int) -> list[bytes]:
    """Read objects of a store that are doomed and not removed yet."""
    found = connection.execute(_TO_REMOVE, {"of_store": store_id, "most": limit}).scalars()
    return [bytes(digest) for digest in found]


def spare_used(connection: sa.Connection, store_id: int, hashes: Sequence[bytes]) -> list[bytes]:
    """Spare those of some doomed objects to which a segment refers; the others, which may be removed.

    The transaction must end at once: who refers to objects waits for it.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(_LOCK_ALONE)
    used = find_used(connection, store_id, hashes)
    if used:
        connection.execute(_FORGET, {"of_store": store_id, "hashes": list(used)})
    return [digest for digest in hashes if digest not in used]


def find_used(connection: sa.Connection, store_id: int, hashes: Sequence[bytes]) -> set[bytes]:
    """Find the objects to which a segment refers."""
    found = connection.execute(_USED, {"of_store": store_id, "hashes": list(hashes)}).scalars()
    return {bytes(digest) for digest in found}


def note_removed(connection: sa.Connection, store_id: int, hashes: Sequence[bytes], now: datetime) -> None:
    """Note that objects are not in their store any more."""
    connection.execute(_NOTE, {"of_store": store_id, "hashes": list(hashes), "now": now})


def has_removed(connection: sa.Connection, until: datetime) -> bool:
    """Check whether something was removed until a moment, and is remembered still."""
    return connection.execute(sa.select(_ROW.hash).where(_ROW.removed_at < until).limit(1)).first() is not None


def forget_removed(connection: sa.Connection, until: datetime) -> None:
    """Forget what was removed until a moment."""
    connection.execute(sa.delete(model.object_removal).where(_ROW.removed_at < until))


_ROW, _SEGMENT = model.object_removal.c, model.segment.c
_HASHES = sa.bindparam("hashes", expanding=True, type_=sa.LargeBinary)
_OF_STORE = _ROW.store_id == sa.bindparam("of_store", type_=sa.Integer)
_LOCK_SHARED = sa.select(sa.func.pg_advisory_xact_lock_shared(REFERRING))
_LOCK_ALONE = sa.select(sa.func.pg_advisory_xact_lock(REFERRING))
_DOOMED = sa.select(_ROW.hash).where(_ROW.hash.in_(_HASHES))
_TO_REMOVE = sa.select(_ROW.hash).where(_OF_STORE, _ROW.removed_at.is_(None)).limit(sa.bindparam("most"))
_USED = (
    sa.select(_SEGMENT.hash)
    .where(_SEGMENT.store_id.is_not(None), _SEGMENT.hash.in_(_HASHES))
    .where(_SEGMENT.store_id == sa.bindparam("of_store", type_=sa.Integer))
    .distinct()
)
_FORGET = sa.delete(model.object_removal).where(_OF_STORE, _ROW.hash.in_(_HASHES))
_NOTE = (
    sa.update(model.object_removal)
    .where(_OF_STORE, _ROW.hash.in_(_HASHES))
    .values(removed_at=sa.bindparam("now", type_=model.object_removal.c.removed_at.type))
)
