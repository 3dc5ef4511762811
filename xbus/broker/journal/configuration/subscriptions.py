"""The rows of subscriptions, each beside the reader that it stands on."""

from collections.abc import Iterator

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.configuration.entries import SubscriptionSpec
from xbus.broker.journal.configuration.former import is_chosen, without_end
from xbus.broker.journal.database.rows import value_of
from xbus.broker.journal.log.catalog import RetrySettings
from xbus.broker.journal.readers.subscriptions import call_at_once
from xbus.broker.journal.retention.lagging import limit_of


def is_of_subscription(service_id: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
    """Select the readers that the bus has of its own for subscriptions."""
    return sa.exists().where(model.subscription.c.service_id == service_id)


def read_subscriptions(connection: sa.Connection, *, removed: bool) -> Iterator[SubscriptionSpec]:
    """Read the subscriptions that are in use, or those that were, by name."""
    types: dict[int, set[str]] = {}
    for service_id, name in connection.execute(_TYPES):
        types.setdefault(service_id, set()).add(name)
    rows = connection.execute(_SUBSCRIPTIONS, {"removed": removed})
    return (
        value_of(
            SubscriptionSpec,
            each,
            event_types=frozenset(types.get(each.service_id, ())),
            max=each.batch_items,
            timeout=round(each.batch_wait * 1000),
            max_lag=limit_of(each.envelopes, each.seconds),
            when_behind=each.when_behind or "alarm",
            retry=value_of(RetrySettings, each),
        )
        for each in rows.all()
    )


_row, _reader, _read, _service = model.subscription.c, model.reader.c, model.reader_event_type.c, model.service.c
_limit = model.lag_limit.c
_TYPES = (
    sa.select(_read.service_id, model.event_type.c.name)
    .join(model.event_type, model.event_type.c.id == _read.event_type_id)
    .where(_read.until.is_(None))
)
_SUBSCRIPTIONS = (
    sa.select(
        *without_end(model.subscription),
        *(_reader.batch_items, _reader.batch_wait, _reader.ranges, _reader.keeps),
        *(_limit.envelopes, _limit.seconds, _limit.when_behind),
        *(_service.attempts, _service.first_delay, _service.longest_delay, _service.jitter),
    )
    .join(model.reader, _reader.service_id == _row.service_id)
    .join(model.service, _service.id == _row.service_id)
    .outerjoin(model.lag_limit, sa.and_(_limit.kind == "reader", _limit.subject_id == _row.service_id))
    .where(is_chosen(model.subscription))
    .order_by(_row.name)
)


def write_subscription(connection: sa.Connection, entry: SubscriptionSpec, service_id: int) -> None:
    """Bring the row of a subscription to what its entry says and into use, or insert it.

    One that is called in another way, or is restored, is called at once, also behind calls that failed. One that has
    ended goes on if it is restored or gets another URL: then it is another subscriber's.

    Args:
        service_id: its reader.
    """
    table, state = model.subscription, model.subscription_state
    values = {"url": entry.url, "format": entry.format, "verify": entry.verify, "removed_at": None}
    if entry.secret is not None:
        values["secret"] = entry.secret
    before = connection.execute(sa.select(table).where(table.c.service_id == service_id)).one_or_none()
    if before is not None:
        connection.execute(sa.update(table).where(table.c.service_id == service_id).values(values))
        is_another = before.removed_at is not None or before.url != entry.url
        if is_another or any(getattr(before, name) != value for name, value in values.items()):
            call_at_once(connection, service_id, ends_the_end=is_another)
    else:
        values = {"secret": ""} | values
        connection.execute(sa.insert(table).values(service_id=service_id, name=entry.name, **values))
        connection.execute(sa.insert(state).values(service_id=service_id))


def rename_reader(connection: sa.Connection, name: str) -> None:
    """Give the reader of a renamed subscription its new name."""
    own = sa.select(model.subscription.c.service_id).where(model.subscription.c.name == name).scalar_subquery()
    reader = SubscriptionSpec(name, frozenset(), "").reader
    connection.execute(sa.update(model.service).where(model.service.c.id == own).values(name=reader.name))
