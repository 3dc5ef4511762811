"""The bus as pages and actions see it: its journal, its broker, its configuration, and the moment."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TypeVar

from xbus.admin.signatures import decision_of
from xbus.admin.why.inquiry import Inquiry, RunningBroker
from xbus.broker.journal.audit import RepairDecision, acting_as
from xbus.broker.journal.database.connection import Connection
from xbus.broker.journal.database.pool import ConnectionPool
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
    def writing(self, visitor: Visitor) -> Iterator[Connection]:
        """Open a short transaction, and commit it at the end unless an exception comes out.

        Args:
            visitor: the person who acts, for the audit.

        Raises:
            JournalUnavailable: the database can't be reached or written.
        """
        with acting_as(visitor.person.name, visitor.origin), self.journal.writing() as connection:
            yield connection

    @contextmanager
    def writing_itself(self) -> Iterator[Connection]:
        """Open a transaction for what the monitor notes by itself, such as a session."""
        with self.journal.writing() as connection:
            yield connection

    def decision(self, reason: str) -> RepairDecision:
        """Make the decision of the person who acts, as of now."""
        return decision_of(self.clock, reason)

    def read(self, ask: Callable[[Connection], T]) -> T:
        """Give the answer to one question."""
        return self.journal.read(ask)

    def inquiry(self) -> Inquiry:
        """Make the one that answers why."""
        return Inquiry(self.read, self.broker, self.clock)
