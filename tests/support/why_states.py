"""The state of a delivery by its tables, and the answers of ``xbus why`` that each state permits."""

from collections.abc import Mapping
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.admin.why.findings import Code
from xbus.broker.journal.log.event_states import DONE, DROPPED, OWED, RETRIED
from xbus.states import DeliveryState, EnvelopeState

OBSTACLES = frozenset(
    {
        *(Code.ROLE_PAUSED, Code.ROLE_ABSENT, Code.ROLE_TRIPPED, Code.ROLE_LEAVING),
        *(Code.BACK_UNREACHABLE, Code.BACK_UNAWARE, Code.UNDER_WAY),
    }
)
IN_TURN = frozenset({Code.IN_LINE, Code.SLOTS_TAKEN, Code.HELD_UP, Code.KEY_IN_HAND, Code.WORKER_GRACE})
"""The codes of obstacles to an envelope that is ready to go."""

OF_ROWS = frozenset({Code.BEHIND_KEY, Code.BEHIND_ROW, Code.KEY_IN_HAND, Code.WORKER_BUSY})
WITHOUT_WORKER = frozenset({Code.WORKER_ABSENT, Code.WORKER_PAUSED, Code.WORKER_TRIPPED, Code.OUTPUT_NOT_READY})

OF_STATE: Mapping[str, frozenset[Code]] = {
    EnvelopeState.OPEN.value: frozenset({Code.OPEN}),
    EnvelopeState.CANCELLED.value: frozenset({Code.CANCELLED}),
    DONE: frozenset({Code.DELIVERED, Code.ITEMS_PARKED}),
    DROPPED: frozenset({Code.DROPPED}),
    RETRIED: frozenset({Code.RESENT}),
    DeliveryState.PARKED.value: frozenset({Code.PARKED}),
    OWED: OBSTACLES | IN_TURN | {Code.WORKER_BUSY, Code.UNWRITTEN},
    DeliveryState.RETRY.value: OBSTACLES | OF_ROWS | {Code.RETRY_DUE, Code.SLOTS_TAKEN},
    DeliveryState.HELD.value: OBSTACLES | OF_ROWS | IN_TURN,
    DeliveryState.WAITING.value: OBSTACLES | OF_ROWS | IN_TURN | WITHOUT_WORKER,
}
"""The codes that a state permits: the state of an envelope, or of its delivery to a role."""


def read_state(connection: sa.Connection, login: str, envelope_id: UUID) -> str | None:
    """Read the state of an envelope at a role from its tables; None where it is owed to nobody."""
    envelope, role, delivery, cursor = model.envelope.c, model.role.c, model.delivery.c, model.cursor.c
    row = connection.execute(sa.select(envelope.state, envelope.position).where(envelope.id == envelope_id)).one()
    if row.state != EnvelopeState.RECEIVED.value:
        return str(row.state)
    if not connection.execute(sa.select(model.event.c.id).where(model.event.c.envelope_id == envelope_id)).first():
        return None
    role_id = connection.execute(sa.select(role.id).where(role.login == login)).scalar_one()
    of_both = sa.and_(delivery.role_id == role_id, delivery.envelope_id == envelope_id)
    state = connection.execute(sa.select(delivery.state).where(of_both)).scalar_one_or_none()
    if state is not None:
        return str(state)
    history = model.history.c
    let_go = sa.select(history.id).where(
        history.subject_id == f"{role_id} {envelope_id}", history.move == DROPPED, history.subject == "delivery"
    )
    if connection.execute(let_go).first():
        return DROPPED
    found = connection.execute(sa.select(cursor.position, cursor.done).where(cursor.role_id == role_id)).one()
    above = row.position - found.position - 1
    is_settled = above < 0 or bool(int.from_bytes(found.done, "little") >> above & 1)
    return DONE if is_settled else OWED
