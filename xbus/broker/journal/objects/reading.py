"""The one door to the plain data of a segment, whether it is here, compressed, or in an object store."""

import hashlib
from collections.abc import Callable
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.compression import DAMAGED, decompress, verified
from xbus.broker.journal.database.raw_reader import Fetcher, Query
from xbus.broker.journal.objects.opening import open_store
from xbus.broker.journal.objects.stores import MISSING, ObjectStore, away
from xbus.errors import JournalError

STORED_DATA = ("data", "plain_bytes", "store_id", "hash")
"""The columns of ``model.log_segment`` of which the plain data is made, in the order in which the door takes them."""

STORED_DATA_TEXT = ", ".join(STORED_DATA)
"""The same for statements that are written out."""

_STORES = "xbus_object_stores"
"""The key under which a connection notes its open stores."""

_PLACE: Query[tuple[str]] = Query("SELECT place FROM object_store WHERE id = %(store_id)s", "s")


class SegmentData:
    """Gives the plain data of segments; not to be shared between threads.

    Args:
        place_of: finds the place of a store by its id; None for an unknown one.
        opened: the stores that are open, by id.
    """

    def __init__(self, place_of: Callable[[int], str | None], opened: dict[int, ObjectStore]) -> None:
        self._place_of = place_of
        self._opened = opened

    def plain(self, data: bytes, plain_bytes: int | None, store_id: int | None, digest: bytes) -> bytes:
        """Give the plain data of a segment, which has its hash.

        Args:
            data: as in ``model.segment``, and so are the others.

        Raises:
            JournalError: it is damaged (``segment_damaged``), or an object is not where it should be
                (``object_missing``).
            JournalUnavailable: the object store can't be read now (``objects_unavailable``).
        """
        if store_id is None:
            return verified(decompress(bytes(data), plain_bytes), digest)
        # The data of an object is its hash, so that of the row is compared with it alone.
        if bytes(data) != bytes(digest):
            raise JournalError("a segment does not name the object of its hash", "run xbus fsck", code=DAMAGED)
        return self._read(store_id, bytes(data), plain_bytes)

    def plain_of(
        self,
        event_id: UUID | str,
        first_index: int,
        data: bytes,
        plain_bytes: int | None,
        store_id: int | None,
        digest: bytes,
    ) -> bytes:
        """Give the plain data as ``plain`` does; an error names the event and the first index of the segment."""
        try:
            return self.plain(data, plain_bytes, store_id, digest)
        except JournalError as error:
            if error.code != DAMAGED:
                raise
            cause = f"items of event {UUID(str(event_id))} from index {first_index} on: {error.cause}"
            raise JournalError(cause, error.next_step, code=DAMAGED) from error

    def _read(self, store_id: int, digest: bytes, size: int | None) -> bytes:
        store = self._store(store_id)
        try:
            found = store.get(digest)
        except JournalError as error:
            # It may have moved since it was opened: the next read asks where it is.
            del self._opened[store_id]
            if error.code == MISSING and store.read_mark() is None:
                raise away(store.place) from error
            raise
        if len(found) != size or hashlib.sha256(found).digest() != digest:
            raise JournalError(
                f"the object {digest.hex()} in {store.place} is damaged: it does not have its hash",
                "restore it from a copy; xbus fsck finds the events that have it",
                code=DAMAGED,
            )
        return found

    def _store(self, store_id: int) -> ObjectStore:
        if store_id not in self._opened:
            place = self._place_of(store_id)
            if place is None:
                raise JournalError(f"the journal knows no object store {store_id}", "run xbus fsck", code=DAMAGED)
            self._opened[store_id] = open_store(place)
        return self._opened[store_id]


def segment_data(connection: sa.Connection) -> SegmentData:
    """Make the door for the reads of a connection."""

    def place_of(store_id: int) -> str | None:
        row = model.object_store.c
        place: str | None = connection.execute(sa.select(row.place).where(row.id == store_id)).scalar()
        return place

    return SegmentData(place_of, connection.info.setdefault(_STORES, {}))


def fetched_data(fetcher: Fetcher) -> SegmentData:
    """Make the door for reads that pass SQLAlchemy by."""

    def place_of(store_id: int) -> str | None:
        rows = fetcher.fetch(_PLACE, store_id=store_id)
        return rows[0][0] if rows else None

    return SegmentData(place_of, {})
