"""The bus as pages and actions see it: its journal, its broker, its configuration, and the moment."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import TypeVar

from xbus.admin.signatures import decision_of
from xbus.admin.why.inquiry import Inquiry, RunningBroker
from xbus.broker.journal.audit import RepairDecision, acting_as
from xbus.broker.journal.database.connection import Connection
from xbus.broker.journal.database.pool import ConnectionPool
from xbus.broker.journal.people import Right
from xbus.clock import Clock
from xbus.config import Config
from xbus.monitor.people import GuardedPasswords, Visitor
from xbus.passwords import Passwords

T = TypeVar("T")


class BusAccess:
    """The bus, for work in threads: reads and writes of the journal block.

    Args:
        config: the broker's configuration.
        journal: connections to its database.
        clock: tells the moment.
        passwords: makes and checks hashes; tests hand in a cheap one.
        broker: asks the broker; by default that of the configuration.
    """

    def __init__(
        self,
        config: Config,
        journal: ConnectionPool,
        clock: Clock,
        passwords: Passwords | None = None,
        broker: RunningBroker | None = None,
    ) -> None:
        self.config = config
        self.broker = broker or RunningBroker(config.file)
        self.clock = clock
        self.passwords = GuardedPasswords(passwords or Passwords(), clock)
        self.journal = journal

    def now(self) -> datetime:
        """Tell the moment, in UTC."""
        return self.clock.now()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a short transaction that only reads.

        Raises:
            JournalUnavailable: the database can't be reached.
        """
        with self.journal.reading() as connection:
            yield connection

    @contextmanager
    def writing_itself(self) -> Iterator[Connection]:
        """Open a transaction for what the monitor notes by itself, such as a session."""
        with self.journal.writing() as connection:
            yield connection

    def read(self, ask: Callable[[Connection], T]) -> T:
        """Give the answer to one question."""
        return self.journal.read(ask)

    def inquiry(self) -> Inquiry:
        """Make the one that answers why."""
        return Inquiry(self.read, self.broker, self.clock)


class VisitorBus(BusAccess):
    """The bus for one visitor, who acts on it.

    Args:
        bus: the bus.
        visitor: the person who acts, for the audit.
    """

    def __init__(self, bus: BusAccess, visitor: Visitor) -> None:
        vars(self).update(vars(bus))
        self.visitor = visitor

    def acting(self) -> AbstractContextManager[None]:
        """Have the audit name the visitor."""
        return acting_as(self.visitor.person.name, self.visitor.origin)

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open a short transaction, and commit it at the end unless an exception comes out.

        Raises:
            JournalUnavailable: the database can't be reached or written.
        """
        with self.acting(), self.journal.writing() as connection:
            yield connection

    def decision(self, reason: str) -> RepairDecision:
        """Make the decision of the visitor, as of now."""
        with self.acting():
            return decision_of(self.clock, reason)

    def hash_password(self, password: str) -> str:
        """Make the hash of a password."""
        return self.passwords.hash_password(password)

    def check_right(self, right: Right) -> None:
        """Let a visitor pass who has a right.

        Raises:
            Refused: the visitor lacks it (``forbidden``).
        """
        self.visitor.check(right)
