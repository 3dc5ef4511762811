"""Envelopes that are sealed, and whose content was removed since: only their receipts are left."""

from uuid import UUID

from xbus.broker.front.envelopes.closed import ClosedEnvelope
from xbus.broker.front.envelopes.futures import done
from xbus.broker.front.envelopes.state import EndedEvent
from xbus.headers import NO_TAGS, EventTags
from xbus.rpc.deferred import Deferred


class PrunedEnvelope(ClosedEnvelope):
    """A sealed envelope without a key, of which the receipt is left: whoever repeats its calls gets that at the end.

    What they send can't be compared any more. Nothing of it is kept, and nothing is delivered a second time.
    """

    def check_headers(self, headers: bytes | None) -> None:
        """Let all pass: they are removed, too."""

    def start_event(self, event_id: UUID, type_name: str, estimate: int, tags: EventTags = NO_TAGS) -> UUID:
        return event_id

    def append(self, event_id: UUID, first_index: int | None, items: int, data: bytes) -> Deferred[int]:
        """Raises Refused: envelope_closed for items of which nobody says where they belong."""
        if first_index is None:
            raise self._closed()
        return Deferred.of(done(first_index + items))

    def end_event(self, event_id: UUID, items: int | None) -> Deferred[EndedEvent]:
        return Deferred.of(done(EndedEvent(items or 0)))
