"""Hangs new rows of the audit into its chain. A lock on the one row of the head keeps two writers from forking it."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from xbus import model
from xbus.broker.journal.audit.reading import as_act

MOST_AT_ONCE = 1000
"""Rows of one transaction. More would keep other writers of SQLite waiting for longer."""

_NEW = sa.select(model.audit).where(model.audit.c.number.is_(None)).order_by(model.audit.c.id)
_HANG = (
    sa.update(model.audit)
    .where(model.audit.c.id == bindparam("of_id"))
    .values(number=bindparam("new_number"), hash=bindparam("new_hash"))
)


@dataclass(frozen=True, slots=True)
class ChainHead:
    """An end of the chain: a row's number and its hash.

    Example:
        >>> str(ChainHead(3, bytes(32)))[:8]
        '3:000000'
    """

    number: int
    hash: bytes

    def __str__(self) -> str:
        return f"{self.number}:{self.hash.hex()}"


def has_new(connection: sa.Connection) -> bool:
    """Check whether rows wait for the chain."""
    return connection.execute(_NEW.limit(1)).first() is not None


def hang_new(connection: sa.Connection, *, wait: bool) -> int:
    """Hang up to ``MOST_AT_ONCE`` new rows into the chain, in the caller's transaction.

    Args:
        wait: whether to wait for another program that is at it; else nothing is done meanwhile.

    Returns:
        How many rows it was.
    """
    head = lock_head(connection, wait=wait)
    if head is None:
        return 0
    hung: list[dict[str, Any]] = []
    for row in connection.execute(_NEW.limit(MOST_AT_ONCE)):
        number = head.number + 1
        head = ChainHead(number, as_act(row._mapping).hashed(number, head.hash))
        hung.append({"of_id": row.id, "new_number": number, "new_hash": head.hash})
    if hung:
        connection.execute(_HANG, hung)
        connection.execute(sa.update(model.audit_head).values(number=head.number, hash=head.hash))
    return len(hung)


def hang_all(connection: sa.Connection) -> ChainHead:
    """Hang all new rows into the chain; gives its end."""
    while hang_new(connection, wait=True):
        pass
    return read_head(connection)


def lock_head(connection: sa.Connection, *, wait: bool = True) -> ChainHead | None:
    """Lock the head until the end of the transaction; None where another program has it and ``wait`` is false."""
    # On SQLite there is one writer at a time anyway.
    head = model.audit_head.c
    locked = sa.select(head.number, head.hash).with_for_update(skip_locked=not wait)
    row = connection.execute(locked).one_or_none()
    return None if row is None else ChainHead(row.number, bytes(row.hash))


def read_head(connection: sa.Connection) -> ChainHead:
    """Read the end of the chain."""
    row = connection.execute(sa.select(model.audit_head.c.number, model.audit_head.c.hash)).one()
    return ChainHead(row.number, bytes(row.hash))
