"""Reads items from the clearing database of a consumer: the tables that xbus.monitor 0.2.1 reads there."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from xbus.broker.journal.database.foreign import reading_foreign

CLEARING_STATES = ("new", "old", "cleared")

_ITEM = sa.table(
    "item",
    *(sa.column(name, sa.Integer) for name in ("id", "event_type_id", "type_id")),
    sa.column("state", sa.String),
    sa.column("event_id", sa.String),
    sa.column("recv_date", sa.DateTime),
    sa.column("sent_date", sa.DateTime),
    sa.column("source_data", sa.LargeBinary),
)
_EVENT_TYPE = sa.table("event_type", sa.column("id", sa.Integer), sa.column("name", sa.String))
_ITEM_TYPE = sa.table("item_type", sa.column("id", sa.Integer), sa.column("display_name", sa.String))


@dataclass(frozen=True, slots=True)
class ClearingItem:
    """An item that a consumer keeps for a person.

    Args:
        id: by which requests name it.
        state: ``new`` until it is ``cleared``; ``old`` if a newer item took its place.
        type: the event type with which it came.
        item_type: what it becomes at the consumer, in a person's words.
        received_at: when it came.
        cleared_at: when a person cleared it.
        event_id: the event with which it came.
        data: the item, as it came.
    """

    id: int
    state: str
    type: str | None
    item_type: str | None
    received_at: datetime | None
    cleared_at: datetime | None
    event_id: UUID | None
    data: bytes


def read_clearing_items(url: str, state: str | None, before: int | None, limit: int) -> list[ClearingItem]:
    """Read items, the newest first.

    Args:
        url: of the database, as its consumer announced it.
        state: one of ``CLEARING_STATES``; None for all.
        before: an id; only those below it are read.
        limit: how many at the most.

    Raises:
        JournalUnavailable: the database can't be reached; for SQLite also if it has other tables.
        JournalError: it has other tables, or there is none (``no_database``).
        ConfigurationError: the URL is of a database of another kind.
    """
    item = _ITEM.c
    wanted = (
        sa.select(_ITEM, _EVENT_TYPE.c.name, _ITEM_TYPE.c.display_name)
        .select_from(_ITEM)
        .outerjoin(_EVENT_TYPE, _EVENT_TYPE.c.id == item.event_type_id)
        .outerjoin(_ITEM_TYPE, _ITEM_TYPE.c.id == item.type_id)
        .order_by(item.id.desc())
        .limit(limit)
    )
    if state is not None:
        wanted = wanted.where(item.state == state)
    if before is not None:
        wanted = wanted.where(item.id < before)
    with reading_foreign(url) as connection, connection.begin():
        return [_item(row._mapping) for row in connection.execute(wanted)]


def _item(row: Mapping[Any, Any]) -> ClearingItem:
    return ClearingItem(
        row["id"],
        str(row["state"]),
        row["name"],
        row["display_name"],
        _in_utc(row["recv_date"]),
        _in_utc(row["sent_date"]),
        _uuid(row["event_id"]),
        bytes(row["source_data"] or b""),
    )


def _in_utc(at: datetime | None) -> datetime | None:
    """Read a moment, which such a database keeps in UTC without saying so."""
    return None if at is None else at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def _uuid(text: object) -> UUID | None:
    try:
        return UUID(str(text))
    except ValueError:
        return None
