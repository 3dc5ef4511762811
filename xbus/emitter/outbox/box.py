"""The outbox: a local SQLite file that keeps whole envelopes until the bus has them. No event loop.

One process at a time sends from a file, which it locks for that. An envelope that is being written stands in the file
already, batch by batch, as something that nobody sends; it counts from the commit that ends it, the only one that waits
for the disk. The next process removes the unfinished work of one that was killed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from xbus.emitter.outbox.file import OutboxFile
from xbus.emitter.puts import NewPut
from xbus.envelope import EnvelopeHead
from xbus.errors import Failed, Refused
from xbus.headers import NO_TAGS, EventTags

ENVELOPE_BYTES = 512
"""Bytes that an envelope counts beside its items, so that many empty ones fill the outbox too."""


@dataclass(frozen=True)
class QueuedEvent:
    """An event of a queued envelope, with as many items as its batches hold."""

    event_id: str
    type_name: str
    estimate: int
    items: int
    headers: bytes | None = None
    partition_key: str | None = None


@dataclass(frozen=True)
class QueuedEnvelope:
    """An envelope that waits, or that the bus refused; ``place`` is its number in the line."""

    envelope_id: str
    place: int
    key: str
    ordering_key: str | None
    queued_at: str
    size: int
    code: str | None
    cause: str | None
    headers: bytes | None = None


@dataclass(frozen=True)
class OutboxStatus:
    """The content of an outbox, and its trouble.

    Attributes:
        waiting: the number of waiting envelopes.
        waiting_bytes: their bytes.
        oldest: when the first of them was queued; None without any.
        refused: those that the bus refused, in the order of their refusals.
        trouble: why it sends nothing now: code, cause and begin; None without trouble.
    """

    waiting: int
    waiting_bytes: int
    oldest: str | None
    refused: Sequence[QueuedEnvelope]
    trouble: "Trouble | None"


class StoredBatch(NamedTuple):
    """A batch of an event: the number of its items, and the items as in a segment."""

    items: int
    data: bytes


class QueuedPut(NamedTuple):
    """An envelope of one event with one batch at most; ``put`` has the key that it has at the bus."""

    envelope_id: str
    event_id: str
    put: NewPut


class Contents(NamedTuple):
    """The numbers of events and items of an envelope."""

    events: int
    items: int


class Trouble(NamedTuple):
    """A cause for which nothing is sent, and since when."""

    code: str
    cause: str
    since: str


class _HeadOfLine(NamedTuple):
    """An envelope that waits, with its first event and the first batch of that, as far as it has them."""

    id: str
    key: str
    ordering_key: str | None
    headers: bytes | None
    size: int
    event_id: str
    type_name: str
    event_headers: bytes | None
    partition_key: str | None
    items: int
    data: bytes
    events: int
    batches: int


class _Line(NamedTuple):
    """The envelopes that wait: how many, what they take, and when the first of them was queued."""

    waiting: int
    waiting_bytes: int
    oldest: str | None


class Outbox:
    """An outbox file. To be used by one thread at a time.

    Args:
        path: the file.
        max_bytes: as much as it may hold.

    Raises:
        Refused: it is no outbox (``outbox_broken``).
        Failed: it can't be opened (``outbox_failed``).
    """

    def __init__(self, path: Path, max_bytes: int = 2**63 - 1) -> None:
        self._file = OutboxFile(path)
        self._max_bytes = max_bytes
        self._bytes = self._stored_bytes()

    @classmethod
    def existing(cls, path: Path) -> "Outbox":
        """Open an existing outbox.

        Raises:
            Refused: it is not there (``outbox_unknown``), or it is no outbox.
        """
        if not path.exists():
            raise Refused(f"there is no outbox {path}", "give the path of the emitter's outbox", code="outbox_unknown")
        return cls(path)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    # -- written -------------------------------------------------------------------------------------------------------

    def remove_unfinished(self) -> None:
        """Remove the unfinished envelopes of a killed process; only the process with the lock may do so."""
        with self._file.transaction() as connection:
            connection.execute("DELETE FROM envelope WHERE state = 'writing'")
        self._bytes = self._stored_bytes()

    def start_envelope(
        self, envelope_id: str, key: str, ordering_key: str | None, headers: bytes | None = None
    ) -> None:
        """Begin an envelope that nobody sends before it is ended. A repeat changes nothing.

        Raises:
            Refused: outbox_full.
        """
        size = ENVELOPE_BYTES + len(headers or b"")
        self._take(size)
        with self._file.transaction() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO envelope (id, key, ordering_key, headers, state, bytes)"
                " VALUES (?, ?, ?, ?, 'writing', ?)",
                (envelope_id, key, ordering_key, headers, size),
            )

    def start_event(
        self, envelope_id: str, event_id: str, type_name: str, estimate: int, tags: EventTags = NO_TAGS
    ) -> None:
        """Begin its next event. A repeat changes nothing.

        Raises:
            Refused: outbox_full.
        """
        self._take(tags.size)
        with self._file.transaction() as connection:
            added = connection.execute(
                "INSERT OR IGNORE INTO event (id, envelope_id, number, type_name, estimate, headers, partition_key)"
                " SELECT ?, ?, count(*) + 1, ?, ?, ?, ? FROM event WHERE envelope_id = ?",
                (event_id, envelope_id, type_name, estimate, *tags, envelope_id),
            ).rowcount
            if tags.size:
                more = (added * tags.size, envelope_id)
                connection.execute("UPDATE envelope SET bytes = bytes + ? WHERE id = ?", more)

    def append(self, envelope_id: str, event_id: str, first_index: int, items: int, data: bytes) -> None:
        """Add items. A repeat changes nothing.

        Raises:
            Refused: outbox_full; then nothing was added.
        """
        self._take(len(data))
        with self._file.transaction() as connection:
            batch = (event_id, first_index, items, data)
            added = connection.execute("INSERT OR IGNORE INTO batch VALUES (?, ?, ?, ?)", batch).rowcount
            more = (added * len(data), envelope_id)
            connection.execute("UPDATE envelope SET bytes = bytes + ? WHERE id = ?", more)

    def end_envelope(self, envelope_id: str, at: datetime, wanted: tuple[int, int] | None = None) -> Contents:
        """Put an envelope into the line, durably. A repeat changes nothing.

        Args:
            wanted: the numbers of events and items that it must have, if they are known.

        Returns:
            The numbers of its events and items.

        Raises:
            Failed: an earlier part of it could not be written (``outbox_failed``).
        """
        with self._file.durable_transaction() as connection:
            held = self._held(envelope_id)
            if wanted not in (None, held):
                raise Failed("not all of the envelope could be written", "send it again", code="outbox_failed")
            connection.execute(
                "UPDATE envelope SET state = 'waiting', queued_at = ?,"
                " place = (SELECT coalesce(max(place), 0) + 1 FROM envelope) WHERE id = ? AND state = 'writing'",
                (at.isoformat(timespec="seconds"), envelope_id),
            )
        return held

    def queue(self, puts: Sequence[QueuedPut], at: datetime) -> list[Refused | None]:
        """Put whole envelopes of one event each into the line, durably, by one transaction.

        Returns:
            For each why it was not taken (``outbox_full``); None for those that were.

        Raises:
            Refused: a value in one of them can't be stored (``wrong_arguments``); then nothing was added.
            Failed: nothing could be written (``outbox_failed``).
        """
        refusals: list[Refused | None] = []
        added = 0
        is_counted = False
        try:
            with self._file.durable_transaction() as connection:
                (place,) = connection.execute("SELECT coalesce(max(place), 0) FROM envelope").fetchone()
                queued_at = at.isoformat(timespec="seconds")
                for envelope_id, event_id, (type_name, items, data, head, tags) in puts:
                    size = ENVELOPE_BYTES + len(head.headers or b"") + tags.size + len(data)
                    try:
                        self._take(size, is_counted=is_counted)
                    except Refused as refusal:
                        refusals.append(refusal)
                        # Nobody else changes the file now, and a count reads all of it.
                        is_counted = True
                        continue
                    refusals.append(None)
                    added += size
                    place += 1
                    connection.execute(
                        "INSERT INTO envelope (id, key, ordering_key, headers, state, place, queued_at, bytes)"
                        " VALUES (?, ?, ?, ?, 'waiting', ?, ?, ?)",
                        (envelope_id, head.key, head.ordering_key, head.headers, place, queued_at, size),
                    )
                    connection.execute(
                        "INSERT INTO event (id, envelope_id, number, type_name, estimate, headers, partition_key)"
                        " VALUES (?, ?, 1, ?, ?, ?, ?)",
                        (event_id, envelope_id, type_name, items, *tags),
                    )
                    if items:
                        connection.execute("INSERT INTO batch VALUES (?, ?, ?, ?)", (event_id, 0, items, data))
        except BaseException:
            self._bytes -= added
            raise
        return refusals

    def _held(self, envelope_id: str) -> Contents:
        return self._file.row(
            Contents,
            "SELECT count(DISTINCT event.id), coalesce(sum(items), 0) FROM event"
            " LEFT JOIN batch ON event_id = event.id WHERE envelope_id = ?",
            envelope_id,
        )

    # -- sent ----------------------------------------------------------------------------------------------------------

    def first_waiting(self) -> QueuedEnvelope | None:
        """Read the envelope whose turn it is."""
        found = self._envelopes("WHERE state = 'waiting' ORDER BY place LIMIT 1")
        return found[0] if found else None

    def small_ones(self, most: int, most_bytes: int) -> list[QueuedPut]:
        """Read the first envelopes of the line, as far as each is one event with one batch.

        Args:
            most: the most envelopes.
            most_bytes: the most bytes of all of them, by the count of ``ENVELOPE_BYTES``.
        """
        rows = self._file.rows(
            _HeadOfLine,
            "SELECT envelope.id, key, ordering_key, envelope.headers, bytes, event.id, type_name, event.headers,"
            " partition_key, coalesce(items, 0), coalesce(data, x''),"
            " (SELECT count(*) FROM event AS each WHERE each.envelope_id = envelope.id),"
            " (SELECT count(*) FROM batch AS each WHERE each.event_id = event.id)"
            " FROM envelope LEFT JOIN event ON envelope_id = envelope.id AND number = 1"
            " LEFT JOIN batch ON event_id = event.id AND first_index = 0 AND bytes <= ?"
            " WHERE state = 'waiting' ORDER BY place LIMIT ?",
            most_bytes,
            most,
        )
        found = []
        for row in rows:
            most_bytes -= row.size
            if most_bytes < 0 or row.events != 1 or row.batches != bool(row.items):
                break
            head = EnvelopeHead(row.ordering_key, row.key, row.headers)
            put = NewPut(row.type_name, row.items, row.data, head, EventTags(row.event_headers, row.partition_key))
            found.append(QueuedPut(row.id, row.event_id, put))
        return found

    def events(self, envelope_id: str) -> list[QueuedEvent]:
        """Read the events of an envelope, in order."""
        return self._file.rows(
            QueuedEvent,
            "SELECT id, type_name, estimate, (SELECT coalesce(sum(items), 0) FROM batch WHERE event_id = event.id),"
            " headers, partition_key FROM event WHERE envelope_id = ? ORDER BY number",
            envelope_id,
        )

    def batch(self, event_id: str, first_index: int) -> StoredBatch | None:
        """Read the batch of an event from an index on, with the number of items; None at its end."""
        wanted = "SELECT items, data FROM batch WHERE event_id = ? AND first_index = ?"
        found = self._file.rows(StoredBatch, wanted, event_id, first_index)
        return found[0] if found else None

    def remove(self, *envelope_ids: str) -> None:
        """Remove envelopes that the bus has, or that were cancelled."""
        gone: list[tuple[int]] = []
        with self._file.transaction() as connection:
            for envelope_id in envelope_ids:
                gone += connection.execute("DELETE FROM envelope WHERE id = ? RETURNING bytes", (envelope_id,))
        self._bytes -= sum(size for (size,) in gone)

    def set_aside(self, envelope_id: str, code: str, cause: str) -> None:
        """Let an envelope that the bus refused out of the line, for a person to look at."""
        with self._file.durable_transaction() as connection:
            connection.execute(
                "UPDATE envelope SET state = 'refused', code = ?, cause = ? WHERE id = ?", (code, cause, envelope_id)
            )

    def note_trouble(self, code: str, cause: str, at: datetime) -> None:
        """Remember why nothing is sent, and since when."""
        with self._file.transaction() as connection:
            connection.execute(
                "INSERT INTO trouble VALUES (1, ?, ?, ?)"
                " ON CONFLICT (id) DO UPDATE SET code = excluded.code, cause = excluded.cause",
                (code, cause, at.isoformat(timespec="seconds")),
            )

    def forget_trouble(self) -> None:
        """Forget the trouble: sending works again."""
        with self._file.transaction() as connection:
            connection.execute("DELETE FROM trouble")

    # -- looked after --------------------------------------------------------------------------------------------------

    def status(self) -> OutboxStatus:
        """Read the status of the outbox."""
        line = self._file.row(
            _Line, "SELECT count(*), coalesce(sum(bytes), 0), min(queued_at) FROM envelope WHERE state = 'waiting'"
        )
        trouble = self._file.rows(Trouble, "SELECT code, cause, since FROM trouble")
        refused = self._envelopes("WHERE state = 'refused' ORDER BY place")
        return OutboxStatus(*line, refused, trouble[0] if trouble else None)

    def retry(self, places: Sequence[int]) -> int:
        """Let refused envelopes into the line again, at their old places; all of them where none is named.

        Returns:
            How many these were.

        Raises:
            Refused: not_refused, where one of the places has none; then nothing is changed.
        """
        return self._change_refused("UPDATE envelope SET state = 'waiting', code = NULL, cause = NULL", places)

    def drop(self, places: Sequence[int]) -> int:
        """Remove refused envelopes for good.

        Returns:
            How many these were.

        Raises:
            Refused: not_refused, where one of the places has none; then nothing is changed.
        """
        return self._change_refused("DELETE FROM envelope", places)

    def _change_refused(self, change: str, places: Sequence[int]) -> int:
        which = f" AND place IN ({', '.join('?' * len(places))})" if places else ""
        with self._file.durable_transaction() as connection:
            changed = connection.execute(f"{change} WHERE state = 'refused'{which}", tuple(places)).rowcount
            if places and changed != len(set(places)):
                raise Refused(
                    "some of these places have no refused envelope",
                    "give places that xbus outbox status shows",
                    code="not_refused",
                )
        self._bytes = self._stored_bytes()
        return changed

    # -- inside --------------------------------------------------------------------------------------------------------

    def _take(self, size: int, *, is_counted: bool = False) -> None:
        """Let so many bytes into the file.

        Args:
            is_counted: whether the bytes of the file were just counted.

        Raises:
            Refused: outbox_full.
        """
        if self._bytes + size > self._max_bytes and not is_counted:
            self._bytes = self._stored_bytes()
        if self._bytes + size > self._max_bytes:
            raise Refused(
                f"the outbox {self._file.path} would take more than {self._max_bytes} bytes",
                "send again when the bus is back and has taken some, or raise outbox_bytes",
                code="outbox_full",
            )
        self._bytes += size

    def _stored_bytes(self) -> int:
        return self._file.row(int, "SELECT coalesce(sum(bytes), 0) FROM envelope")

    def _envelopes(self, which: str) -> list[QueuedEnvelope]:
        wanted = "id, place, key, ordering_key, queued_at, bytes, code, cause, headers"
        return self._file.rows(QueuedEnvelope, f"SELECT {wanted} FROM envelope {which}")
