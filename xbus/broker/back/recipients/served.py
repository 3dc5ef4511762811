"""A role that is served now: what the dispatch sees of it, however many programs serve it side by side."""

from functools import reduce

from xbus.broker.back.recipients.abilities import Abilities
from xbus.broker.back.recipients.recipient import RecipientProxy
from xbus.broker.journal.log.catalog import RoleEntry


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
