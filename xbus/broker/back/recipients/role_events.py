"""The events in the life of a role; subscribers get them synchronously, in a written order.

A publisher and a subscriber are both given the same ``RoleEvents``, so neither knows the other. All subscriptions stand
in one place: ``DeliveryAssembly._subscribe``. A subscriber is a plain function: nothing can come between two of them.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from xbus.broker.back.recipients.recipient import RecipientProxy
from xbus.broker.journal.writes import DeliveryRow

Subject = TypeVar("Subject")


class RoleEvent(Generic[Subject]):
    """One kind of event.

    ``publish`` calls the subscribers one after another in the order of their subscriptions, and returns after the last.
    What a subscriber publishes in turn is delivered to the end before the next subscriber is called.
    """

    def __init__(self) -> None:
        self.subscribers: list[Callable[[Subject], None]] = []

    def subscribe(self, *subscribers: Callable[[Subject], None]) -> None:
        """Have functions called from now on, after those that subscribed before them."""
        self.subscribers += subscribers

    def publish(self, subject: Subject) -> None:
        """Call every subscriber.

        Args:
            subject: whom or what it is about.
        """
        for subscriber in self.subscribers:
            subscriber(subject)


class RoleEvents:
    """All kinds of events."""

    def __init__(self) -> None:
        self.arrived = RoleEvent[RecipientProxy]()
        """A recipient serves its role from now on."""
        self.left = RoleEvent[RecipientProxy]()
        """A recipient does so no longer: nothing more is begun with it."""
        self.gone = RoleEvent[RecipientProxy]()
        """A recipient that left has finished its work, or was lost: its role may have another one."""
        self.slow = RoleEvent[RecipientProxy]()
        """A consumer held the others up for too long."""
        self.caught_up = RoleEvent[RecipientProxy]()
        """A consumer that went its own way reads together with others again."""
        self.tripped = RoleEvent[RecipientProxy]()
        """A consumer that is there fails at everything: it gets nothing in its turn any more."""
        self.recovered = RoleEvent[RecipientProxy]()
        """A registered recipient that had tripped had a success."""
        self.rows_due = RoleEvent[int]()
        """A role may have delivery rows that are due; its id."""
        self.row_moved = RoleEvent[DeliveryRow]()
        """A delivery has a new row."""
