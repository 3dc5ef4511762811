"""The rows of subscriptions, each beside the reader that it stands on."""

from collections.abc import Iterator

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.configuration.entries import SubscriptionSpec
from xbus.broker.journal.log.catalog import RetrySettings
from xbus.broker.journal.retention.limits import limit_of


def is_of_subscription(service_id: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
    """Select the readers that the bus has of its own for subscriptions."""
    return sa.exists().where(model.subscription.c.service_id == service_id)


def read_subscriptions(connection: sa.Connection, *, removed: bool) -> Iterator[SubscriptionSpec]:
    """Read the subscriptions that are in use, or those that were, by name."""
    row, reader, read = model.subscription.c, model.reader.c, model.reader_event_type.c
    types: dict[int, set[str]] = {}
    for service_id, name in connection.execute(
        sa.select(read.service_id, model.event_type.c.name)
        .join(model.event_type, model.event_type.c.id == read.event_type_id)
        .where(read.until.is_(None))
    ):
        types.setdefault(service_id, set()).add(name)
    service, limit = model.service.c, model.lag_limit.c
    lag = (limit.envelopes, limit.seconds, limit.when_behind)
    settings = (reader.batch_items, reader.batch_wait, reader.ranges, reader.keeps)
    retry = (service.attempts, service.first_delay, service.longest_delay, service.jitter)
    rows = connection.execute(
        sa.select(model.subscription, *settings, *lag, *retry)
        .join(model.reader, reader.service_id == row.service_id)
        .join(model.service, service.id == row.service_id)
        .outerjoin(model.lag_limit, sa.and_(limit.kind == "reader", limit.subject_id == row.service_id))
        .where(row.removed_at.is_not(None) if removed else row.removed_at.is_(None))
        .order_by(row.name)
    )
    return (
        SubscriptionSpec(
            each.name,
            frozenset(types.get(each.service_id, ())),
            each.url,
            format=each.format,
            secret=each.secret,
            verify=each.verify,
            max=each.batch_items,
            timeout=round(each.batch_wait * 1000),
            ranges=each.ranges,
            keeps=each.keeps,
            max_lag=limit_of(each.envelopes, each.seconds),
            when_behind=each.when_behind or "alarm",
            retry=RetrySettings(each.attempts, each.first_delay, each.longest_delay, each.jitter),
        )
        for each in rows.all()
    )


def write_subscription(connection: sa.Connection, entry: SubscriptionSpec, service_id: int) -> None:
    """Bring the row of a subscription to what its entry says and into use, or insert it.

    Args:
        service_id: its reader.
    """
    table, state = model.subscription, model.subscription_state
    values = {"url": entry.url, "format": entry.format, "verify": entry.verify, "removed_at": None}
    if entry.secret is not None:
        values["secret"] = entry.secret
    found = connection.execute(sa.update(table).where(table.c.service_id == service_id).values(values))
    if not found.rowcount:
        values = {"secret": ""} | values
        connection.execute(sa.insert(table).values(service_id=service_id, name=entry.name, **values))
        connection.execute(sa.insert(state).values(service_id=service_id))


def rename_reader(connection: sa.Connection, name: str) -> None:
    """Give the reader of a renamed subscription its new name."""
    own = sa.select(model.subscription.c.service_id).where(model.subscription.c.name == name).scalar_subquery()
    reader = SubscriptionSpec(name, frozenset(), "").reader
    connection.execute(sa.update(model.service).where(model.service.c.id == own).values(name=reader.name))
