"""Event types that programs make: by sending the first event, or by subscribing before anybody has sent one.

One emitter alone publishes such a type, the first that sends to it. A profile says by ``new_types`` which names its
emitters may take. A type of the bus file is none of these.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.audit import Act, act_here
from xbus.broker.journal.configuration import EventTypeSpec, Section, apply, make_plan, read_stored
from xbus.broker.journal.configuration.history import new_version
from xbus.broker.journal.configuration.names import is_name
from xbus.broker.journal.configuration.plan import Change, Move, Plan
from xbus.broker.journal.log.catalog import read_version
from xbus.broker.journal.log.emitters import EmitterEntry, read_emitters
from xbus.broker.journal.log.reading import read_head
from xbus.broker.journal.log.slices.values import Place
from xbus.broker.journal.operations.event_types import count_types
from xbus.broker.journal.readers.settings import read_readers
from xbus.broker.journal.readers.status import count_lag
from xbus.errors import ConfigurationError

MOST_TOPICS = 1_000
"""Event types that an emitter makes. More cost each reading of the configuration, for everybody."""

MOST_OF_ALL = 10_000
"""Event types that all programs make together."""

_type = model.event_type.c


@dataclass(frozen=True, slots=True)
class Topic:
    """An event type as those see it who publish and subscribe.

    Args:
        publisher: the login of the one emitter that may send it; None where none or several may.
        events: of those that the journal has.
    """

    name: str
    publisher: str | None
    events: int


def claim_topic(connection: sa.Connection, emitter_id: int, name: str, at: datetime) -> None:
    """Make an event type of which an emitter is the publisher, or make it the publisher of one without any.

    Args:
        emitter_id: the emitter; its profile allows the name by ``new_types``.
        name: of the type.
        at: the moment of the change.

    Raises:
        ConfigurationError: its profile does not allow it, another emitter publishes the type, or an operator made or
            removed it (``type_not_allowed``).
    """
    emitter = read_emitter(connection, emitter_id)
    if not (is_name(name) and emitter.may_make(name)):
        raise refused(f"the emitter's profile does not allow to make event type {name[:80]!a}")
    own = sa.select(sa.func.count()).where(_type.publisher_id == emitter_id, _type.removed_at.is_(None))
    if connection.execute(own).scalar_one() >= MOST_TOPICS:
        raise refused(f"the emitter publishes {MOST_TOPICS:,} event types that it made, which is the most")
    publishing = act_here(at, "changed", f'event_type "{name}"', after=f'publisher "{emitter.login}"')
    ensure_topics(connection, [name], at, publisher_id=emitter_id, acts=[publishing])
    found = connection.execute(sa.select(_type.publisher_id, _type.is_topic).where(_type.name == name)).one()
    if found.publisher_id == emitter_id:
        return
    if not found.is_topic:
        raise refused(f'event type "{name}" was made by an operator, and its profile does not allow it')
    if found.publisher_id is not None:
        raise refused(f'another emitter publishes event type "{name}"')
    with new_version(connection, "published", f'event type "{name}" by "{emitter.login}"', at, acts=[publishing]):
        of_name = sa.update(model.event_type).where(_type.name == name)
        connection.execute(of_name.values(publisher_id=emitter_id))


def ensure_topics(
    connection: sa.Connection,
    names: Sequence[str],
    at: datetime,
    *,
    publisher_id: int | None = None,
    acts: Sequence[Act] = (),
) -> None:
    """Make event types, in one change of the configuration. Types in use stay as they are.

    Args:
        names: at most as many as a statement takes, a thousand or so.
        publisher_id: the emitter that alone may send those that are made; None for no publisher yet.
        acts: what the audit is told beside that they are made.

    Raises:
        ConfigurationError: an operator removed one of them, or there are too many (``type_not_allowed``).
    """
    of_names = _type.name.in_(dict.fromkeys(names))
    found = sa.select(_type.name, _type.removed_at, _type.is_topic).where(of_names)
    known = {row.name: row for row in connection.execute(found)}
    wanted = [name for name in dict.fromkeys(names) if name not in known or known[name].removed_at is not None]
    if not wanted:
        return
    for name in wanted:
        if name in known and not known[name].is_topic:
            raise refused(f'event type "{name}" was removed by an operator')
    topics = sa.select(sa.func.count()).where(_type.is_topic, _type.removed_at.is_(None))
    if connection.execute(topics).scalar_one() + len(wanted) > MOST_OF_ALL:
        raise refused(f"programs may make {MOST_OF_ALL:,} event types, and these would be more")
    changes = tuple(
        Change(Move.RESTORE if name in known else Move.ADD, Section.EVENT_TYPE, name, EventTypeSpec(name, False, {}))
        for name in wanted
    )
    made = sa.update(model.event_type).where(_type.name.in_(wanted))

    def mark() -> None:
        connection.execute(made.values(is_topic=True, publisher_id=publisher_id))

    apply(connection, Plan(read_version(connection), changes, ()), at, finish=mark, acts=acts)


def remove_topic(connection: sa.Connection, emitter_id: int, name: str, at: datetime) -> None:
    """Remove an event type that a program made. Its publisher may, and who makes API tokens for emitters like that.

    Raises:
        ConfigurationError: there is none (``unknown_type``), the emitter is not its publisher (``type_not_allowed``),
            or other entries of the bus name it (``type_in_use``).
    """
    check_removal(connection, emitter_id, name)
    stored = read_stored(connection)
    plan = make_plan(stored, stored.in_use.without(Section.EVENT_TYPE, name), prune=True)
    if plan.problems or stored.in_use.event_types[name].nodes:
        cause = f'other entries of the bus name event type "{name}"'
        raise ConfigurationError(cause, "have an operator remove it with xbus apply", code="type_in_use")

    def mark() -> None:
        # What its publisher removed may be made anew by a push.
        connection.execute(sa.update(model.event_type).where(_type.name == name).values(is_topic=True))

    apply(connection, replace(plan, changes=plan.removals), at, finish=mark)


def check_removal(connection: sa.Connection, emitter_id: int, name: str) -> None:
    """Let an emitter remove a topic of its own.

    Raises:
        ConfigurationError: there is none (``unknown_type``), or it is not its own (``type_not_allowed``).
    """
    emitter = read_emitter(connection, emitter_id)
    owner = sa.select(_type.publisher_id, _type.is_topic, model.emitter_profile.c.name.label("profile")).select_from(
        model.event_type.outerjoin(model.emitter, model.emitter.c.id == _type.publisher_id).outerjoin(
            model.emitter_profile, model.emitter_profile.c.id == model.emitter.c.profile_id
        )
    )
    found = connection.execute(owner.where(_type.name == name, _type.removed_at.is_(None))).one_or_none()
    if found is None:
        raise ConfigurationError(f'there is no event type "{name[:80]}"', "see GET /topics", code="unknown_type")
    is_registrar = emitter.clients is not None and found.profile in (emitter.clients, None)
    if not found.is_topic or not (found.publisher_id == emitter_id or is_registrar):
        raise refused(f'the emitter does not publish event type "{name}"')


def list_topics(connection: sa.Connection, emitter_id: int, at: datetime) -> list[Topic]:
    """List the event types that programs made, and those that an emitter may send, by name."""
    emitters = read_emitters(connection, {})
    logins = {each.id: each.login for each in emitters}
    own = next((each.event_types for each in emitters if each.id == emitter_id), frozenset[str]())
    rows = sa.select(_type.name, _type.publisher_id, _type.is_topic).where(_type.removed_at.is_(None))
    shown = [row for row in connection.execute(rows) if row.is_topic or row.name in own]
    counts = {each.name: each.events for each in count_types(connection, at).types}
    return [
        Topic(
            row.name,
            logins.get(row.publisher_id) if row.is_topic else _only(emitters, row.name),
            counts.get(row.name, 0),
        )
        for row in sorted(shown, key=lambda row: row.name)
    ]


def count_waiting(connection: sa.Connection, most: int) -> int:
    """Count the envelopes that the recipient lacks which is farthest behind, up to a number."""
    roles = (
        sa.select(sa.func.min(model.cursor.c.position))
        .join(model.role, model.role.c.id == model.cursor.c.role_id)
        .where(model.role.c.removed_at.is_(None), model.role.c.detached_at.is_(None))
    )
    head = read_head(connection)
    settled = connection.execute(roles).scalar_one()
    found = 0 if settled is None else max(0, head - settled)
    return min(most, found) if found >= most else _count_unread(connection, head, found, most)


def _count_unread(connection: sa.Connection, head: int, found: int, most: int) -> int:
    """Count what the reader lacks that lacks most, unless that is less than was found already.

    The place of a reader stays where it is while nothing comes that it reads, so its events have to be counted.
    """
    entries = {entry.id: entry for entry in read_readers(connection)}
    range_, stretch = model.reader_range.c, model.reader_stretch.c
    places = (
        sa.select(range_.service_id, sa.func.min(stretch.position).label("position"))
        .join(model.reader_range, range_.id == stretch.range_id)
        .where(range_.completed_at.is_(None), range_.service_id.in_([*entries]))
        .group_by(range_.service_id)
    )
    for service_id, position in sorted(connection.execute(places).all(), key=lambda row: row.position):
        if found >= most or head + 1 - position <= found:
            break
        lag = count_lag(connection, entries[service_id], Place(position), most)
        found = max(found, min(lag, head + 1 - position))
    return min(most, found)


def _only(emitters: Collection[EmitterEntry], name: str) -> str | None:
    """Give the login of the only emitter that may send an event type."""
    logins = [each.login for each in emitters if name in each.event_types]
    return logins[0] if len(logins) == 1 else None


def read_emitter(connection: sa.Connection, emitter_id: int) -> EmitterEntry:
    """Read an emitter as the journal has it now, so that no right outlives its removal.

    Raises:
        ConfigurationError: it was removed (``session_unknown``).
    """
    found = next((each for each in read_emitters(connection, {}) if each.id == emitter_id), None)
    if found is None:
        raise ConfigurationError("the emitter was removed", "ask an operator", code="session_unknown")
    return found


def refused(cause: str) -> ConfigurationError:
    """Refuse an emitter a type."""
    return ConfigurationError(cause, "take another name, or ask an operator", code="type_not_allowed")
