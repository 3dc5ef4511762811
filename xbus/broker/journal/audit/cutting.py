"""Removes old rows of the audit; the chain then begins with the hash of the last of them."""

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.audit.acts import act_here
from xbus.broker.journal.audit.chain import ChainHead, hang_all
from xbus.broker.journal.audit.noting import note_acts
from xbus.broker.journal.audit.verifying import CUT, verify_part
from xbus.errors import Refused


@dataclass(frozen=True, slots=True)
class Cut:
    """The rows that were removed: how many, and the last of them."""

    rows: int
    last: ChainHead


def count_older(connection: sa.Connection, before: datetime) -> int:
    """Count the rows that a cut would remove."""
    last = _last_older(connection, before)
    cut: int = connection.execute(sa.select(model.audit_head.c.cut_number)).scalar_one()
    return 0 if last is None else last.number - cut


def cut_older(connection: sa.Connection, before: datetime, reason: str, at: datetime) -> Cut | None:
    """Remove all rows in front of the first one that was written at a moment or later, and note it.

    Returns:
        The removed rows; None if no row is so old.

    Raises:
        Refused: a row that would go was changed (``audit_broken``).
    """
    hang_all(connection)
    last = _last_older(connection, before)
    if last is None:
        return None
    if faults := verify_part(connection, last.number):
        raise Refused(
            f"the audit was tampered with: {faults[0]}",
            "keep it as it is, and see xbus audit verify",
            code="audit_broken",
        )
    rows = last.number - connection.execute(sa.select(model.audit_head.c.cut_number)).scalar_one()
    connection.execute(sa.update(model.audit_head).values(cut_number=last.number, cut_hash=last.hash))
    connection.execute(sa.delete(model.audit).where(model.audit.c.number <= last.number))
    note_acts(connection, [act_here(at, CUT, f"audit rows up to {last.number}", after=str(last), reason=reason)])
    hang_all(connection)
    return Cut(rows, last)


def _last_older(connection: sa.Connection, before: datetime) -> ChainHead | None:
    """Find the last row of the chain in front of the first one that is not older."""
    row = model.audit.c
    kept: int | None = connection.execute(sa.select(sa.func.min(row.number)).where(row.at >= before)).scalar_one()
    older = sa.select(row.number, row.hash).where(row.number.is_not(None)).order_by(row.number.desc()).limit(1)
    if kept is not None:
        older = older.where(row.number < kept)
    found = connection.execute(older).one_or_none()
    return None if found is None else ChainHead(found.number, bytes(found.hash))
