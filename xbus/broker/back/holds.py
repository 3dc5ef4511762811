"""Envelopes that consumers hold open because they gave an immediate reply: no event loop."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from xbus.broker.back.recipient import Recipient
from xbus.broker.back.run import Run


@dataclass(eq=False, slots=True)
class Hold:
    """An envelope that a consumer holds open; its slot is taken.

    Args:
        run: what was begun, and is to be ended or stopped.
        event_ids: the events that it gave replies to.
        expiry: ends it when the envelope's end does not come.
    """

    envelope_id: UUID
    recipient: Recipient
    run: Run
    event_ids: list[UUID] = field(default_factory=list)
    expiry: asyncio.TimerHandle | None = None


class Holds:
    """All of them. A hold is taken by whoever ends it, so that it ends once."""

    def __init__(self) -> None:
        self._holds: dict[tuple[UUID, int], Hold] = {}
        self.doubtful: set[UUID] = set()
        """Envelopes that may still be held open since the last run of the broker: to be stopped before they come."""
        self.on_taken: Callable[[Hold], None] = lambda hold: None
        """Told of each hold that ends, whatever follows."""

    def __bool__(self) -> bool:
        return bool(self._holds)

    def all(self) -> list[Hold]:
        """Those that have not ended."""
        return list(self._holds.values())

    def get(self, envelope_id: UUID, recipient: Recipient) -> Hold | None:
        """What a recipient holds open of an envelope."""
        hold = self._holds.get((envelope_id, recipient.role.id))
        return hold if hold is not None and hold.recipient is recipient else None

    def add(self, hold: Hold) -> None:
        """Begin one."""
        self._holds[hold.envelope_id, hold.recipient.role.id] = hold

    def take(self, envelope_id: UUID, recipient: Recipient) -> Hold | None:
        """End what a recipient holds open of an envelope: what was begun, and the slot, are the caller's."""
        hold = self.get(envelope_id, recipient)
        if hold is not None:
            del self._holds[envelope_id, recipient.role.id]
            self.on_taken(hold)
        return hold
