"""Tells people how the calls of subscriptions go."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from xbus import model


@dataclass(frozen=True, slots=True)
class SubscriberStatus:
    """A subscription in use, and how its calls went.

    Args:
        name: of the subscription.
        failures: how many calls failed one after another.
        failing_since: when the first of these failed; None while it is well.
        retry_at: until when nobody calls; None while it is well.
        code: of the last failure.
        error: the last failure in words.
        ended_at: when the subscriber said that it wants no more; None while it does.
        parked: how many of its batches wait for a person.
    """

    name: str
    url: str
    format: str
    failures: int
    failing_since: datetime | None
    retry_at: datetime | None
    code: str | None
    error: str | None
    ended_at: datetime | None
    parked: int = 0

    @property
    def state(self) -> str:
        """Its state in a word."""
        if self.ended_at is not None:
            return "stopped"
        return "failed" if self.failures else "healthy"


def read_subscribers(connection: sa.Connection) -> dict[int, SubscriberStatus]:
    """Read the subscriptions in use, by the ids of the readers that they stand on."""
    row, state = model.subscription.c, model.subscription_state.c
    parked = _count_parked(connection)
    columns = (state.failing_since, state.retry_at, state.code, state.error, state.ended_at)
    found = connection.execute(
        sa.select(row.service_id, row.name, row.url, row.format, sa.func.coalesce(state.failures, 0), *columns)
        .outerjoin(model.subscription_state, state.service_id == row.service_id)
        .where(row.removed_at.is_(None))
    )
    return {service_id: SubscriberStatus(*[*values, parked[service_id]]) for service_id, *values in found}


def _count_parked(connection: sa.Connection) -> Counter[int]:
    """Count the batches that are parked, by the ids of their readers."""
    row = model.reader_range.c
    counted = sa.select(row.service_id, sa.func.count()).where(row.parked_at.is_not(None)).group_by(row.service_id)
    return Counter(dict(connection.execute(counted).all()))
