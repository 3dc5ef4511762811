"""Reads and writes the rows of bots and of subscriptions, and what the bus has of its own for them."""

from collections.abc import Iterator
from datetime import datetime
from typing import TypeVar

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.configuration.entries import BotSpec, ReaderSpec, SubscriptionSpec
from xbus.broker.journal.database.rows import columns_of, grouped, value_of
from xbus.broker.journal.log.bots import BOT_COLUMNS, TICKETS, read_command, read_emitted, read_settings
from xbus.broker.journal.log.catalog import RetrySettings
from xbus.broker.journal.readers.subscriptions import call_at_once
from xbus.broker.journal.retention.lagging import limit_of
from xbus.slots import Missed

# -- former ------------------------------------------------------------------------------------------------------------
# Former entries: they stay in their tables, marked as removed, so that naming one again brings it back.


def is_chosen(table: sa.Table) -> sa.ColumnElement[bool]:
    """Select the former rows of a table, or those in use: its parameter ``removed`` says which."""
    return table.c.removed_at.is_not(None) == sa.bindparam("removed", type_=sa.Boolean)


def without_end(table: sa.Table) -> list[sa.Column[object]]:
    """Give the columns of a table without ``removed_at``: a moment that can't be read stops nobody."""
    return [column for column in table.columns if column.name != "removed_at"]


# -- bots --------------------------------------------------------------------------------------------------------------

T = TypeVar("T")


def is_of_bot(service: sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    """Select the readers that the bus has of its own for bots, by the names of their services."""
    return sa.exists().where(service == sa.literal(BotSpec("").emitter) + model.bot.c.name)


def _read_readers(connection: sa.Connection) -> dict[str, ReaderSpec]:
    """Read the readers of bots that are in use, by the emitters of the bots, which have the same names."""
    found: dict[str, ReaderSpec] = {}
    for service, event_type, items, size, wait in connection.execute(_READERS):
        known = found[service].event_types if service in found else frozenset()
        found[service] = ReaderSpec(service, known | {event_type}, batch_items=items, batch_bytes=size, batch_wait=wait)
    return found


def _or(read: T | None, raw: T) -> T:
    """Give the value of a column, or its text: that differs from each value of a bus file."""
    return raw if read is None else read


def read_bots(connection: sa.Connection, *, removed: bool) -> Iterator[BotSpec]:
    """Read the bots that are in use, or those that were, by name."""
    emits = read_emitted(connection)
    readers = _read_readers(connection)
    rows = connection.execute(_BOTS, {"removed": removed})
    return (
        value_of(
            BotSpec,
            row,
            command=_or(read_command(row.command), (row.command,)),
            missed=Missed(row.missed),
            emits=frozenset(emits.get(row.id, ())),
            settings=_or(read_settings(row.settings), {"": row.settings}),
            reads=reader.event_types,
            batch_items=reader.batch_items,
            batch_bytes=reader.batch_bytes,
            batch_wait=reader.batch_wait,
        )
        for row in rows.all()
        for plain in [BotSpec(row.name)]
        for reader in [readers.get(plain.emitter, plain.reader)]
    )


_bot, _emitter, _service = model.bot.c, model.emitter.c, model.service.c
_settings, _read, _allowed = model.reader.c, model.reader_event_type.c, model.profile_event_type.c
_READERS = (
    sa.select(
        _service.name, model.event_type.c.name, _settings.batch_items, _settings.batch_bytes, _settings.batch_wait
    )
    .select_from(model.service)
    .join(model.reader, _settings.service_id == _service.id)
    .join(model.reader_event_type, _read.service_id == _service.id)
    .join(model.event_type, model.event_type.c.id == _read.event_type_id)
    .where(_service.removed_at.is_(None), is_of_bot(_service.name))
)
_BOTS = (
    sa.select(*BOT_COLUMNS, _service.name.label("runners"))
    .outerjoin(model.service, _service.id == _bot.service_id)
    .where(is_chosen(model.bot))
    .order_by(_bot.name)
)


def write_bot(connection: sa.Connection, entry: BotSpec, at: datetime) -> None:
    """Bring the row of a bot to what its entry says and into use, or insert it.

    A new bot, one that comes back, and one with another cron begin with the slots after ``at``.
    """
    bot = model.bot.c
    runners = sa.select(model.service.c.id).where(model.service.c.name == entry.runners).scalar_subquery()
    elsewhere = ("name", "runners", "emits", "reads", "batch_items", "batch_bytes", "batch_wait")
    values = {
        **columns_of(entry, *elsewhere),
        "service_id": None if entry.runners is None else runners,
        "emitter_id": _write_emitter(connection, entry),
        "command": [*entry.command],
        "missed": entry.missed.value,
        "settings": dict(entry.settings),
        "removed_at": None,
    }
    before = connection.execute(sa.select(*BOT_COLUMNS, bot.removed_at).where(bot.name == entry.name)).one_or_none()
    if before is None:
        bot_id = connection.execute(
            sa.insert(model.bot).values(name=entry.name, **values).returning(bot.id)
        ).scalar_one()
        connection.execute(sa.insert(model.bot_state).values(bot_id=bot_id, slots_until=at))
        return
    connection.execute(sa.update(model.bot).where(bot.id == before.id).values(values))
    if before.removed_at is not None or (before.cron, before.timezone) != (entry.cron, entry.timezone):
        connection.execute(
            sa.update(model.bot_state).where(model.bot_state.c.bot_id == before.id).values(slots_until=at)
        )


def _write_emitter(connection: sa.Connection, entry: BotSpec) -> int:
    profile, allowed = model.emitter_profile, model.profile_event_type
    profile_id = _bring_into_use(connection, profile, "name", entry.emitter)
    connection.execute(sa.delete(allowed).where(allowed.c.profile_id == profile_id))
    types = sa.select(sa.literal(profile_id), model.event_type.c.id).where(model.event_type.c.name.in_(entry.emits))
    connection.execute(sa.insert(allowed).from_select(["profile_id", "event_type_id"], types))
    return _bring_into_use(
        connection,
        model.emitter,
        "login",
        entry.emitter,
        profile_id=profile_id,
        kind="bot",
        password_hash=TICKETS,
    )


def _bring_into_use(connection: sa.Connection, table: sa.Table, named: str, name: str, **values: object) -> int:
    found: int | None = connection.execute(sa.select(table.c.id).where(table.c[named] == name)).scalar_one_or_none()
    if found is None:
        new_id: int = connection.execute(
            sa.insert(table).values({named: name, **values}).returning(table.c.id)
        ).scalar_one()
        return new_id
    connection.execute(sa.update(table).where(table.c.id == found).values(removed_at=None, **values))
    return found


def end_reader(connection: sa.Connection, entry: BotSpec, at: datetime) -> None:
    """Take the reader of a bot that reads no more out of use.

    If the bot reads again, the reader goes on at its old place.
    """
    service = model.service.c
    of_bot = (service.name == entry.emitter, service.kind == "reader", service.removed_at.is_(None))
    connection.execute(sa.update(model.service).where(*of_bot).values(removed_at=at))


def rename_emitter(connection: sa.Connection, former: str, name: str) -> None:
    """Give the emitter of a renamed bot, the profile of that, and the reader their new name."""
    old, new = BotSpec(former).emitter, BotSpec(name).emitter
    for table, named in _NAMED:
        connection.execute(sa.update(table).where(named == old).values({named: new}))


def remove_emitter(connection: sa.Connection, name: str, at: datetime) -> None:
    """Take the emitter and the reader of a removed bot out of use, and end its sessions."""
    login = BotSpec(name).emitter
    of_bot = sa.select(model.emitter.c.id).where(model.emitter.c.login == login)
    connection.execute(sa.delete(model.session).where(model.session.c.emitter_id.in_(of_bot)))
    for table, named in _NAMED:
        connection.execute(sa.update(table).where(named == login).values(removed_at=at))


_NAMED = (
    (model.emitter, model.emitter.c.login),
    (model.emitter_profile, model.emitter_profile.c.name),
    (model.service, model.service.c.name),
)


# -- subscriptions -----------------------------------------------------------------------------------------------------
# The rows of subscriptions, each beside the reader that it stands on.


def is_of_subscription(service_id: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
    """Select the readers that the bus has of its own for subscriptions."""
    return sa.exists().where(model.subscription.c.service_id == service_id)


def read_subscriptions(connection: sa.Connection, *, removed: bool) -> Iterator[SubscriptionSpec]:
    """Read the subscriptions that are in use, or those that were, by name."""
    types = grouped(connection.execute(_TYPES))
    rows = connection.execute(_SUBSCRIPTIONS, {"removed": removed})
    return (
        value_of(
            SubscriptionSpec,
            each,
            event_types=frozenset(types[each.service_id]),
            max=each.batch_items,
            timeout=round(each.batch_wait * 1000),
            max_lag=limit_of(each.envelopes, each.seconds),
            when_behind=each.when_behind or "alarm",
            retry=value_of(RetrySettings, each),
        )
        for each in rows.all()
    )


_row, _reader, _read, _service = (
    model.subscription.c,
    model.reader.c,
    model.reader_event_type.c,
    model.service.c,
)
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
