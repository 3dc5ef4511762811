"""Verifies the audit's chain: finds rows that were changed, removed, or put elsewhere."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.audit.acts import NO_HASH
from xbus.broker.journal.audit.chain import ChainHead
from xbus.broker.journal.audit.reading import AuditRow, read_chain

CUT = "audit_cut"
"""The action of who removed old rows."""

TOLD_ROWS = 100
"""After so many rows a walk tells how far it is."""

MOST_FAULTS = 20
"""Faults that are reported; a chain that was tampered with may have one in each row."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a look at the chain.

    Args:
        rows: how many rows it has.
        cut: the row behind which it begins.
        head: its last row.
        faults: sentences, each naming a row; empty where all is well.
    """

    rows: int
    cut: ChainHead
    head: ChainHead
    faults: tuple[str, ...]


def chain_length(connection: sa.Connection) -> int:
    """Count the rows that the chain should have."""
    ends = connection.execute(sa.select(model.audit_head)).one()
    return int(ends.number - ends.cut_number)


def verify(
    connection: sa.Connection, noted: ChainHead | None = None, tell: Callable[[int], None] = lambda rows: None
) -> Verification:
    """Compute all hashes of the chain anew, and compare.

    Args:
        noted: an end of the chain that somebody wrote down before; it must still be in it.
        tell: gets the number of rows that were verified since it was called last.
    """
    ends = connection.execute(sa.select(model.audit_head)).one()
    cut = ChainHead(ends.cut_number, bytes(ends.cut_hash))
    walk = _Walk(cut, noted)
    # 1. The head is read. 2. A broker hangs further rows in. 3. They must not count as rows beyond the head.
    for row in read_chain(connection, cut.number, ends.number):
        walk.take(row)
        if walk.rows % TOLD_ROWS == 0:
            tell(TOLD_ROWS)
    faults = [*walk.faults]
    head = ChainHead(ends.number, bytes(ends.hash))
    if walk.last != head:
        faults.append(f"the head names row {head}, and the last row is {walk.last}: rows at the end are missing")
    if cut != ChainHead(0, NO_HASH) and str(cut) != walk.cut_told:
        faults.append(f"rows up to {cut.number} are missing, and no xbus audit cut removed them")
    if noted is not None and noted.number > cut.number and not walk.has_noted:
        faults.append(f"row {noted.number} with the noted hash is missing: the end was removed or written anew")
    return Verification(walk.rows, cut, walk.last, tuple(faults[:MOST_FAULTS]))


def verify_part(connection: sa.Connection, until: int) -> tuple[str, ...]:
    """Find the faults of the chain up to a row."""
    ends = connection.execute(sa.select(model.audit_head)).one()
    walk = _Walk(ChainHead(ends.cut_number, bytes(ends.cut_hash)), None)
    for row in read_chain(connection, ends.cut_number, until):
        walk.take(row)
    return tuple(walk.faults)


class _Walk:
    """Goes along the chain, and compares each row with the one before it."""

    def __init__(self, start: ChainHead, noted: ChainHead | None) -> None:
        self.last = start
        self.rows = 0
        self.faults: list[str] = []
        self.has_noted = noted is not None and noted == start
        self.cut_told = ""
        self._noted = noted

    def take(self, row: AuditRow) -> None:
        number = row.number or 0
        if len(self.faults) < MOST_FAULTS:
            self.faults.extend(self._faults(row, number))
        self.last = ChainHead(number, row.hash or NO_HASH)
        self.rows += 1
        self.has_noted = self.has_noted or self.last == self._noted
        if row.act.action == CUT:
            self.cut_told = row.act.after

    def _faults(self, row: AuditRow, number: int) -> Iterator[str]:
        if number != self.last.number + 1:
            first, last = self.last.number + 1, number - 1
            yield f"row {first} is missing" if first == last else f"rows {first} to {last} are missing"
        elif row.act.hashed(number, self.last.hash) != row.hash:
            yield f"row {number} was changed: its hash does not follow from its values and the row before it"
