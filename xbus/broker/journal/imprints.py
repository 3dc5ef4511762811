"""Imprints of the configuration: a hash of each of its rows, as a broker has read them.

Whoever edits a row raises the version of the configuration, triggers see to that. So a row that is another one at the
same version was changed by no program and no person, but by damage.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.table_rows import read_rows

TABLES = (
    model.bot,
    model.edge,
    model.emitter,
    model.emitter_profile,
    model.emitting_service,
    model.event_type,
    model.graph,
    model.lag_limit,
    model.node,
    model.pause,
    model.profile_event_type,
    model.reader,
    model.reader_event_type,
    model.role,
    model.sending_limit,
    model.service,
    model.subscription,
)
"""The tables whose changes raise the version."""

UNWATCHED = ("password_hash",)
"""The columns of them whose changes do not."""

HASH_BYTES = 8


@dataclass(frozen=True, slots=True)
class Imprints:
    """The hashes of all rows of the configuration.

    Args:
        version: of the configuration.
        hashes: for each table those of its rows, one after another.
    """

    version: int
    hashes: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class RowFault:
    """A row, or a table, that is not as a broker has read it.

    Args:
        row: its key; empty for the table.
        cause: the fault, one sentence without a final full stop.
    """

    table: str
    row: str
    cause: str


def make_imprints(connection: sa.Connection) -> Imprints | None:
    """Hash all rows; None where the present version has its imprints, or where it changes meanwhile."""
    version = _version(connection)
    if set(_versions(connection).values()) == {version}:
        return None
    hashes = {table.name: b"".join(sorted(_hashes(connection, table))) for table in TABLES}
    # Without a snapshot each SELECT sees what was committed before it: the same version has the same rows.
    return Imprints(version, hashes) if _version(connection) == version else None


def keep_imprints(connection: sa.Connection, imprints: Imprints) -> None:
    """Keep imprints in place of older ones, unless the configuration is another one by now."""
    if _version(connection) != imprints.version:
        return
    connection.execute(sa.delete(model.imprint))
    rows = [
        {"table_name": name, "version": imprints.version, "hashes": hashes} for name, hashes in imprints.hashes.items()
    ]
    connection.execute(sa.insert(model.imprint), rows)


def compare_imprints(connection: sa.Connection) -> Iterator[RowFault]:
    """Find the rows that are not as they were read; nothing where the present version has no imprints yet."""
    versions = _versions(connection)
    if not versions:
        return
    if len(set(versions.values())) > 1 or set(versions) != {table.name for table in TABLES}:
        yield RowFault(model.imprint.name, "", "its rows are not of one version, or not of all tables")
    for table in TABLES:
        if versions.get(table.name) == _version(connection):
            yield from _compare(connection, table)


def _compare(connection: sa.Connection, table: sa.Table) -> Iterator[RowFault]:
    kept = connection.execute(
        sa.select(model.imprint.c.hashes).where(model.imprint.c.table_name == table.name)
    ).scalar_one()
    noted = Counter(kept[at : at + HASH_BYTES] for at in range(0, len(kept), HASH_BYTES))
    is_changed = False
    for values, packed in read_rows(connection, table, UNWATCHED):
        hashed = _hash(packed)
        if noted[hashed]:
            noted[hashed] -= 1
            continue
        is_changed = True
        key = ", ".join(str(values[column.name]) for column in table.primary_key)
        yield RowFault(table.name, key, "it is not as a broker has read it, and nobody has edited it")
    missing = noted.total()
    if missing and not is_changed:
        yield RowFault(table.name, "", f"it lacks rows that a broker has read: {missing}")


def _hashes(connection: sa.Connection, table: sa.Table) -> Iterator[bytes]:
    for _, packed in read_rows(connection, table, UNWATCHED):
        yield _hash(packed)


def _hash(packed: bytes) -> bytes:
    return hashlib.blake2b(packed, digest_size=HASH_BYTES).digest()


def _version(connection: sa.Connection) -> int:
    version: int = connection.execute(sa.select(model.configuration.c.version)).scalar_one()
    return version


def _versions(connection: sa.Connection) -> Mapping[str, int]:
    rows = connection.execute(sa.select(model.imprint.c.table_name, model.imprint.c.version))
    return {row.table_name: row.version for row in rows}
