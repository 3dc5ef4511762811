"""Claims object stores: a file in each names the one journal that may write and remove there.

1. The row is committed. 2. The file is written, if the store is empty. 3. The row notes that it was there. A crash at
any moment leaves what the next start goes on with.
"""

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.engine import journal_errors
from xbus.broker.journal.database.place import read_place
from xbus.broker.journal.objects.opening import local_path, open_store
from xbus.broker.journal.objects.stores import MARK, ObjectStore
from xbus.errors import ConfigurationError, XbusError
from xbus.model.base import Timestamp

FOREIGN = "objects_foreign"
"""The code of the error of a store that belongs to somebody else."""

NOT_THERE = "objects_not_there"
"""The code of the error of a store that this journal has used, and that is empty now."""

ELSEWHERE = "objects_of_copy"
"""The code of the error of a store that belongs to the journal of which this one is a copy."""

CLAIMING = 0x584F626A
"""The key of PostgreSQL's advisory lock under which stores are claimed: front and back start at the same time."""


@dataclass(frozen=True, slots=True)
class StoreRow:
    """A row of ``model.object_store``."""

    id: int
    place: str
    mark: uuid.UUID
    is_marked: bool


@dataclass(frozen=True, slots=True)
class Mark:
    """The content of the file that tells whose a store is.

    Args:
        mark: as in ``model.object_store``.
        journal: where the journal was; see ``xbus.broker.journal.database.place``.
    """

    mark: uuid.UUID
    journal: str

    @classmethod
    def of(cls, content: bytes | None) -> "Mark | None":
        """Read a mark; None where there is no content, or one of another form."""
        if content is None:
            return None
        try:
            found: Any = json.loads(content)
            return cls(uuid.UUID(found["mark"]), str(found["journal"]))
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    def written(self) -> bytes:
        """Encode the mark, with a word for people who find the file."""
        told = "Objects of a journal of Xbus. Change and remove nothing here: the broker does."
        return json.dumps({"about": told, "mark": str(self.mark), "journal": self.journal}, indent=1).encode()


def whole_place(place: str) -> str:
    """Complete the path of a folder, so that every program finds it.

    Raises:
        ConfigurationError: the address contains a password, which the journal would keep and show.
    """
    folder = local_path(place)
    if folder is not None:
        return str(folder.absolute())
    if "@" in place.partition("://")[2].partition("/")[0]:
        raise ConfigurationError(
            "[journal] objects contains a key or password, which everybody would see who may read the journal",
            "give it by the storage's own means, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        )
    return place


def claim(engine: sa.Engine, place: str, at: datetime) -> int:
    """Make a store this journal's own; one that was moved is found again by its mark.

    Args:
        place: as the configuration names it.

    Returns:
        The id of its row.

    Raises:
        ConfigurationError: the store belongs to somebody else (``objects_foreign``), or to the journal of which this
            is a copy (``objects_of_copy``). Or it is empty, and this journal has used it (``objects_not_there``).
        JournalUnavailable: it can't be read or written (``objects_unavailable``).
    """
    whole = whole_place(place)
    store = open_store(whole)
    content = store.read_mark()
    found = Mark.of(content)
    with journal_errors(), engine.begin() as connection:
        journal = read_place(connection)
        row = _row_of(connection, whole, found)
    _check(store, content, row, journal)
    if content is None:
        store.write_mark(Mark(row.mark, journal).written())
    with journal_errors(), engine.begin() as connection:
        values = {"place": whole, "marked_at": sa.func.coalesce(_ROW.marked_at, sa.bindparam("at", type_=Timestamp))}
        connection.execute(sa.update(model.object_store).where(_ROW.id == row.id).values(values), {"at": at})
    return row.id


def check_stores(connection: sa.Connection, place: str = "") -> Iterator[tuple[str, XbusError]]:
    """Find the stores that this journal could not use now; changes nothing.

    Args:
        place: as the configuration names it.

    Yields:
        The place of each with the error: at the configured place that of ``claim``.
    """
    journal = read_place(connection)
    rows = {row.place: row for row in _rows(connection) if row.is_marked}
    try:
        if place:
            _check_configured(whole_place(place), rows, journal)
    except XbusError as error:
        yield place, error
    for row in rows.values():
        try:
            store = open_store(row.place)
            _check(store, store.read_mark(), row, journal)
        except XbusError as error:
            # A copy of the journal reads where the original keeps its objects.
            if error.code != ELSEWHERE:
                yield row.place, error


def _check_configured(whole: str, rows: dict[str, StoreRow], journal: str) -> None:
    """Check the store at the configured place, and take its row out."""
    store = open_store(whole)
    content = store.read_mark()
    found = Mark.of(content)
    moved = [place for place, row in rows.items() if found is not None and row.mark == found.mark]
    row = rows.pop(moved[0] if moved else whole, StoreRow(0, whole, uuid.uuid4(), is_marked=False))
    _check(store, content, row, journal)


def adopt(connection: sa.Connection, place: str = "") -> list[str]:
    """Make the stores of a journal that was restored or moved its own again; returns their places.

    Args:
        place: as the configuration names it; a store that lies there now is no more expected where it lay before.

    Raises:
        ConfigurationError: the place can't be used.
        JournalUnavailable: one of them can't be read or written (``objects_unavailable``).
    """
    if place:
        _note_moved(connection, whole_place(place))
    journal = read_place(connection)
    adopted = []
    for row in _rows(connection):
        store = open_store(row.place)
        found = Mark.of(store.read_mark())
        if found is not None and found.mark == row.mark and found.journal != journal:
            store.write_mark(Mark(row.mark, journal).written())
            adopted.append(row.place)
    return adopted


def _note_moved(connection: sa.Connection, whole: str) -> None:
    found = Mark.of(open_store(whole).read_mark())
    if found is not None:
        connection.execute(sa.update(model.object_store).where(_ROW.mark == found.mark).values(place=whole))


def is_own(store: ObjectStore, mark: uuid.UUID, journal: str) -> bool:
    """Check whether a journal may remove objects in a store.

    Args:
        mark: as in its row.
        journal: the place of the journal.
    """
    return Mark.of(store.read_mark()) == Mark(mark, journal)


def read_stores(connection: sa.Connection) -> tuple[str, list[StoreRow]]:
    """Read the place of the journal, and its stores in use or formerly in use."""
    return read_place(connection), [row for row in _rows(connection) if row.is_marked]


def _row_of(connection: sa.Connection, whole: str, found: Mark | None) -> StoreRow:
    """Find the row of a store by its mark, otherwise by its place; otherwise add it."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(CLAIMING)))
    rows = _rows(connection)
    if found is not None:
        for row in rows:
            if row.mark == found.mark:
                return row
    for row in rows:
        if row.place == whole:
            return row
    mark = uuid.uuid4()
    added = sa.insert(model.object_store).values(place=whole, mark=mark).returning(_ROW.id)
    return StoreRow(connection.execute(added).scalar_one(), whole, mark, is_marked=False)


def _rows(connection: sa.Connection) -> list[StoreRow]:
    columns = (_ROW.id, _ROW.place, _ROW.mark, _ROW.marked_at.is_not(None))
    found = connection.execute(sa.select(*columns).order_by(_ROW.id))
    return [StoreRow(id_, place, mark, bool(is_marked)) for id_, place, mark, is_marked in found]


def _check(store: ObjectStore, content: bytes | None, row: StoreRow, journal: str) -> None:
    """Let a journal use a store.

    Args:
        content: of the mark in it; None without one.
        row: of the store, or of a new one.
        journal: the place of the journal.
    """
    if content is None:
        _check_may_begin(store, row)
        return
    found = Mark.of(content)
    if found is None or found.mark != row.mark:
        raise ConfigurationError(
            f"the objects in {store.place} belong to another journal",
            f"name a place of its own in [journal] objects, or remove {MARK} there if that journal is gone for good",
            code=FOREIGN,
        )
    if found.journal != journal:
        raise ConfigurationError(
            f"the objects in {store.place} belong to the journal at {found.journal}, and this one is at {journal}",
            "after a move or a restore run xbus journal adopt; a copy needs another place in [journal] objects",
            code=ELSEWHERE,
        )


def _check_may_begin(store: ObjectStore, row: StoreRow) -> None:
    if row.is_marked:
        raise ConfigurationError(
            f"{store.place} has no {MARK}, although this journal keeps objects there",
            "see that it is mounted and whole, or restore it from a copy",
            code=NOT_THERE,
        )
    if not store.is_empty():
        raise ConfigurationError(
            f"{store.place} is not empty, and not an object store",
            "name an empty folder in [journal] objects",
            code=FOREIGN,
        )


_ROW = model.object_store.c
