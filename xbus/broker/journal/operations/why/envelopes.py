"""The facts of an envelope, with those of its deliveries, or of the part of it that is asked about."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.log.catalog import read_graph, read_pauses
from xbus.broker.journal.log.deliveries import read_cursors
from xbus.broker.journal.log.envelopes import read_cancel_reason
from xbus.broker.journal.log.event_states import OWED
from xbus.broker.journal.log.overlays import AS_SENT, CONCERNS_EVENT, CORRECTED
from xbus.broker.journal.log.repeats import read_retries
from xbus.broker.journal.log.role_progress import RoleProgress, read_owed_ahead
from xbus.broker.journal.operations.envelopes.details import DIGITS, EnvelopeDetail, resolve_envelope, show_envelope
from xbus.broker.journal.operations.envelopes.listing import find_keyed_envelopes
from xbus.broker.journal.operations.failures import FailureSummary
from xbus.broker.journal.operations.why.roles import RoleSituation, read_situation, read_situations_of
from xbus.broker.journal.writes import Pauses
from xbus.broker.journal.writes.cursor import Cursor
from xbus.errors import Refused
from xbus.states import DeliveryState, ItemState

# -- subjects ----------------------------------------------------------------------------------------------------------
# Finds the subject of a question: an envelope by its id or its key, or an event of one.


@dataclass(frozen=True, slots=True)
class EventFacts:
    """An event of an envelope.

    Args:
        services: names of the consumer services to which its graph leads.
        items: None until it is ended.
    """

    id: UUID
    envelope_id: UUID
    number: int
    type: str
    services: frozenset[str]
    items: int | None


@dataclass(frozen=True, slots=True)
class ItemFacts:
    """An item that a role gets otherwise than it was sent, or not with its event.

    Args:
        role: the login of the role; None for all.
        state: as of :class:`~xbus.broker.journal.log.overlays.OverlaidItem`.
        at: since when it is so.
        cause: the words of the recipient, or of the person who corrected it.
        resumed_as: the envelope by which it was sent again; None in other states.
    """

    role: str | None
    state: str
    at: datetime
    cause: str
    resumed_as: UUID | None = None


@dataclass(frozen=True, slots=True)
class EnvelopeEnd:
    """The end of an envelope, as far as its details leave it out.

    Args:
        pruned_at: since when its content counts no more, as it was removed or archived; None while it is here.
        reason: why it was cancelled; None if it was not, or nobody knows.
    """

    pruned_at: datetime | None
    reason: str | None


def find_subject(connection: sa.Connection, digits: str) -> tuple[UUID, EventFacts | None] | None:
    """Find the envelope or the event with an id, or the one envelope whose id begins with some digits.

    Returns:
        The envelope, and its event if the id is that of an event; None if neither has the id.

    Raises:
        Refused: several envelopes begin so (``ambiguous_id``).
    """
    try:
        envelope_id = resolve_envelope(connection, digits)
    except Refused as error:
        if error.code == "ambiguous_id":
            raise
        return None
    if len(digits) < DIGITS or _is_envelope(connection, envelope_id):
        return envelope_id, None
    event = _read_event(connection, model.event.c.id == envelope_id)
    return None if event is None else (event.envelope_id, event)


def _is_envelope(connection: sa.Connection, envelope_id: UUID) -> bool:
    envelope = model.envelope.c
    return connection.execute(sa.select(envelope.id).where(envelope.id == envelope_id)).one_or_none() is not None


def find_keyed(connection: sa.Connection, emitter_id: int, key: str) -> UUID | None:
    """Find the newest envelope to which an emitter gave a key; None if it gave it to none.

    The id of such an envelope is computed of the key, and of how many envelopes with it were cancelled before.
    """
    return next(reversed(find_keyed_envelopes(connection, key, emitter_id)), None)


def read_numbered_event(connection: sa.Connection, envelope_id: UUID, number: int) -> EventFacts | None:
    """Read an event by its number in its envelope, from 1; None if the envelope has not so many."""
    event = model.event.c
    return _read_event(connection, sa.and_(event.envelope_id == envelope_id, event.number == number))


def _read_event(connection: sa.Connection, which: sa.ColumnElement[bool]) -> EventFacts | None:
    event = model.event.c
    statement = (
        sa.select(event.id, event.envelope_id, event.number, model.event_type.c.name, event["items"], event.graph_id)
        .join(model.event_type, model.event_type.c.id == event.event_type_id)
        .where(which)
    )
    found = connection.execute(statement).one_or_none()
    if found is None:
        return None
    event_id, envelope_id, number, type_name, items, graph_id = found
    services = sa.select(model.service.c.name).join(model.node, model.node.c.service_id == model.service.c.id)
    leading = services.where(model.node.c.graph_id == graph_id, model.service.c.kind == "consumer").distinct()
    names = frozenset(connection.execute(leading).scalars())
    return EventFacts(event_id, envelope_id, number, type_name, names, items)


def are_asked(envelope_id: UUID, asked: EventFacts | None) -> sa.ColumnElement[bool]:
    """Build the condition that an event is asked about: the one, or each of the envelope."""
    event = model.event.c
    return event.envelope_id == envelope_id if asked is None else event.id == asked.id


def read_types(connection: sa.Connection, which: sa.ColumnElement[bool]) -> Sequence[str]:
    """Read the types of some events, by name."""
    event_type = model.event_type.c
    statement = (
        sa.select(event_type.name)
        .join(model.event, model.event.c.event_type_id == event_type.id)
        .where(which)
        .distinct()
        .order_by(event_type.name)
    )
    return connection.execute(statement).scalars().all()


def read_led_to(connection: sa.Connection, which: sa.ColumnElement[bool]) -> Sequence[str]:
    """Read the logins of the consumer roles to which the graphs of some events lead, whatever they are owed."""
    node, service, role = model.node.c, model.service.c, model.role.c
    statement = (
        sa.select(role.login)
        .select_from(model.event)
        .join(model.node, node.graph_id == model.event.c.graph_id)
        .join(model.service, service.id == node.service_id)
        .join(model.role, role.service_id == service.id)
        .where(which, service.kind == "consumer")
        .distinct()
        .order_by(role.login)
    )
    return connection.execute(statement).scalars().all()


def read_items(connection: sa.Connection, event_id: UUID, index: int) -> Sequence[ItemFacts]:
    """Read how roles get an item otherwise than it was sent, the oldest first; nothing where they don't."""
    correction, parked, role = model.correction.c, model.parked_item.c, model.role.c
    corrections = (
        sa.select(role.login, correction.after == correction.before, correction.at, correction.reason)
        .select_from(model.event)
        .join(model.correction, CONCERNS_EVENT)
        .outerjoin(model.role, role.id == correction.role_id)
        .where(model.event.c.id == event_id, correction.item_index == index)
        .order_by(correction.id)
    )
    alone = (
        sa.select(role.login, parked.state, parked.changed_at, parked.cause, parked.resumed_as)
        .join(model.role, role.id == parked.role_id)
        .where(parked.event_id == event_id, parked.item_index == index)
        .order_by(role.login)
    )
    found = [
        ItemFacts(login, AS_SENT if is_same else CORRECTED, at, reason)
        for login, is_same, at, reason in connection.execute(corrections)
    ]
    return [*found, *(ItemFacts(*row) for row in connection.execute(alone))]


def read_end(connection: sa.Connection, envelope_id: UUID) -> EnvelopeEnd:
    """Read what has become of an envelope beside its deliveries."""
    envelope = model.envelope.c
    pruned_at = connection.execute(sa.select(envelope.pruned_at).where(envelope.id == envelope_id)).scalar_one()
    return EnvelopeEnd(pruned_at, read_cancel_reason(connection, envelope_id))


def read_oldest(connection: sa.Connection) -> datetime | None:
    """Read when the oldest envelope was opened that the journal still knows; None if it knows none."""
    envelope = model.envelope.c
    statement = sa.select(envelope.opened_at).order_by(envelope.opened_at, envelope.id).limit(1)
    opened_at: datetime | None = connection.execute(statement).scalar_one_or_none()
    return opened_at


# -- deliveries --------------------------------------------------------------------------------------------------------
# The facts of an envelope's deliveries: its state at each role, and all that may keep it from coming there.

MOST_AHEAD = 200
"""So many envelopes ahead of one are counted. More would tell nobody more, and would cost more."""


@dataclass(frozen=True, slots=True)
class Blocking:
    """The envelope that an ordered role is to get first: it has the lowest row of the ordering key."""

    envelope_id: UUID
    position: int
    state: DeliveryState
    cause: str


@dataclass(frozen=True, slots=True)
class KeyedEnvelope:
    """An envelope with its ordering key, empty for none."""

    envelope_id: UUID
    ordering_key: str


@dataclass(frozen=True, slots=True)
class DeliveryFacts:
    """The facts of an envelope at one consumer role.

    Args:
        envelope_id: the envelope.
        position: its position.
        ordering_key: its key, empty for none.
        progress: its state at the role.
        role: the situation of the role; None for a service that never had one.
        due_at: when the next attempt may begin; None for at once, or in another state.
        waits_for: the worker service without which it waits; None where it waits for none.
        workers: the roles of that service.
        ways: the worker services on its way to the role: their present names, by the keys that the back knows.
        blocking: the envelope that goes first; None where none is known to.
        ahead: the positions of envelopes that are not settled and come before it, :data:`MOST_AHEAD` at the most.
        parked_items: how many of its items are parked alone for the role.
        failure: the newest failed call of this role, or of a worker on the way; None without any.
        resent_as: the envelope by which it was sent again; None where it was not.
        consumers: the logins of all consumer roles of the envelope.
        is_archived: whether only an archive has its items.
    """

    envelope_id: UUID
    position: int
    ordering_key: str
    progress: RoleProgress
    role: RoleSituation | None
    due_at: datetime | None = None
    waits_for: str | None = None
    workers: Sequence[RoleSituation] = ()
    ways: Mapping[str, str] = field(default_factory=dict)
    blocking: Blocking | None = None
    ahead: Sequence[int] = ()
    parked_items: int = 0
    failure: FailureSummary | None = None
    resent_as: UUID | None = None
    consumers: frozenset[str] = frozenset()
    is_archived: bool = False


def read_deliveries(
    connection: sa.Connection, detail: EnvelopeDetail, services: Collection[str] | None = None, role: str | None = None
) -> list[DeliveryFacts]:
    """Read the facts of a received envelope at each role that is or was owed it.

    Args:
        services: names of the consumer services that matter; None for all.
        role: the login of the role that matters; None for all.
    """
    reader = _DeliveryReader(connection, detail)
    wanted = [
        progress
        for progress in detail.summary.roles
        if (services is None or progress.service in services) and role in (None, progress.role)
    ]
    return [reader.read(progress) for progress in wanted]


def read_keyed(connection: sa.Connection, positions: Collection[int]) -> dict[int, KeyedEnvelope]:
    """Read the ordering keys of the envelopes at some positions."""
    envelope = model.envelope.c
    statement = sa.select(envelope.position, envelope.id, sa.func.coalesce(envelope.ordering_key, ""))
    rows = connection.execute(statement.where(envelope.position.in_(positions)))
    return {position: KeyedEnvelope(envelope_id, key) for position, envelope_id, key in rows}


class _DeliveryReader:
    """Reads what the deliveries of an envelope have in common once."""

    def __init__(self, connection: sa.Connection, detail: EnvelopeDetail) -> None:
        assert detail.summary.position is not None, "only what is received is delivered"
        self._connection = connection
        self._detail = detail
        self._position = detail.summary.position
        self._pauses = read_pauses(connection)
        self._cursors = read_cursors(connection)
        self._rows = _read_rows(connection, detail.summary.id)
        self._parked_items = _count_parked_items(connection, detail.summary.id)
        self._retries = read_retries(connection, detail.summary.id)
        self._graphs = [read_graph(connection, graph_id) for graph_id in _graph_ids(connection, detail.summary.id)]

    def read(self, progress: RoleProgress) -> DeliveryFacts:
        summary = self._detail.summary
        role = None if progress.role is None else read_situation(self._connection, progress.role, self._pauses)
        facts = DeliveryFacts(summary.id, self._position, summary.ordering_key or "", progress, role)
        if role is None:
            return facts
        row = self._rows.get(role.id)
        cursor = self._cursors.get(role.id)
        return DeliveryFacts(
            *(facts.envelope_id, facts.position, facts.ordering_key, progress, role),
            due_at=None if row is None else row.due_at,
            waits_for=None if row is None else row.waits_for,
            workers=self._workers(row),
            ways=self._ways(role.service_id),
            blocking=None if row is None else self._blocking(role.id, row),
            ahead=() if row is not None or cursor is None else self._ahead(cursor, role.service_id),
            parked_items=self._parked_items.get(role.id, 0),
            failure=self._failure(progress),
            resent_as=self._retries.get(role.id),
            consumers=frozenset(each.role for each in summary.roles if each.role is not None),
        )

    def _workers(self, row: "_MoreOfRow | None") -> Sequence[RoleSituation]:
        if row is None or row.service_id is None:
            return ()
        return read_situations_of(self._connection, row.service_id, self._pauses)

    def _ways(self, service_id: int) -> Mapping[str, str]:
        service = model.service.c
        key = self._connection.execute(sa.select(service.key).where(service.id == service_id)).scalar_one()
        keys = {name for graph in self._graphs for name in graph.leading_to({key}).worker_services}
        named = sa.select(service.key, service.name).where(service.key.in_(keys))
        return dict(self._connection.execute(named).all())

    def _blocking(self, role_id: int, row: "_MoreOfRow") -> Blocking | None:
        if row.ordering_key is None:
            return None
        delivery = model.delivery.c
        statement = (
            sa.select(delivery.envelope_id, delivery.position, delivery.state, delivery.cause)
            .where(
                delivery.role_id == role_id,
                delivery.ordering_key == row.ordering_key,
                delivery.position < self._position,
            )
            .order_by(delivery.position)
            .limit(1)
        )
        found = self._connection.execute(statement).one_or_none()
        if found is None:
            return None
        envelope_id, position, state, cause = found
        return Blocking(envelope_id, position, DeliveryState(state), cause)

    def _ahead(self, cursor: Cursor, service_id: int) -> Sequence[int]:
        if cursor.is_settled(self._position):
            return ()
        owed = read_owed_ahead(self._connection, cursor, service_id, MOST_AHEAD)
        return [position for position, _ in owed if position < self._position]

    def _failure(self, progress: RoleProgress) -> FailureSummary | None:
        others = {each.role for each in self._detail.summary.roles} - {progress.role}
        return next((failure for failure in self._detail.failures if failure.role not in others), None)


@dataclass(frozen=True, slots=True)
class _MoreOfRow:
    """A delivery row, as far as :class:`~xbus.broker.journal.log.role_progress.RoleProgress` has it not."""

    due_at: datetime | None
    ordering_key: str | None
    service_id: int | None
    waits_for: str | None


def _read_rows(connection: sa.Connection, envelope_id: UUID) -> Mapping[int, _MoreOfRow]:
    delivery, service = model.delivery.c, model.service.c
    statement = (
        sa.select(delivery.role_id, delivery.due_at, delivery.ordering_key, delivery.service_id, service.name)
        .outerjoin(model.service, service.id == delivery.service_id)
        .where(delivery.envelope_id == envelope_id)
    )
    return {role_id: _MoreOfRow(*row) for role_id, *row in connection.execute(statement)}


def _count_parked_items(connection: sa.Connection, envelope_id: UUID) -> Mapping[int, int]:
    item = model.parked_item.c
    statement = (
        sa.select(item.role_id, sa.func.count())
        .where(item.envelope_id == envelope_id, item.state == ItemState.PARKED.value)
        .group_by(item.role_id)
    )
    return dict(connection.execute(statement).all())


def _graph_ids(connection: sa.Connection, envelope_id: UUID) -> Sequence[int]:
    event = model.event.c
    statement = sa.select(event.graph_id).where(event.envelope_id == envelope_id).distinct()
    return connection.execute(statement).scalars().all()


@dataclass(frozen=True, slots=True)
class NotOwed:
    """The reason why a role was never owed an envelope.

    Args:
        role: the situation of the role.
        cause: the reason, in a sentence.
    """

    role: RoleSituation
    cause: str


def read_not_owed(
    connection: sa.Connection, detail: EnvelopeDetail, logins: Collection[str], types: Collection[str]
) -> list[NotOwed]:
    """Read why some roles are not owed a received envelope; logins that were never a role's are left out.

    Args:
        types: the types of the events that are asked about.
    """
    pauses: Pauses = read_pauses(connection)
    cursors = read_cursors(connection)
    roles = [read_situation(connection, login, pauses) for login in logins]
    return [
        NotOwed(role, next(_reasons(detail, role, cursors.get(role.id), types))) for role in roles if role is not None
    ]


def _reasons(
    detail: EnvelopeDetail, role: RoleSituation, cursor: Cursor | None, types: Collection[str]
) -> Iterator[str]:
    only, position = detail.summary.only_roles, detail.summary.position
    assert position is not None, "only what is received is owed"
    if role.is_worker:
        yield f"{role.login} is a worker: it is owed nothing, and works for the consumers of an envelope"
    if only is not None and role.login not in only:
        yield f"the envelope is sent to {', '.join(only)} alone"
    if cursor is not None and position < cursor.from_position:
        yield f"{role.login} is owed envelopes from position {cursor.from_position} on, and this one is before it"
    if cursor is not None and cursor.until_position is not None and position >= cursor.until_position:
        why = "removed" if role.removed_at is not None else "detached"
        yield f"{role.login} was {why} at position {cursor.until_position}, and is owed nothing from there on"
    told = ", ".join(types) or "none"
    yield f"no graph of its event types ({told}) led to the service {role.service} when it was sent"


ARRIVE_BY_THEMSELVES = frozenset(
    {OWED, DeliveryState.WAITING.value, DeliveryState.RETRY.value, DeliveryState.HELD.value}
)
"""The states of a delivery that the back, and no person, brings to an end."""


@dataclass(frozen=True, slots=True)
class AskedPart:
    """The part of an envelope that is asked about.

    Args:
        role: the login of one role; None for all.
        event: the number of one event, from 1; None for all.
        item: the index of one item of that event, from 0; None for all.
    """

    role: str | None = None
    event: int | None = None
    item: int | None = None


@dataclass(frozen=True, slots=True)
class EnvelopeFacts:
    """The facts of an envelope.

    Args:
        detail: its details.
        end: its end, beside its deliveries.
        part: the part that is asked about.
        is_gone: whether the bus removed its content for good; that of an archived envelope is in its files.
        types: the types of the events that are asked about.
        deliveries: its deliveries, of that part.
        not_owed: why roles are not owed it, where it has no deliveries: the role that is asked about, or all to which
            its graphs lead.
        is_unknown_role: whether nobody has or had the login of that role.
        event: the event that is asked about; None where none is, or the envelope has none of this number.
        items: how roles get the item that is asked about.
    """

    detail: EnvelopeDetail
    end: EnvelopeEnd
    part: AskedPart
    is_gone: bool = False
    types: Sequence[str] = ()
    deliveries: Sequence[DeliveryFacts] = ()
    not_owed: Sequence[NotOwed] = ()
    is_unknown_role: bool = False
    event: EventFacts | None = None
    items: Sequence[ItemFacts] = ()

    @property
    def asks_the_back(self) -> bool:
        """True if only the memory of the back can say what keeps some of the deliveries."""
        return any(delivery.progress.state in ARRIVE_BY_THEMSELVES for delivery in self.deliveries)


def read_envelope_facts(connection: sa.Connection, envelope_id: UUID, part: AskedPart) -> EnvelopeFacts | None:
    """Read the facts of an envelope; None if no envelope has this id."""
    detail = show_envelope(connection, envelope_id)
    if detail is None:
        return None
    end = read_end(connection, envelope_id)
    event = None if part.event is None else read_numbered_event(connection, envelope_id, part.event)
    is_gone = end.pruned_at is not None and detail.archive is None
    if detail.summary.position is None or is_gone or (part.event is not None and event is None):
        return EnvelopeFacts(detail, end, part, is_gone=is_gone, event=event)
    services = None if event is None else event.services
    deliveries = read_deliveries(connection, detail, services, part.role)
    if end.pruned_at is not None:
        # What is gone for good was told above.
        deliveries = [replace(delivery, is_archived=True) for delivery in deliveries]
    if part.item is not None:
        # Of the items that are parked alone only the one counts that is asked about.
        deliveries = [replace(delivery, parked_items=0) for delivery in deliveries]
    asked = are_asked(envelope_id, event)
    types = read_types(connection, asked)
    passed_over: Sequence[str] = ()
    if not deliveries:
        passed_over = read_led_to(connection, asked) if part.role is None else [part.role]
    not_owed = read_not_owed(connection, detail, passed_over, types)
    return EnvelopeFacts(
        detail,
        end,
        part,
        types=types,
        deliveries=deliveries,
        not_owed=not_owed,
        is_unknown_role=part.role is not None and not deliveries and not not_owed,
        event=event,
        items=() if event is None or part.item is None else read_items(connection, event.id, part.item),
    )
