"""A lane: one reader of the log, for the consumer roles that stand at the same position; pure."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Sequence

from xbus.broker.back.recipients import ServedRole


class Lane:
    """Knows the recipients that it reads for, and how far it has come.

    Args:
        position: all envelopes up to here were dealt with.
        of_slow: whether it reads for a role that held others up: nobody may join before it reaches the head.
    """

    def __init__(self, position: int, *, of_slow: bool = False) -> None:
        self.position = position
        self.of_slow = of_slow
        self.joinable = not of_slow
        """True while it stands still between two envelopes, so that others at the same position may join."""
        self.task: asyncio.Task[None] | None = None
        self.rests = False
        """True while it waits for the log to grow: all before is handed out."""
        self.woken = asyncio.Event()
        """Set when something lies behind its position."""
        self._of_service: defaultdict[str, dict[ServedRole, None]] = defaultdict(dict)
        self._turns: deque[ServedRole] = deque()

    def add(self, recipient: ServedRole) -> None:
        """Read for a recipient too."""
        self._of_service[recipient.role.service][recipient] = None
        self._turns.append(recipient)

    def remove(self, recipient: ServedRole) -> None:
        """Read no longer for a recipient."""
        of_service = self._of_service[recipient.role.service]
        of_service.pop(recipient, None)
        if not of_service:
            del self._of_service[recipient.role.service]
        self._turns.remove(recipient)

    @property
    def services(self) -> Collection[str]:
        """The services that those provide for whom it reads."""
        return self._of_service.keys()

    def __contains__(self, recipient: ServedRole) -> bool:
        return recipient in self._of_service.get(recipient.role.service, ())

    def __len__(self) -> int:
        return len(self._turns)

    def recipients(self) -> Sequence[ServedRole]:
        """List those that it reads for."""
        return list(self._turns)

    def of_services(self, services: Iterable[str]) -> list[ServedRole]:
        """List those of some services, in the order in which they came."""
        return [recipient for service in services for recipient in self._of_service.get(service, ())]

    def next_ones(self, most: int) -> list[ServedRole]:
        """List so many recipients, others each time until all had their turn."""
        found = [self._turns[place] for place in range(min(most, len(self._turns)))]
        self._turns.rotate(-len(found))
        return found
