"""Says whether a recipient may get an envelope now; nothing is awaited here."""

from xbus.broker.back.progress.in_flight import InFlight
from xbus.broker.back.progress.ledger import DeliveryLedger
from xbus.broker.back.recipients.probing import BreakerProbes
from xbus.broker.back.recipients.recipient import RecipientProxy
from xbus.broker.back.recipients.registry import Registry
from xbus.broker.journal.log.reading import LogEnvelope


class Eligibility:
    """Asked before and after each wait, as the answer changes meanwhile.

    Args:
        ledger: what has become of the envelope, and of earlier ones of its ordering key.
        registry: who is there.
        in_flight: what is being brought to whom.
        probing: who is in trouble.
    """

    def __init__(self, ledger: DeliveryLedger, registry: Registry, in_flight: InFlight, probing: BreakerProbes) -> None:
        self._ledger = ledger
        self._keys = ledger.blocked_keys
        self._registry = registry
        self._in_flight = in_flight
        self._probing = probing

    def is_due(self, recipient: RecipientProxy, envelope: LogEnvelope) -> bool:
        """Whether nothing has become of an envelope for a role yet."""
        cursor = self._ledger.cursor(recipient.role.id)
        return cursor is not None and not cursor.is_settled(envelope.position)

    def in_turn(self, recipient: RecipientProxy, envelope: LogEnvelope) -> bool:
        """Whether a recipient may get an envelope in its turn."""
        is_kept = self._probing.is_troubled(recipient.role.id) or self._keys.holds(recipient.role.id, envelope)
        return self.is_due(recipient, envelope) and not is_kept and self._may_get(recipient, envelope)

    def by_row(self, recipient: RecipientProxy, envelope: LogEnvelope) -> bool:
        """Whether a recipient may get an envelope that has a row of its own."""
        is_outdated = self._in_flight.is_outdated(recipient.role.id, envelope.position)
        return self._may_get(recipient, envelope) and not is_outdated

    def is_held(self, recipient: RecipientProxy, envelope: LogEnvelope) -> bool:
        """Whether an envelope has to wait for an earlier one of its ordering key, and has no row for that yet."""
        is_held = self._keys.holds(recipient.role.id, envelope)
        return is_held and self.is_due(recipient, envelope) and self._may_get(recipient, envelope)

    def _may_get(self, recipient: RecipientProxy, envelope: LogEnvelope) -> bool:
        role_id = recipient.role.id
        is_present = self._registry.get(role_id) is recipient
        return is_present and envelope.position not in self._in_flight.to(role_id)
