"""History that an operator sends again to one consumer role: found, counted, and sent as new envelopes.

Each function takes the caller's connection and does one short read or write. The command decides how far it goes in one
transaction, and asks the person. Nothing here changes a sealed envelope: what is sent are new ones over the same
segments. Commands alone import it.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from shlex import quote
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.audit import RepairDecision, note_acts
from xbus.broker.journal.commit.statements.closing import next_positions
from xbus.broker.journal.commit.statements.common import remember
from xbus.broker.journal.configuration import Move, Plan, RoleSpec
from xbus.broker.journal.configuration.detaching import SUBJECT
from xbus.broker.journal.database.compression import OfEvent
from xbus.broker.journal.database.engine import driver_of
from xbus.broker.journal.log.envelopes import is_archived
from xbus.broker.journal.log.event_states import REROUTED
from xbus.broker.journal.log.reading import read_head
from xbus.broker.journal.log.repeats import read_consumer_services
from xbus.broker.journal.log.segments import Content, content_hash
from xbus.envelope import EnvelopeHead
from xbus.errors import Refused
from xbus.headers import NO_TAGS, EventTags
from xbus.ids import numbered_event_id, replayed_envelope_id
from xbus.states import EnvelopeState

# -- target ------------------------------------------------------------------------------------------------------------
# The role to which history is sent again, and the way by which it gets there now.


@dataclass(frozen=True, slots=True)
class ReplayTarget:
    """A consumer role that is owed what is received now, and an event type that leads to it.

    Args:
        graph_id: the present version of the type's graph.
        first_name: the name with which the type was made; hashes hold it.
    """

    type_name: str
    type_id: int
    role: str
    role_id: int
    service: str
    service_id: int
    graph_id: int
    first_name: str


def find_target(connection: sa.Connection, type_name: str, login: str) -> ReplayTarget:
    """Find a role and the way by which events of a type reach it now.

    Raises:
        Refused: the type (``unknown_type``) or the consumer role (``unknown_login``) does not exist, the role is
            detached (``role_detached``), the type has immediate replies (``reply_wanted``), or its present graph does
            not lead to the role (``role_not_reached``).
    """
    event_type = model.event_type.c
    of_type = connection.execute(
        sa.select(event_type.id, event_type.immediate_reply, event_type.first_name).where(
            event_type.name == type_name, event_type.removed_at.is_(None)
        )
    ).one_or_none()
    if of_type is None:
        raise Refused(f'there is no event type "{type_name}"', "xbus export shows the event types", code="unknown_type")
    role = _role(connection, login)
    if of_type.immediate_reply:
        raise Refused(
            f'events of type "{type_name}" have an immediate reply',
            "have their emitter send them anew, so that it gets the reply",
            code="reply_wanted",
        )
    graph_id = present_graph(connection, of_type.id)
    if role.service_id not in read_consumer_services(connection, [graph_id])[graph_id]:
        raise Refused(
            f'event type "{type_name}" has no node for service "{role.service}", of which role "{login}" is',
            "add the node with xbus apply",
            code="role_not_reached",
        )
    of_role = (login, role.id, role.service, role.service_id)
    return ReplayTarget(type_name, of_type.id, *of_role, graph_id, of_type.first_name)


def _role(connection: sa.Connection, login: str) -> "sa.Row[int, int, str, datetime | None]":
    role, service = model.role.c, model.service.c
    found = connection.execute(
        sa.select(role.id, role.service_id, service.name.label("service"), role.detached_at)
        .join(model.service, service.id == role.service_id)
        .where(role.login == login, role.removed_at.is_(None), service.kind == "consumer")
    ).one_or_none()
    if found is None:
        raise Refused(
            f'there is no consumer role "{login}"', "xbus recipient list shows the roles", code="unknown_login"
        )
    if found.detached_at is not None:
        raise Refused(
            f'the role "{login}" is detached: it is owed nothing',
            f"put it on the bus again first: xbus recipient attach {quote(login)}",
            code="role_detached",
        )
    return found


def present_graph(connection: sa.Connection, type_id: int) -> int:
    """Read the id of the version of a type's graph that new events take."""
    graph = model.graph.c
    newest = sa.select(graph.id).where(graph.event_type_id == type_id).order_by(graph.number.desc()).limit(1)
    graph_id: int = connection.execute(newest).scalar_one()
    return graph_id


def unreached_graphs(connection: sa.Connection, type_id: int, service_id: int) -> frozenset[int]:
    """Collect the versions of a type's graph by which its events never reach a service.

    Events of a version that leads nowhere take the next one that leads somewhere, so they count as events of that.
    """
    graph = model.graph.c
    versions = connection.execute(
        sa.select(graph.id).where(graph.event_type_id == type_id).order_by(graph.number.desc())
    )
    newest_first = versions.scalars().all()
    services = read_consumer_services(connection, newest_first)
    unreached: set[int] = set()
    taken: frozenset[int] = frozenset()
    for graph_id in newest_first:
        taken = services[graph_id] or taken
        if service_id not in taken:
            unreached.add(graph_id)
    return frozenset(unreached)


def is_rerouting(connection: sa.Connection, type_id: int) -> bool:
    """Check whether events of a type are to take a newer graph, and the back has not carried that out."""
    decision, graph = model.decision.c, model.graph.c
    pending = (
        sa.select(decision.id)
        .join(model.graph, graph.id == decision.graph_id)
        .where(decision.move == REROUTED, graph.event_type_id == type_id)
    )
    return connection.execute(pending.limit(1)).first() is not None


# -- pages -------------------------------------------------------------------------------------------------------------
# A part of the log, page by page: the envelopes with events of one type, as a replay sends them again.

PAGE_ENVELOPES = 200
"""Envelopes of a page. More cost fewer commits, and keep the broker's own commits waiting for longer."""

PAGE_EVENTS = 2_000
"""A page ends before its envelopes hold more events than this. The first envelope always comes, as it is never cut."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the log, and which events of it are wanted.

    Args:
        after: a position; the part lies above it.
        until: its last position.
        type_id: the event type.
        graphs: the versions of the type's graph whose events are wanted; None for all.
    """

    after: int
    until: int
    type_id: int
    graphs: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class FoundEvent:
    """An event that is wanted; its own segments hold its items."""

    event_id: UUID
    estimate: int
    items: int
    tags: EventTags = NO_TAGS


@dataclass(frozen=True, slots=True)
class FoundEnvelope:
    """An envelope that an emitter sent, with those of its events that are wanted.

    Args:
        here: whether its items are in the journal.
        archived: whether an archive has its items instead. If neither has, the bus is removing them.
        total: the number of its events, wanted or not.
        data_bytes: of all of them.
        hash: of all of them.
    """

    envelope_id: UUID
    position: int
    closed_at: datetime
    emitter_id: int
    head: EnvelopeHead
    here: bool
    archived: bool
    total: int
    data_bytes: int
    hash: bytes
    events: tuple[FoundEvent, ...]

    @property
    def is_whole(self) -> bool:
        """True if all of its events are wanted."""
        return len(self.events) == self.total

    @property
    def items(self) -> int:
        """The number of items of the wanted events."""
        return sum(event.items for event in self.events)


@dataclass(frozen=True, slots=True)
class Page:
    """The next envelopes of a part, in position order.

    Args:
        upto: all of the part up to this position is dealt with.
    """

    upto: int
    envelopes: Sequence[FoundEnvelope]


def read_page(connection: sa.Connection, part: Part, after: int) -> Page:
    """Read the next envelopes of a part.

    Envelopes that repeat others are left out: they bring no data that the first ones do not bring.

    Args:
        after: a position of the part; the page begins above it.
    """
    rows = connection.execute(_envelopes(part, after)).all()
    page = _within(rows)
    events = _read_events(connection, part, [row.id for row in page])
    found = [
        FoundEnvelope(
            *(row.id, row.position, row.closed_at, row.emitter_id),
            head=EnvelopeHead(*(row._mapping[column.name] for column in model.ENVELOPE_HEAD)),
            here=row.pruned_at is None,
            archived=row.archived,
            total=row.events,
            data_bytes=row.bytes,
            hash=bytes(row.hash),
            events=tuple(events.get(row.id, ())),
        )
        for row in page
    ]
    is_last = len(page) == len(rows) < PAGE_ENVELOPES
    return Page(part.until if is_last else page[-1].position, found)


def count_removed(connection: sa.Connection, after: int, until: int) -> int:
    """Count the envelopes of a part of the log that retention has removed; their types are no longer known."""
    envelope = model.envelope.c
    is_gone = sa.and_(envelope.pruned_at.is_not(None), ~_is_only_archived())
    there = sa.select(sa.func.count()).where(envelope.position > after, envelope.position <= until, ~is_gone)
    return until - after - int(connection.execute(there).scalar_one())


def _envelopes(part: Part, after: int) -> "sa.Select[tuple[object, ...]]":
    envelope = model.envelope.c
    return (
        sa.select(model.envelope, _is_only_archived().label("archived"))
        .where(envelope.position > after, envelope.position <= part.until, envelope.origin_id.is_(None))
        .where(sa.exists().where(model.event.c.envelope_id == envelope.id, *_is_wanted(part)))
        .order_by(envelope.position)
        .limit(PAGE_ENVELOPES)
    )


def _is_wanted(part: Part) -> list[sa.ColumnElement[bool]]:
    event = model.event.c
    wanted = [event.event_type_id == part.type_id]
    return wanted if part.graphs is None else [*wanted, event.graph_id.in_(sorted(part.graphs))]


def _is_only_archived() -> sa.ColumnElement[bool]:
    return sa.and_(model.envelope.c.pruned_at.is_not(None), is_archived())


def _within(rows: "Sequence[sa.Row[tuple[object, ...]]]") -> "Sequence[sa.Row[tuple[object, ...]]]":
    """Cut rows to those that together have no more events than a page may."""
    events = 0
    for number, row in enumerate(rows):
        events += row.events
        if number and events > PAGE_EVENTS:
            return rows[:number]
    return rows


def _read_events(connection: sa.Connection, part: Part, envelope_ids: Collection[UUID]) -> dict[UUID, list[FoundEvent]]:
    event = model.event.c
    statement = (
        sa.select(event.envelope_id, event.id, event.estimate, event["items"], event.headers, event.partition_key)
        .where(event.envelope_id.in_(envelope_ids), *_is_wanted(part))
        .order_by(event.envelope_id, event.number)
    )
    found: dict[UUID, list[FoundEvent]] = {}
    for envelope_id, event_id, estimate, items, *tags in connection.execute(statement):
        found.setdefault(envelope_id, []).append(FoundEvent(event_id, estimate, items, EventTags(*tags)))
    return found


# -- sending -----------------------------------------------------------------------------------------------------------
# Sends the found envelopes to a role once more: as new envelopes for it alone, over the same items.

REPLAYED = "replayed"
"""The name of an operator's replay in the history."""


@dataclass(frozen=True, slots=True)
class Sent:
    """The result of sending some envelopes.

    Args:
        envelopes: how many were sent; the others were sent before, or their items are not here.
        gone: how many were not sent as their items have gone since they were found.
    """

    envelopes: int
    events: int
    items: int
    gone: int

    def __add__(self, other: "Sent") -> "Sent":
        return Sent(
            self.envelopes + other.envelopes,
            self.events + other.events,
            self.items + other.items,
            self.gone + other.gone,
        )


def read_sent(
    connection: sa.Connection, target: ReplayTarget, replay: str, envelopes: Sequence[FoundEnvelope]
) -> frozenset[UUID]:
    """Read, by id, which of some envelopes a replay of this name has already sent to the role."""
    ids = _new_ids(target, replay, envelopes)
    there = sa.select(model.envelope.c.id).where(model.envelope.c.id.in_(list(ids)))
    return frozenset(ids[new_id] for new_id in connection.execute(there).scalars())


def send(
    connection: sa.Connection, target: ReplayTarget, replay: str, envelopes: Sequence[FoundEnvelope], at: datetime
) -> Sent:
    """Send those of some envelopes that a replay of this name has not sent yet, in their order.

    Args:
        connection: with a transaction open, in which ``target`` was found.
        replay: its name. Each name gives each envelope to a role once, whoever sends and however often.
        envelopes: with the events that are wanted.
        at: the moment at which the new ones are received.
    """
    here = _lock_here(connection, [envelope.envelope_id for envelope in envelopes])
    # From here on no other replay looks for envelopes, and so none makes the same.
    connection.execute(_LOCK_HEAD)
    sent = read_sent(connection, target, replay, envelopes)
    left = [each for each in envelopes if each.envelope_id in here and each.envelope_id not in sent]
    if left:
        _insert(connection, target, replay, left, at)
    return Sent(
        len(left),
        sum(len(envelope.events) for envelope in left),
        sum(envelope.items for envelope in left),
        sum(each.here and each.envelope_id not in here | sent for each in envelopes),
    )


def note_replay(connection: sa.Connection, target: ReplayTarget, what: str, decision: RepairDecision) -> None:
    """Keep in the history that a person sends something to a role again.

    Args:
        what: which part of the log, in a few words.
    """
    reason = f'{what} of type "{target.type_name}", by {decision.told}'
    remember(connection, decision.at, SUBJECT, target.role, REPLAYED, reason)
    thing = f'{what} of event_type "{target.type_name}" to role "{target.role}"'
    note_acts(connection, [decision.act(REPLAYED, thing)])


_LOCK_HEAD = sa.select(model.head.c.position).with_for_update()


def _new_ids(target: ReplayTarget, replay: str, envelopes: Sequence[FoundEnvelope]) -> dict[UUID, UUID]:
    """Map the ids that envelopes have in a replay to their own ids."""
    return {
        replayed_envelope_id(envelope.envelope_id, target.role_id, target.type_id, replay): envelope.envelope_id
        for envelope in envelopes
    }


def _lock_here(connection: sa.Connection, envelope_ids: Collection[UUID]) -> frozenset[UUID]:
    """Lock those of some envelopes whose items are here, so that they stay until the end of the transaction."""
    envelope = model.envelope.c
    here = (
        sa.select(envelope.id)
        .where(envelope.id.in_(envelope_ids), envelope.pruned_at.is_(None))
        .order_by(envelope.position)
        # Retention or an archive may be about to remove them.
        .with_for_update(read=True)
    )
    return frozenset(connection.execute(here).scalars())


def _insert(
    connection: sa.Connection, target: ReplayTarget, replay: str, envelopes: Sequence[FoundEnvelope], at: datetime
) -> None:
    new_ids = list(_new_ids(target, replay, envelopes))
    stored = _read_stored(connection, target, [envelope for envelope in envelopes if not envelope.is_whole])
    rows: list[dict[str, object]] = []
    events: list[dict[str, object]] = []
    roles: list[dict[str, object]] = []
    positions = next_positions(driver_of(connection), len(envelopes))
    for new_id, position, envelope in zip(new_ids, positions, envelopes, strict=True):
        rows.append(_envelope_row(target, new_id, position, envelope, at) | _content(target, envelope, stored))
        events += _event_rows(target, new_id, envelope)
        roles.append({"envelope_id": new_id, "role_id": target.role_id, "replay": replay})
    connection.execute(sa.insert(model.envelope), rows)
    connection.execute(sa.insert(model.event), events)
    connection.execute(sa.insert(model.envelope_role), roles)


def _envelope_row(
    target: ReplayTarget, new_id: UUID, position: int, envelope: FoundEnvelope, at: datetime
) -> dict[str, object]:
    return {
        "id": new_id,
        "emitter_id": envelope.emitter_id,
        # Nobody sees it before the transaction ends, so it need never be open.
        "state": EnvelopeState.RECEIVED,
        "opened_at": at,
        "closed_at": at,
        "position": position,
        "events": len(envelope.events),
        "items": envelope.items,
        "origin_id": envelope.envelope_id,
        # A key stands for the first envelope alone.
        **dict(zip([column.name for column in model.ENVELOPE_HEAD], envelope.head._replace(key=None), strict=True)),
    }


def _event_rows(target: ReplayTarget, new_id: UUID, envelope: FoundEnvelope) -> Iterator[dict[str, object]]:
    for number, event in enumerate(envelope.events, 1):
        yield {
            "id": numbered_event_id(new_id, number),
            "envelope_id": new_id,
            "number": number,
            "event_type_id": target.type_id,
            "graph_id": target.graph_id,
            "estimate": event.estimate,
            "items": event.items,
            "origin_id": event.event_id,
            **event.tags._asdict(),
        }


def _content(
    target: ReplayTarget, envelope: FoundEnvelope, stored: dict[UUID, tuple[list[bytes], int]]
) -> dict[str, object]:
    """Give bytes and hash of the new envelope: those of the whole one, or computed anew for a part."""
    if envelope.is_whole:
        return {"bytes": envelope.data_bytes, "hash": envelope.hash}
    of_events = [(event, *stored.get(event.event_id, ([], 0))) for event in envelope.events]
    contents = [Content(target.first_name, event.items, hashes, event.tags) for event, hashes, _ in of_events]
    whole = content_hash(contents, envelope.head.headers)
    return {"bytes": sum(data_bytes for _, _, data_bytes in of_events), "hash": whole}


def _read_stored(
    connection: sa.Connection, target: ReplayTarget, envelopes: Sequence[FoundEnvelope]
) -> dict[UUID, tuple[list[bytes], int]]:
    """Read the hashes and the total bytes of the segments of each event of the type in some envelopes."""
    segments, event = OfEvent(), model.event.c
    stored: dict[UUID, tuple[list[bytes], int]] = {}
    for envelope in envelopes:
        statement = (
            sa.select(event.id, segments.hash, segments.size)
            .select_from(segments.joined)
            .where(event.envelope_id == envelope.envelope_id, event.event_type_id == target.type_id)
            .where(segments.is_there)
            .order_by(event.id, model.segment.c.first_index)
        )
        for event_id, segment_hash, data_bytes in connection.execute(statement):
            hashes, total = stored.get(event_id, ([], 0))
            hashes.append(bytes(segment_hash))
            stored[event_id] = (hashes, total + data_bytes)
    return stored


# -- unreached ---------------------------------------------------------------------------------------------------------
# History that a new role asked for, and that no graph brings to it: its service had no node when that was sent.


@dataclass(frozen=True, slots=True)
class Unreached:
    """Events of a type that a new role wants by its ``start``, and that only a replay brings.

    Args:
        after: a position; they lie above it.
        until: the end of the log when the role was added.
        wants_reply: whether the type's events are answered by an immediate reply, so that they can't be replayed.
        rerouting: whether the back is still to have some of them take the present graph.
    """

    type_name: str
    role: str
    service: str
    after: int
    until: int
    wants_reply: bool
    rerouting: bool


@dataclass(frozen=True, slots=True)
class NoWay:
    """A new role that asked for history by its ``start``, while no event type leads to its service.

    Args:
        after: a position; what it asked for lies above it.
    """

    role: str
    service: str
    after: int


def find_unreached(connection: sa.Connection, plan: Plan) -> list[Unreached | NoWay]:
    """Find the history that the new roles of a plan want and don't get by themselves.

    Args:
        connection: in the transaction in which the plan was applied.
    """
    found: list[Unreached | NoWay] = []
    for change in plan.changes:
        entry = change.entry
        if change.move is Move.ADD and isinstance(entry, RoleSpec) and entry.start not in (None, "head"):
            found += _of_role(connection, entry)
    return found


def _of_role(connection: sa.Connection, role: RoleSpec) -> Iterator[Unreached | NoWay]:
    row = connection.execute(
        sa.select(model.role.c.service_id, model.cursor.c.from_position)
        .join(model.cursor, model.cursor.c.role_id == model.role.c.id)
        .where(model.role.c.login == role.login)
    ).one()
    after, until = row.from_position - 1, read_head(connection)
    event_type = model.event_type.c
    types = connection.execute(sa.select(model.event_type).where(event_type.removed_at.is_(None)).order_by("name"))
    leads_there = False
    for each in types.all():
        graph_id = present_graph(connection, each.id)
        if row.service_id not in read_consumer_services(connection, [graph_id])[graph_id]:
            continue
        leads_there = True
        graphs = unreached_graphs(connection, each.id, row.service_id)
        if graphs:
            rerouting = is_rerouting(connection, each.id)
            yield Unreached(each.name, role.login, role.service, after, until, each.immediate_reply, rerouting)
    if not leads_there:
        yield NoWay(role.login, role.service, after)
