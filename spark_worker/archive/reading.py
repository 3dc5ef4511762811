"""Archived items as Arrow batches, for whoever reads them beside those of the journal."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_worker.archive import storage
from spark_worker.archive.rows import ITEM_COLUMNS, NEWER_COLUMNS, SCHEMA
from xbus.broker.journal.archive.reading import ArchivedFile

BATCH_ROWS = 50_000


@contextmanager
def opened(location: str) -> Iterator[pq.ParquetFile]:
    """Open a file of an archive, for the time of the block.

    Raises:
        OSError: it can't be read.
        JournalError: it is missing (``archive_missing``) or damaged (``archive_differs``).
    """
    try:
        with storage.read(location) as source, pq.ParquetFile(source) as file:
            yield file
    except pa.ArrowException as error:
        raise storage.damaged(location, str(error)) from error


def read_items(file: ArchivedFile, columns: Collection[str] = ITEM_COLUMNS) -> Iterator[pa.RecordBatch]:
    """Read the wanted items of a file, in the order of position, event number and index.

    Args:
        file: as ``archived_files`` of the journal names it.
        columns: those of ``ITEM_COLUMNS`` that are wanted; they come in the order of ``ITEM_COLUMNS``.

    Raises:
        OSError: it can't be read.
        JournalError: the file is missing or damaged.
    """
    names = [name for name in ITEM_COLUMNS if name in columns]
    wanted = pa.array(file.positions, type=pa.int64())
    found = 0
    with opened(file.location) as parquet:
        there = [name for name in names if name in parquet.schema_arrow.names]
        for group in range(parquet.num_row_groups):
            if not may_hold(parquet, group, file.positions[0], file.positions[-1]):
                continue
            rows = parquet.read_row_group(group, columns=[*{*there, "position"}])
            rows = rows.filter(pc.is_in(rows.column("position"), value_set=wanted))
            rows = _with_newer(rows, names).select(names)
            found += rows.num_rows
            yield from rows.to_batches(max_chunksize=BATCH_ROWS)
    if found != file.items:
        raise storage.damaged(file.location, f"it has {found} of {file.items} items")


def _with_newer(rows: pa.Table, names: Collection[str]) -> pa.Table:
    """Add the newer columns to rows of a file that lacks them, as of events that have nothing there."""
    for name in NEWER_COLUMNS:
        if name in names and name not in rows.column_names:
            field = SCHEMA.field(name)
            nothing: list[tuple[str, str]] | None = [] if pa.types.is_map(field.type) else None
            rows = rows.append_column(field, pa.array([nothing] * rows.num_rows, type=field.type))
    return rows


def may_hold(parquet: Any, group: int, first: int, last: int) -> bool:
    """Check whether a row group may have rows of some positions, as far as its statistics show."""
    known = parquet.metadata.row_group(group).column(SCHEMA.get_field_index("position")).statistics
    return known is None or not known.has_min_max or bool(known.min <= last and known.max >= first)
