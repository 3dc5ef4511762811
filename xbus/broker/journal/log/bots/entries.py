"""The bots and their runners in the catalog."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.rows import value_of
from xbus.broker.journal.log.sessions import read_keys
from xbus.broker.journal.writes import PauseEntry, PauseKind, Pauses, pause_of_role
from xbus.json_text import parse_json
from xbus.slots import Missed


@dataclass(frozen=True)
class RunnerEntry:
    """A role whose programs run bots, or call subscribers.

    Args:
        service_id: the service that bots name as their runners.
        pause: why its programs get no run: it is paused, or its service is.
        keys: the public keys by which they may log in over encrypted connections.
        is_gateway: whether its programs call subscribers, and run no bots.
    """

    id: int
    login: str
    service_id: int
    pause: PauseEntry | None = None
    keys: frozenset[str] = frozenset()
    is_gateway: bool = False


@dataclass(frozen=True)
class BotEntry:
    """A bot as the back needs it.

    Args:
        service_id: its runners.
        emitter_id: the emitter as which it writes.
        call: ``module:function``; empty for a command.
        command: a program and its arguments; empty for a call.
        cron: when it runs; empty for never by itself.
        timezone: the zone of ``cron``.
        missed: what becomes of slots at which nobody could look.
        instances: so many of its runs may be under way at once.
        max_seconds: after which a run is ended.
        attempts: how often a run is tried.
        settings: what each run gets.
        reader: the key of the reader that gives it batches; None for a bot that reads nothing.
        reads: the names of the event types of these.
        pause: why none of its runs begins.
    """

    id: int
    name: str
    service_id: int
    emitter_id: int
    call: str
    command: Sequence[str]
    cron: str
    timezone: str
    missed: Missed
    instances: int
    max_seconds: float
    attempts: int
    settings: Mapping[str, object]
    reader: str | None = None
    reads: Sequence[str] = ()
    pause: PauseEntry | None = None


BOT_COLUMNS: Sequence[sa.ColumnElement[Any]] = [
    sa.cast(column, sa.Text).label(column.name) if isinstance(column.type, sa.JSON) else column
    for column in model.bot.columns
    if column is not model.bot.c.removed_at
]
"""The columns of a bot, with JSON as its text: an administrator may have written anything there by SQL."""


def read_command(written: str) -> tuple[str, ...] | None:
    """Read the command of a bot from its text; None if the text is no list of texts."""
    found = _read_json(written)
    return tuple(found) if isinstance(found, list) and all(isinstance(each, str) for each in found) else None


def read_settings(written: str) -> dict[str, object] | None:
    """Read the settings of a bot from their text; None if the text is no map."""
    found = _read_json(written)
    return found if isinstance(found, dict) else None


def _read_json(written: str) -> object:
    try:
        return parse_json(written)
    except ValueError:
        return None


def read_runners(connection: sa.Connection, pauses: Pauses) -> list[RunnerEntry]:
    """Read the roles in use whose programs run bots, or call subscribers."""
    rows = connection.execute(
        sa.select(*(model.role.c[name] for name in ("id", "login", "service_id", "public_keys")), model.service.c.kind)
        .join(model.service, model.service.c.id == model.role.c.service_id)
        .where(
            model.role.c.removed_at.is_(None),
            model.service.c.removed_at.is_(None),
            model.service.c.kind.in_(("runner", "gateway")),
        )
        .order_by(model.role.c.login)
    )
    return [
        value_of(
            RunnerEntry,
            row,
            pause=pause_of_role(pauses, row.id, row.service_id),
            keys=frozenset(read_keys(row.public_keys)),
            is_gateway=row.kind == "gateway",
        )
        for row in rows
    ]


def read_bots(connection: sa.Connection, pauses: Pauses) -> list[BotEntry]:
    """Read the bots in use. A bot that names no runners has the only service of runners."""
    only = sa.select(sa.func.min(model.service.c.id)).where(
        model.service.c.kind == "runner", model.service.c.removed_at.is_(None)
    )
    readers, types = _read_readers(connection)
    rows = connection.execute(
        sa.select(*BOT_COLUMNS, sa.func.coalesce(model.bot.c.service_id, only.scalar_subquery()).label("runners"))
        .where(model.bot.c.removed_at.is_(None))
        .order_by(model.bot.c.name)
    )
    return [
        value_of(
            BotEntry,
            row,
            service_id=row.runners,
            command=read_command(row.command) or (),
            missed=Missed(row.missed),
            settings=read_settings(row.settings) or {},
            reader=readers.get(row.emitter_id),
            reads=types.get(row.emitter_id, ()),
            pause=pauses.get((PauseKind.BOT, row.id)),
        )
        for row in rows
    ]


def _read_readers(connection: sa.Connection) -> tuple[dict[int, str], dict[int, list[str]]]:
    """Read the readers of bots, which have the names of the bots' emitters: keys and event types, by emitter."""
    service, emitter, read = model.service.c, model.emitter.c, model.reader_event_type.c
    rows = connection.execute(
        sa.select(emitter.id, service.key, model.event_type.c.name)
        .select_from(model.emitter)
        .join(model.service, service.name == emitter.login)
        .join(model.reader_event_type, read.service_id == service.id)
        .join(model.event_type, model.event_type.c.id == read.event_type_id)
        .where(emitter.kind == "bot", service.kind == "reader", service.removed_at.is_(None))
        .order_by(model.event_type.c.name)
    )
    keys: dict[int, str] = {}
    types: dict[int, list[str]] = {}
    for emitter_id, key, name in rows:
        keys[emitter_id] = key
        types.setdefault(emitter_id, []).append(name)
    return keys, types
