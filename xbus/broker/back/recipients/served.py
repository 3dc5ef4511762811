"""A role that is served now: what the dispatch sees of it, however many programs serve it side by side."""

from collections.abc import Callable
from functools import reduce
from typing import Generic, TypeVar

from xbus.broker.back.recipients.abilities import Abilities
from xbus.broker.back.recipients.recipient import RecipientProxy
from xbus.broker.journal.log.catalog import RoleEntry
from xbus.broker.journal.writes import DeliveryRow


class ServedRole:
    """The instances of a role: the programs that serve it just now, in the order in which they came.

    Envelopes wait for the role, and each goes whole to one of its instances that has a free slot. It ends when nobody
    serves the role any more; the next program begins another one.

    Args:
        first: the one with which it begins.
    """

    def __init__(self, first: RecipientProxy) -> None:
        self.instances = [first]
        self.role = first.role
        """The role as it is configured now."""
        self.abilities = first.abilities
        """The abilities that all instances have."""

    def configure(self, role: RoleEntry) -> None:
        """Take up the role as it is configured from now on."""
        self.role = role
        for instance in self.instances:
            instance.role = role

    def add(self, instance: RecipientProxy) -> None:
        """Note that one more program serves the role."""
        self.instances.append(instance)
        self._learn()

    def discard(self, instance: RecipientProxy) -> None:
        """Note that a program serves it no longer."""
        self.instances.remove(instance)
        self._learn()

    def _learn(self) -> None:
        if self.instances:
            self.abilities = reduce(Abilities.shared_with, (instance.abilities for instance in self.instances))


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
