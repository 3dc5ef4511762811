"""Envelopes that consumers hold open because they gave an immediate reply: no event loop."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from uuid import UUID

from xbus.broker.back.progress.bad_item_search import Serving
from xbus.broker.back.recipients import RecipientProxy
from xbus.broker.back.run import Run


@dataclass(eq=False, slots=True)
class OpenReply:
    """An envelope that a consumer keeps open after its reply; its slot stays taken.

    Args:
        run: the run to be ended or stopped.
        event_ids: the events that it gave replies to.
        expiry: ends it if the envelope's end does not come.
        asking: whether an event of it is being delivered now; that delivery also ends it if necessary.
    """

    envelope_id: UUID
    recipient: RecipientProxy
    run: Run
    event_ids: list[UUID] = field(default_factory=list)
    expiry: asyncio.TimerHandle | None = None
    asking: bool = False

    def forget_expiry(self) -> None:
        """Let the envelope's end take as long as it takes."""
        if self.expiry is not None:
            self.expiry.cancel()


class OpenReplies:
    """All open replies. The caller that ends one takes it, so that it ends once.

    Args:
        on_taken: called with each that ends while its recipient is registered, whatever follows.
    """

    def __init__(self, on_taken: Callable[[OpenReply], None]) -> None:
        self.open: dict[tuple[UUID, int], OpenReply] = {}
        """The replies that have not ended, by their envelopes and roles."""
        self.maybe_open: set[tuple[UUID, int]] = set()
        """Envelopes that may still be open at a role from an earlier registration."""
        self._on_taken = on_taken

    def all(self) -> list[OpenReply]:
        """List those that have not ended."""
        return list(self.open.values())

    def of_role(self, envelope_id: UUID, role_id: int) -> OpenReply | None:
        """Give the open reply of a role for an envelope, whichever of its instances gave it."""
        return self.open.get((envelope_id, role_id))

    def get(self, envelope_id: UUID, recipient: RecipientProxy) -> OpenReply | None:
        """Give the open reply of a recipient for an envelope."""
        open_reply = self.open.get((envelope_id, recipient.role.id))
        return open_reply if open_reply is not None and open_reply.recipient is recipient else None

    def add(self, open_reply: OpenReply) -> None:
        """Begin one."""
        self.open[open_reply.envelope_id, open_reply.recipient.role.id] = open_reply

    def take(self, envelope_id: UUID, recipient: RecipientProxy) -> OpenReply | None:
        """Take the open reply of a recipient for an envelope; its run and its slot are the caller's now."""
        open_reply = self.get(envelope_id, recipient)
        if open_reply is not None:
            del self.open[envelope_id, recipient.role.id]
            open_reply.forget_expiry()
            self._on_taken(open_reply)
        return open_reply

    def lose(self, recipient: RecipientProxy) -> list[OpenReply]:
        """Take all open replies of a recipient that has gone; it may come back with them still open."""
        lost = [open_reply for open_reply in self.open.values() if open_reply.recipient is recipient]
        for open_reply in lost:
            del self.open[open_reply.envelope_id, recipient.role.id]
            self.mark_maybe_open(open_reply.envelope_id, recipient.role.id)
        return lost

    def mark_maybe_open(self, envelope_id: UUID, role_id: int) -> None:
        """Note that an envelope without an open reply may be open at a role; it is stopped before its delivery."""
        self.maybe_open.add((envelope_id, role_id))

    def mark_closed(self, envelope_id: UUID, role_id: int) -> None:
        """Note that nothing is open of an envelope at a role any more."""
        self.maybe_open.discard((envelope_id, role_id))

    def may_be_open(self, envelope_id: UUID, recipients: Iterable[Serving]) -> bool:
        """Check whether an envelope may still be open at one of some recipients from an earlier registration."""
        maybe_open = self.maybe_open
        return bool(maybe_open) and any((envelope_id, recipient.role.id) in maybe_open for recipient in recipients)
