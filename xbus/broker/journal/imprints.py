"""Imprints of rarely written rows: a hash of each of them, as a broker has read them.

Whoever edits a row of the configuration raises its version, and of another watched table the count of its edits:
triggers see to that. So a row that is another one at the same version was changed by no program and no person, but by
damage.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
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
class Imprinted:
    """A table of which the broker keeps an imprint, or a part of its columns.

    Args:
        without: the columns that change without a new version.
        of_configuration: whether its version is that of the configuration; else the count of its edits.
    """

    table: sa.Table
    without: Collection[str] = ()
    of_configuration: bool = False

    @property
    def name(self) -> str:
        """As its imprint is called."""
        return f"configuration of {self.table.name}" if self.of_configuration else self.table.name


def _all_but(table: sa.Table, *names: str) -> Imprinted:
    return Imprinted(table, [column.name for column in table.columns if column.name not in names])


IMPRINTED = (
    *(Imprinted(table, UNWATCHED, of_configuration=True) for table in TABLES),
    _all_but(model.cursor, "role_id", "from_position", "until_position"),
    _all_but(model.emitter, "id", "password_hash"),
    _all_but(model.role, "id", "password_hash"),
    Imprinted(model.api_token, ("used_at",)),
    Imprinted(model.bot_state),
    Imprinted(model.emission_profile),
    Imprinted(model.input_descriptor),
    Imprinted(model.object_store),
    Imprinted(model.person, ("last_seen_at",)),
    Imprinted(model.person_session, ("used_at",)),
    Imprinted(model.person_token, ("used_at",)),
    Imprinted(model.registration),
    Imprinted(model.subscription_state),
)


@dataclass(frozen=True, slots=True)
class Imprint:
    """The hashes of all rows of a table.

    Args:
        version: the one at which they were read.
    """

    of: Imprinted
    version: int
    hashes: bytes


@dataclass(frozen=True, slots=True)
class RowFault:
    """A row, or a table, that is not as a broker has read it.

    Args:
        row: its key; empty for the table.
        cause: the fault, one sentence without a final full stop.
        of_configuration: whether it belongs to the configuration.
    """

    table: str
    row: str
    cause: str
    of_configuration: bool


def make_imprints(connection: sa.Connection) -> list[Imprint]:
    """Hash the rows of the tables whose present version has no imprint, but for those that change meanwhile."""
    versions, kept = _versions(connection), _kept(connection)
    new = [each for each in IMPRINTED if kept.get(each.name) != versions[each.name]]
    made = [Imprint(each, versions[each.name], b"".join(sorted(_hashes(connection, each)))) for each in new]
    # Without a snapshot each SELECT sees what was committed before it: the same version has the same rows.
    return _present(connection, made)


def keep_imprints(connection: sa.Connection, imprints: Collection[Imprint]) -> None:
    """Keep imprints in place of older ones, without those of tables that are others by now."""
    present = _present(connection, imprints)
    if not present:
        return
    names = [each.of.name for each in present]
    connection.execute(sa.delete(model.imprint).where(model.imprint.c.table_name.in_(names)))
    rows = [{"table_name": each.of.name, "version": each.version, "hashes": each.hashes} for each in present]
    connection.execute(sa.insert(model.imprint), rows)


def compare_imprints(connection: sa.Connection) -> Iterator[RowFault]:
    """Find the rows that are not as they were read; nothing where the present version has no imprint yet."""
    versions, kept = _versions(connection), _kept(connection)
    if kept and set(kept) != set(versions):
        yield RowFault(model.imprint.name, "", "its rows are not of all tables", of_configuration=True)
    if len({kept.get(each.name) for each in IMPRINTED if each.of_configuration}) > 1:
        yield RowFault(model.imprint.name, "", "its rows are not of one version", of_configuration=True)
    for each in IMPRINTED:
        version = kept.get(each.name)
        if version == versions[each.name]:
            yield from _compare(connection, each)
        elif version is not None and version > versions[each.name]:
            yield RowFault(model.imprint.name, each.name, "it is of a version that is to come", each.of_configuration)


def _present(connection: sa.Connection, imprints: Collection[Imprint]) -> list[Imprint]:
    versions = _versions(connection)
    return [each for each in imprints if each.version == versions[each.of.name]]


def _compare(connection: sa.Connection, of: Imprinted) -> Iterator[RowFault]:
    hashes = sa.select(model.imprint.c.hashes).where(model.imprint.c.table_name == of.name)
    kept = connection.execute(hashes).scalar_one()
    noted = Counter(kept[at : at + HASH_BYTES] for at in range(0, len(kept), HASH_BYTES))
    is_changed = False
    for values, packed in read_rows(connection, of.table, of.without):
        hashed = _hash(packed)
        if noted[hashed]:
            noted[hashed] -= 1
            continue
        is_changed = True
        key = ", ".join(str(values[column.name]) for column in of.table.primary_key)
        cause = "it is not as a broker has read it, and nobody has edited it"
        yield RowFault(of.table.name, key, cause, of.of_configuration)
    missing = noted.total()
    if missing and not is_changed:
        cause = f"it lacks rows that a broker has read: {missing}"
        yield RowFault(of.table.name, "", cause, of.of_configuration)


def _hashes(connection: sa.Connection, of: Imprinted) -> Iterator[bytes]:
    for _, packed in read_rows(connection, of.table, of.without):
        yield _hash(packed)


def _hash(packed: bytes) -> bytes:
    return hashlib.blake2b(packed, digest_size=HASH_BYTES).digest()


def _versions(connection: sa.Connection) -> Mapping[str, int]:
    """Read the present version of each imprinted table."""
    version: int = connection.execute(sa.select(model.configuration.c.version)).scalar_one()
    edits = {row.table_name: row.edits for row in connection.execute(sa.select(model.edit_count))}
    return {each.name: version if each.of_configuration else edits.get(each.table.name, 0) for each in IMPRINTED}


def _kept(connection: sa.Connection) -> Mapping[str, int]:
    rows = connection.execute(sa.select(model.imprint.c.table_name, model.imprint.c.version))
    return {row.table_name: row.version for row in rows}
