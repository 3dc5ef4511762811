"""Reads what waits for a person: what is parked, failures that nobody has looked at, and pauses."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.log.catalog import read_pauses
from xbus.broker.journal.operations.stalled import Stalled, count_open
from xbus.broker.journal.writes import PauseEntry
from xbus.states import DeliveryState, ItemState, TrackingState

MOST_READ = 2000
"""So many rows of a kind are read. More would count more exactly, and cost more."""


@dataclass(frozen=True, slots=True)
class AttentionGroup:
    """Parked envelopes or items, or failures, of one role with one code.

    Args:
        role: its login; None where no recipient was at fault.
        code: why.
        number: how many of them were found.
        at_least: whether more may exist.
        since: when the first of those that were found came.
        newest_at: when the last did.
    """

    role: str | None
    code: str
    number: int
    at_least: bool
    since: datetime
    newest_at: datetime


@dataclass(frozen=True, slots=True)
class Attention:
    """The counts of things that wait for a person.

    Args:
        parked: envelopes that are parked as a whole.
        parked_items: items that are parked alone.
        failures: those in the tracking state ``unprocessed``.
        pauses: the oldest first.
        open: envelopes that have been open for long, by the login of their emitter.
    """

    parked: Sequence[AttentionGroup]
    parked_items: Sequence[AttentionGroup]
    failures: Sequence[AttentionGroup]
    pauses: Sequence[PauseEntry]
    open: Sequence[tuple[str, Stalled]]


def read_attention(connection: sa.Connection, open_before: datetime, most: int = MOST_READ) -> Attention:
    """Read what waits for a person.

    Args:
        open_before: an envelope that was begun before is open for long.
        most: so many rows of a kind are read.
    """
    return Attention(
        parked=[*_groups(connection, _PARKED, most)],
        parked_items=[*_groups(connection, _PARKED_ITEMS, most)],
        failures=[*_groups(connection, _FAILURES, most)],
        pauses=[*read_pauses(connection).values()],
        open=sorted(count_open(connection, open_before).items(), key=lambda found: found[1].since),
    )


def _groups(
    connection: sa.Connection, rows: "sa.Select[int | None, str, datetime]", most: int
) -> Iterator[AttentionGroup]:
    found: defaultdict[tuple[int | None, str], list[datetime]] = defaultdict(list)
    read = 0
    for role_id, code, at in connection.execute(rows.limit(most)):
        found[role_id, code].append(at)
        read += 1
    most_first = sorted(found.items(), key=lambda group: len(group[1]), reverse=True)
    role_ids = {role_id for (role_id, _), _ in most_first if role_id is not None}
    named = sa.select(model.role.c.id, model.role.c.login).where(model.role.c.id.in_(role_ids))
    logins = dict(connection.execute(named).all()) if role_ids else {}
    for (role_id, code), moments in most_first:
        login = None if role_id is None else logins[role_id]
        yield AttentionGroup(login, code, len(moments), read >= most, min(moments), max(moments))


_DELIVERY, _ITEM, _FAILURE = model.delivery.c, model.parked_item.c, model.failure.c
_PARKED = sa.select(_DELIVERY.role_id, _DELIVERY.code, _DELIVERY.changed_at).where(
    # Written out, for the sake of SQLite, which then uses the index of what is parked.
    _DELIVERY.state == sa.literal_column(f"'{DeliveryState.PARKED.value}'")
)
_PARKED_ITEMS = sa.select(_ITEM.role_id, _ITEM.code, _ITEM.changed_at).where(_ITEM.state == ItemState.PARKED.value)
_FAILURES = (
    sa.select(_FAILURE.role_id, _FAILURE.code, _FAILURE.at)
    .where(_FAILURE.tracking == TrackingState.UNPROCESSED.value)
    .order_by(_FAILURE.id.desc())
)
