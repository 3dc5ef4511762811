"""Cancels an envelope that its emitter has not sealed. A sealed one is acknowledged, and stays."""

from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.commit.statements.common import remember
from xbus.broker.journal.log.envelopes import is_in, read_cancel_reason
from xbus.broker.journal.operations.envelopes.details import envelope_unknown
from xbus.errors import Refused
from xbus.states import ENVELOPE_MOVES, EnvelopeState, check_move


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
