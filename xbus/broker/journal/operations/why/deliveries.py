"""The facts of an envelope's deliveries: its state at each role, and all that may keep it from coming there."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.log.catalog import read_graph, read_pauses
from xbus.broker.journal.log.deliveries import read_cursors
from xbus.broker.journal.log.repeats import read_retries
from xbus.broker.journal.log.role_progress import RoleProgress, read_owed_ahead
from xbus.broker.journal.operations.envelopes.details import EnvelopeDetail
from xbus.broker.journal.operations.failures import FailureSummary
from xbus.broker.journal.operations.why.situations import RoleSituation, read_situation, read_situations_of
from xbus.broker.journal.writes import Pauses
from xbus.broker.journal.writes.cursor import Cursor
from xbus.states import DeliveryState, ItemState

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
