"""A party: the consumers that get the same bundles, with what waits for them."""

import asyncio
from collections.abc import Collection, Sequence

from xbus.broker.back.dispatch.bundles.queue import BundleQueue
from xbus.broker.back.recipients import ServedRole


class BundleParty:
    """One consumer that decides alone, or all those that decide together about the same envelopes.

    Args:
        recipients: those.

    Attributes:
        recipients: those that are still in it.
        queue: what waits for them.
        sending: the tasks that send it.
        is_closing: whether nothing more is added, as one of them has left it.
    """

    def __init__(self, recipients: Sequence[ServedRole]) -> None:
        self.recipients = list(recipients)
        self.queue = BundleQueue()
        self.sending: set[asyncio.Task[None]] = set()
        self.is_closing = False

    @property
    def takers(self) -> int:
        """Count the tasks that may send at once: each takes an instance of each consumer."""
        return min((len(recipient.instances) for recipient in self.recipients), default=0)

    @property
    def is_over(self) -> bool:
        """Check whether nothing waits that is not to be added to."""
        return self.is_closing and not self.queue and not self.sending

    def is_for(self, recipients: Collection[ServedRole]) -> bool:
        """Check whether the next envelope for these consumers may be added."""
        if self.is_closing or len(recipients) != len(self.recipients):
            return False
        return all(recipient in self.recipients for recipient in recipients)

    def leave(self, recipient: ServedRole) -> None:
        """Let a consumer leave; what waits goes to the others without it."""
        self.recipients.remove(recipient)
        self.is_closing = True
