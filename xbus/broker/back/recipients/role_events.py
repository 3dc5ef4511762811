"""The events in the life of a role; subscribers get them synchronously, in a written order.

A publisher and a subscriber are both given the same ``RoleEvents``, so neither knows the other. All subscriptions stand
in one place: ``DeliveryAssembly._subscribe``. A subscriber is a plain function: nothing can come between two of them.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from xbus.broker.back.recipients.recipient import RecipientProxy
from xbus.broker.back.recipients.served import ServedRole
from xbus.broker.journal.writes import DeliveryRow

Subject = TypeVar("Subject")


class RoleEvent(Generic[Subject]):
    """One kind of event.

    ``publish`` calls the subscribers one after another in the order of their subscriptions, and returns after the last.
    An event that a subscriber publishes in turn is delivered to the end before the next subscriber is called.
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
        self.joined = RoleEvent[RecipientProxy]()
        """A program serves its role from now on, perhaps beside others."""
        self.parted = RoleEvent[RecipientProxy]()
        """A program does so no longer: nothing more is begun with it."""
        self.arrived = RoleEvent[ServedRole]()
        """A role is served from now on: its first program has come, and has joined just before."""
        self.left = RoleEvent[ServedRole]()
        """A role is served no longer: the last program that served it has parted just before."""
        self.paused = RoleEvent[ServedRole]()
        """Nothing more is begun with a role until it is resumed; its programs go on with what they have."""
        self.resumed = RoleEvent[ServedRole]()
        """A paused role is served again."""
        self.configured = RoleEvent[ServedRole]()
        """A role that is served is configured otherwise."""
        self.gone = RoleEvent[ServedRole]()
        """All programs of a role that left have finished their work, or were lost: it may be served again."""
        self.slow = RoleEvent[ServedRole]()
        """A consumer held the others up for too long."""
        self.caught_up = RoleEvent[ServedRole]()
        """A consumer that went its own way reads together with others again."""
        self.tripped = RoleEvent[ServedRole]()
        """A consumer that is there fails at everything: it gets nothing in its turn any more."""
        self.recovered = RoleEvent[ServedRole]()
        """A registered recipient that had tripped had a success."""
        self.rows_due = RoleEvent[int]()
        """A role may have delivery rows that are due; its id."""
        self.row_moved = RoleEvent[DeliveryRow]()
        """A delivery has a new row."""
