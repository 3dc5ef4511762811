"""Says whether a recipient may get an envelope now; nothing is awaited here."""

from xbus.broker.back.progress import ConsumerRole, ConsumerRoles
from xbus.broker.back.recipients import Registry, ServedRole
from xbus.broker.journal.log.reading import LogEnvelope
from xbus.broker.journal.writes import DeliveryRow
from xbus.states import ConsumerState


class Eligibility:
    """Asked before and after each wait, as the answer changes meanwhile.

    Args:
        roles: what has become of the envelope, and of earlier ones of its ordering key; what is being brought.
        registry: who is there.
    """

    def __init__(self, roles: ConsumerRoles, registry: Registry) -> None:
        self._roles = roles
        self._registry = registry

    def is_due(self, recipient: ServedRole, envelope: LogEnvelope) -> bool:
        """Check whether nothing has become of an envelope for a role yet."""
        return _is_due(self._roles[recipient.role.id], envelope)

    def in_turn(self, recipient: ServedRole, envelope: LogEnvelope) -> bool:
        """Check whether a recipient may get an envelope in its turn."""
        role = self._roles[recipient.role.id]
        is_kept = role.state is ConsumerState.TRIPPED or role.keys.blocks(envelope)
        return not is_kept and _is_due(role, envelope) and self._may_get(role, recipient, envelope)

    def is_served(self, recipient: ServedRole) -> bool:
        """Check whether a recipient may get anything in its turn."""
        role = self._roles[recipient.role.id]
        return self._registry.get(role.id) is recipient and role.state is not ConsumerState.TRIPPED

    def is_troubled(self, role_id: int) -> bool:
        """Check whether one envelope after the other fails at a role."""
        return self._roles[role_id].breaker.is_tripped

    def by_row(self, recipient: ServedRole, envelope: LogEnvelope, row: DeliveryRow) -> bool:
        """Check whether a recipient may get an envelope that has a row, and whose turn it is among its key's."""
        return self.is_current(recipient, envelope) and self._roles[row.role_id].keys.is_next(row)

    def is_current(self, recipient: ServedRole, envelope: LogEnvelope) -> bool:
        """Check whether the row of an envelope is still as it was read, for a recipient that is there."""
        role = self._roles[recipient.role.id]
        return self._may_get(role, recipient, envelope) and not role.in_flight.is_outdated(envelope.position)

    def is_blocked(self, recipient: ServedRole, envelope: LogEnvelope) -> bool:
        """Check whether an envelope must wait for an earlier one of its ordering key, without a row for that."""
        role = self._roles[recipient.role.id]
        is_blocked = role.keys.blocks(envelope)
        return is_blocked and _is_due(role, envelope) and self._may_get(role, recipient, envelope)

    def _may_get(self, role: ConsumerRole, recipient: ServedRole, envelope: LogEnvelope) -> bool:
        is_present = self._registry.get(role.id) is recipient
        return is_present and envelope.position not in role.in_flight.positions


def _is_due(role: ConsumerRole, envelope: LogEnvelope) -> bool:
    return role.cursor is not None and not role.cursor.is_settled(envelope.position)
