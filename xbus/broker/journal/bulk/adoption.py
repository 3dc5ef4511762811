"""Adoption of side files: the broker takes over, step by step, what executors left beside an SQLite journal.

It may be broken off and begun again at any step: what is there already tells where it goes on.
"""

import hashlib
import struct
from contextlib import closing
from pathlib import Path
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.bulk.part_writer import COLUMNS
from xbus.broker.journal.bulk.side_files import disk_errors, folder_of, parts_of, path_of
from xbus.broker.journal.database.binary_copy import BIG_INTEGER, HEADER, INTEGER, broken_off, read_row
from xbus.errors import JournalError
from xbus.states import AttemptState

STEP_BYTES = 4 * 1024 * 1024
"""Bytes of data that one step takes over. Larger blocks other writes for longer and costs fewer commits."""

STEP_ROWS = 2_000

_INSERT = f"INSERT INTO bulk_segment ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"


class Adoption:
    """Takes over the parts of an attempt. Do each step in a transaction of its own, until no more is left; a failed
    step may be repeated.

    Args:
        attempt_id: of an attempt that is building.

    Example:
        >>> adoption = Adoption(attempt_id)                         # doctest: +SKIP
        >>> while await journal.run(adoption.step):                 # doctest: +SKIP
        ...     pass
    """

    def __init__(self, attempt_id: UUID, *, step_bytes: int = STEP_BYTES, step_rows: int = STEP_ROWS) -> None:
        self._attempt_id = attempt_id
        self._step_bytes = step_bytes
        self._step_rows = step_rows
        self._offsets: dict[tuple[int, int], int] = {}

    def step(self, connection: sa.Connection) -> bool:
        """Take over some more; on PostgreSQL, which has no side files, do nothing.

        Returns:
            Whether more is left.

        Raises:
            JournalError: a file is damaged, or the attempt is over.
            JournalUnavailable: a file can't be read now.
        """
        folder = folder_of(connection.engine.url)
        if folder is None:
            return False
        last = self._last_adopted(connection)
        if last is None:
            self._check_building(connection)
        for part in parts_of(folder, self._attempt_id):
            if last is not None and part < last[0]:
                continue
            number = last[1] + 1 if last is not None and part == last[0] else 0
            if self._adopt_some(connection, path_of(folder, self._attempt_id, part), part, number):
                return True
        return False

    def _last_adopted(self, connection: sa.Connection) -> tuple[int, int] | None:
        segment = model.bulk_segment.c
        statement = (
            sa.select(segment.part, segment.number)
            .where(segment.attempt_id == self._attempt_id)
            .order_by(segment.part.desc(), segment.number.desc())
            .limit(1)
        )
        row = connection.execute(statement).one_or_none()
        return None if row is None else (row.part, row.number)

    def _check_building(self, connection: sa.Connection) -> None:
        state = sa.select(model.bulk_attempt.c.state).where(model.bulk_attempt.c.id == self._attempt_id)
        if connection.execute(state).scalar_one_or_none() != AttemptState.BUILDING.value:
            raise JournalError(f"attempt {self._attempt_id} is not building any more")

    def _adopt_some(self, connection: sa.Connection, path: Path, part: int, number: int) -> bool:
        """Take over rows of a file from a number on; whether there were any."""
        rows: list[tuple[object, ...]] = []
        size = 0
        with disk_errors(path), path.open("rb") as file:
            if file.read(len(HEADER)) != HEADER:
                raise broken_off()
            known = self._offsets.get((part, number))
            if known is None:
                for _ in range(number):
                    read_row(file)
            else:
                file.seek(known)
            while size < self._step_bytes and len(rows) < self._step_rows and (fields := read_row(file)) is not None:
                rows.append(self._row(fields, part, number + len(rows)))
                size += len(fields[4] or b"")
                # The next step may come here again, if only to find the end.
                self._offsets = {(part, number + len(rows)): file.tell()}
        if not rows:
            return False
        with closing(connection.connection.cursor()) as cursor:
            cursor.executemany(_INSERT, rows)
        return True

    def _row(self, fields: list[bytes | None], part: int, number: int) -> tuple[object, ...]:
        place = [self._attempt_id.bytes, INTEGER.pack(part), INTEGER.pack(number)]
        if len(fields) != len(COLUMNS) or fields[:3] != place:
            raise broken_off()
        items, data, digest, first_index, sources = fields[3:]
        if data is None or items is None or first_index is None or hashlib.sha256(data).digest() != digest:
            raise broken_off()
        try:
            count, first = INTEGER.unpack(items)[0], BIG_INTEGER.unpack(first_index)[0]
        except struct.error:
            raise broken_off() from None
        return (self._attempt_id.hex, part, number, count, data, digest, first, sources)
