"""Reads the audit."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.audit.acts import Act

PAGE = 1000
"""Rows that are read at a time."""


@dataclass(frozen=True, slots=True)
class AuditRow:
    """An act, and its place in the chain; None for both while it waits for the chain."""

    id: int
    act: Act
    number: int | None
    hash: bytes | None


@dataclass(frozen=True, slots=True)
class AuditFilters:
    """The rows that somebody asks for; None for all.

    Args:
        since: done at this moment or later.
        who: by exactly this login or user.
        action: exactly this one.
        object: a part of the object's text.
        before_number: below this number in the chain.
    """

    since: datetime | None = None
    who: str | None = None
    action: str | None = None
    object: str | None = None
    before_number: int | None = None


def list_acts(connection: sa.Connection, filters: AuditFilters, limit: int) -> list[AuditRow]:
    """List what was done, the newest first."""
    row = model.audit.c
    wanted: list[sa.ColumnElement[bool]] = []
    if filters.since is not None:
        wanted.append(row.at >= filters.since)
    if filters.who is not None:
        wanted.append(row.who == filters.who)
    if filters.action is not None:
        wanted.append(row.action == filters.action)
    if filters.object is not None:
        wanted.append(row.object.contains(filters.object, autoescape=True))
    # One part after the other: an index then finds each in its order.
    in_chain = sa.select(model.audit).order_by(row.number.desc())
    if filters.before_number is not None:
        parts = [in_chain.where(row.number < filters.before_number)]
    else:
        new = sa.select(model.audit).where(row.number.is_(None)).order_by(row.id.desc())
        parts = [new, in_chain.where(row.number.is_not(None))]
    found: list[AuditRow] = []
    for part in parts:
        rows = connection.execute(part.where(*wanted).limit(limit - len(found)))
        found += [as_row(each._mapping) for each in rows]
    return found


def read_chain(connection: sa.Connection, after: int, until: int | None = None) -> Iterator[AuditRow]:
    """Read the rows of the chain behind a number in their order, a page at a time.

    Args:
        until: the last number; None for the end.
    """
    number = model.audit.c.number
    last = number.is_not(None) if until is None else number <= until
    while True:
        page = sa.select(model.audit).where(number > after, last).order_by(number).limit(PAGE)
        found = [as_row(row._mapping) for row in connection.execute(page)]
        yield from found
        if len(found) < PAGE:
            return
        after = found[-1].number or 0


def as_row(row: Mapping[Any, Any]) -> AuditRow:
    """Make an audit row of one of the database."""
    return AuditRow(row["id"], as_act(row), row["number"], None if row["hash"] is None else bytes(row["hash"]))


def as_act(row: Mapping[Any, Any]) -> Act:
    """Read the act of a row of the database."""
    names = ("at", "who", "origin", "action", "object", "before", "after", "reason")
    return Act(*(row[name] for name in names))
