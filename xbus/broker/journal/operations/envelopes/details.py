"""An envelope for a person: by the first digits of its id, with all details, and cancelled while it is open."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.archive.reading import Whereabouts, read_whereabouts
from xbus.broker.journal.bulk.outputs import OutputSummary, list_outputs
from xbus.broker.journal.commit.statements.common import remember
from xbus.broker.journal.database.paging import portions
from xbus.broker.journal.database.rows import NamedRow, NamedRows, grouped, value_of
from xbus.broker.journal.log.deliveries import read_cursors
from xbus.broker.journal.log.envelopes import is_in, read_cancel_reason
from xbus.broker.journal.log.event_states import EventState, event_state
from xbus.broker.journal.log.overlays import OverlaidItem, list_overlaid
from xbus.broker.journal.log.role_progress import ProgressReader, RoleProgress
from xbus.broker.journal.operations.failures import FailureSummary, list_failures
from xbus.broker.journal.writes.cursor import Cursor
from xbus.errors import Refused
from xbus.headers import Headers, unpack_headers
from xbus.states import ENVELOPE_MOVES, EnvelopeState, ItemState, ReplyState, check_move

MOST_EVENTS = 100
MOST_FAILURES = 100
MOST_ITEMS = 100
MOST_OUTPUTS = 100
"""The most events, failures, overlays and attempts of bulk workers that the details show."""

MOST_AT_ONCE = 500
"""Envelopes whose roles are read in one statement. SQLite takes a thousand parameters or so."""


@dataclass(frozen=True, slots=True)
class EnvelopeSummary:
    """An envelope in a list.

    Args:
        position: None unless it is received, and so are ``events``, ``items`` and ``bytes``.
        key: the emitter's own name for it, under which it is sent once; None for none.
        ordering_key: None for none.
        origin: the envelope that it repeats, if any.
        only_roles: the logins of the roles that it is for; None for all that its graphs lead to.
        parked_items: how many of its items are parked alone, for any role; what is parked as a whole is in ``roles``.
    """

    id: UUID
    state: EnvelopeState
    position: int | None
    emitter: str
    opened_at: datetime
    closed_at: datetime | None
    events: int | None
    items: int | None
    bytes: int | None
    key: str | None
    ordering_key: str | None
    origin: UUID | None
    only_roles: tuple[str, ...] | None
    roles: tuple[RoleProgress, ...]
    parked_items: int


@dataclass(frozen=True, slots=True)
class EventSummary:
    """An event of an envelope.

    Args:
        items: None until it is ended.
        estimate: the number of items that its emitter expected.
        reply: the state of its immediate reply; None if its emitter never waited for one.
        reply_cause: why the reply failed; None otherwise.
        headers: its own, by name.
        partition_key: None for none.
    """

    id: UUID
    number: int
    type: str
    state: EventState
    items: int | None
    estimate: int
    reply: ReplyState | None
    reply_cause: str | None
    headers: Headers
    partition_key: str | None


@dataclass(frozen=True, slots=True)
class EnvelopeDetail:
    """An envelope with its first events, the newest failures, newest first, and items that some role gets otherwise.

    Args:
        outputs: what bulk workers made of its events.
        archive: the files that its items are in, where it was archived.
        headers: those of the envelope, by name.
    """

    summary: EnvelopeSummary
    hash: bytes | None
    event_list: tuple[EventSummary, ...]
    failures: tuple[FailureSummary, ...]
    overlaid: tuple[OverlaidItem, ...]
    outputs: tuple[OutputSummary, ...]
    archive: Whereabouts | None = None
    headers: Headers = field(default_factory=dict)


def envelope_unknown(envelope_id: UUID | str) -> Refused:
    """Make the error for an envelope that does not exist; a text is how its id was to begin."""
    return Refused(f"there is no envelope {envelope_id}", "see xbus envelope list", code="envelope_unknown")


def read_position(connection: sa.Connection, envelope_id: UUID) -> int | None:
    """Read the position of an envelope; None unless it is received."""
    envelope = model.envelope.c
    return connection.execute(sa.select(envelope.position).where(envelope.id == envelope_id)).scalar_one_or_none()


def show_envelope(connection: sa.Connection, envelope_id: UUID) -> EnvelopeDetail | None:
    """Read all details of one envelope; None if no envelope has this id."""
    row = connection.execute(envelope_summaries().where(model.envelope.c.id == envelope_id)).one_or_none()
    if row is None:
        return None
    (summary,) = summarize(connection, [row], read_cursors(connection))
    return EnvelopeDetail(
        summary,
        None if row.hash is None else bytes(row.hash),
        tuple(_events(connection, summary)),
        tuple(list_failures(connection, envelope_id=envelope_id, limit=MOST_FAILURES)),
        tuple(list_overlaid(connection, envelope_id, MOST_ITEMS)),
        tuple(list_outputs(connection, envelope_id, MOST_OUTPUTS)),
        read_whereabouts(connection, envelope_id),
        unpack_headers(row.headers),
    )


def envelope_summaries() -> NamedRows:
    """Build the SELECT whose rows :func:`summarize` takes; its caller adds conditions and an order."""
    parked = model.parked_item.c
    parked_items = (
        sa.select(sa.func.count())
        .where(parked.envelope_id == model.envelope.c.id, parked.state == ItemState.PARKED.value)
        .scalar_subquery()
    )
    return sa.select(model.envelope, model.emitter.c.login, parked_items.label("parked_items")).join(
        model.emitter, model.emitter.c.id == model.envelope.c.emitter_id
    )


def summarize(
    connection: sa.Connection, rows: Sequence[NamedRow], cursors: Mapping[int, Cursor]
) -> Iterator[EnvelopeSummary]:
    """Complete rows of :func:`envelope_summaries` by the progress of the envelopes at their roles."""
    for some in portions(rows, MOST_AT_ONCE):
        progress = ProgressReader(connection, [row.id for row in some], cursors)
        yield from (_summary(row, progress) for row in some)


def _summary(row: NamedRow, progress: ProgressReader) -> EnvelopeSummary:
    return value_of(
        EnvelopeSummary,
        row,
        state=EnvelopeState(row.state),
        emitter=row.login,
        key=row.idempotency_key,
        origin=row.origin_id,
        only_roles=progress.only_roles(row.id),
        roles=() if row.position is None else tuple(progress.of(row.id, row.position)),
    )


def _events(connection: sa.Connection, envelope: EnvelopeSummary) -> Iterator[EventSummary]:
    services = _consumer_services(connection, envelope.id)
    statement = (
        sa.select(
            model.event,
            model.event_type.c.name.label("type"),
            model.reply.c.state.label("reply"),
            model.reply.c.cause.label("reply_cause"),
        )
        .join(model.event_type, model.event_type.c.id == model.event.c.event_type_id)
        .outerjoin(model.reply, model.reply.c.event_id == model.event.c.id)
        .where(model.event.c.envelope_id == envelope.id)
        .order_by(model.event.c.number)
        .limit(MOST_EVENTS)
    )
    for row in connection.execute(statement):
        concerned = [role for role in envelope.roles if role.service in services[row.graph_id]]
        yield value_of(
            EventSummary,
            row,
            state=event_state(envelope.state, concerned),
            reply=None if row.reply is None else ReplyState(row.reply),
            headers=unpack_headers(row.headers),
        )


def _consumer_services(connection: sa.Connection, envelope_id: UUID) -> Mapping[int, Collection[str]]:
    """Read for each graph of the envelope's events the consumer services to which it leads."""
    statement = (
        sa.select(model.event.c.graph_id, model.service.c.name)
        .join(model.node, model.node.c.graph_id == model.event.c.graph_id)
        .join(model.service, model.service.c.id == model.node.c.service_id)
        .where(model.event.c.envelope_id == envelope_id, model.service.c.kind == "consumer")
        .distinct()
    )
    return grouped(connection.execute(statement))


FEWEST_CHARACTERS = 8
"""Characters of a short id. Fewer save little room, and more ids would soon begin with them."""

MOST_CANDIDATES = 5
DIGITS = 32


def resolve_envelope(connection: sa.Connection, digits: str) -> UUID:
    """Find the envelope whose id begins with some digits.

    Args:
        digits: hexadecimal, 1 to 32 of them; all 32 are an id, whether an envelope has it or not.

    Raises:
        Refused: none begins so (``envelope_unknown``), or several do (``ambiguous_id``).
    """
    if len(digits) == DIGITS:
        return UUID(digits)
    envelope = model.envelope.c
    low, high = UUID(digits.ljust(DIGITS, "0")), UUID(digits.ljust(DIGITS, "f"))
    statement = sa.select(envelope.id).where(envelope.id.between(low, high)).order_by(envelope.id)
    found: Sequence[UUID] = connection.execute(statement.limit(MOST_CANDIDATES + 1)).scalars().all()
    if not found:
        raise envelope_unknown(digits)
    if len(found) > 1:
        named = ", ".join(map(str, found[:MOST_CANDIDATES])) + (", ..." if len(found) > MOST_CANDIDATES else "")
        raise Refused(
            f"the ids of several envelopes begin with {digits}",
            f"give more digits of one: {named}",
            code="ambiguous_id",
        )
    (envelope_id,) = found
    return envelope_id


def shorten(connection: sa.Connection, envelope_ids: Iterable[UUID]) -> dict[UUID, str]:
    """Give the shortest prefix of each id that no other envelope's id has, :data:`FEWEST_CHARACTERS` at least."""
    return {envelope_id: _shorten(connection, envelope_id) for envelope_id in set(envelope_ids)}


def _shorten(connection: sa.Connection, envelope_id: UUID) -> str:
    text = str(envelope_id)
    shared = max((_shared(text, str(other)) for other in _neighbours(connection, envelope_id)), default=0)
    length = max(FEWEST_CHARACTERS, shared + 1)
    return text[:length]


def _neighbours(connection: sa.Connection, envelope_id: UUID) -> Iterable[UUID]:
    """Find the ids before and behind one: no other shares more digits with it."""
    column = model.envelope.c.id
    before = sa.select(column).where(column < envelope_id).order_by(column.desc()).limit(1)
    behind = sa.select(column).where(column > envelope_id).order_by(column).limit(1)
    return [*connection.execute(before).scalars(), *connection.execute(behind).scalars()]


def _shared(one: str, other: str) -> int:
    return next((place for place, (left, right) in enumerate(zip(one, other, strict=True)) if left != right), len(one))


def check_open(connection: sa.Connection, envelope_id: UUID) -> None:
    """Let an open envelope pass.

    Raises:
        Refused: it is sealed (``envelope_sealed``) or cancelled (``envelope_closed``), or there is none
            (``envelope_unknown``).
    """
    envelope = model.envelope.c
    row = connection.execute(
        sa.select(envelope.state, envelope.position).where(envelope.id == envelope_id)
    ).one_or_none()
    if row is None:
        raise envelope_unknown(envelope_id)
    if row.state == EnvelopeState.RECEIVED.value:
        raise Refused(
            f"envelope {envelope_id} is sealed at position {row.position}, and its emitter relies on its delivery",
            f"xbus envelope show {envelope_id} says who lacks it: xbus pause role keeps it from one for now, and xbus "
            "parked drop lets one go without it where it is parked",
            code="envelope_sealed",
        )
    if row.state == EnvelopeState.CANCELLED.value:
        reason = read_cancel_reason(connection, envelope_id) or "no reason is kept"
        raise Refused(
            f"envelope {envelope_id} is cancelled already: {reason}", "nobody gets it", code="envelope_closed"
        )


def cancel_open(connection: sa.Connection, envelope_id: UUID, at: datetime, told: str) -> None:
    """Cancel an open envelope in the caller's transaction, whether its broker runs or not.

    The seal compares the state, too: of a seal and a cancel the one that commits first counts, and the other fails.

    Args:
        at: the moment.
        told: who cancels it, and why.

    Raises:
        Refused: as of ``check_open``.
    """
    check_move(ENVELOPE_MOVES, EnvelopeState.OPEN, EnvelopeState.CANCELLED)
    cancelled = EnvelopeState.CANCELLED.value
    moved = connection.execute(
        sa.update(model.envelope)
        .where(model.envelope.c.id == envelope_id, is_in(EnvelopeState.OPEN))
        .values(state=cancelled, closed_at=at)
    )
    if moved.rowcount != 1:
        check_open(connection, envelope_id)
    remember(connection, at, "envelope", str(envelope_id), cancelled, f"by {told}")
