"""The bus as pages and actions see it: its journal, its broker, its configuration, and the moment."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import TypeVar

from xbus.admin.signatures import CommandBus
from xbus.admin.why.inquiry import Inquiry, RunningBroker
from xbus.broker.journal.audit import RepairDecision, acting_as
from xbus.broker.journal.database.connection import Connection, ConnectionPool
from xbus.clock import Clock
from xbus.config import Config
from xbus.monitor.people import GuardedPasswords, Visitor
from xbus.passwords import Passwords
from xbus.rights import Right

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


class VisitorBus(CommandBus):
    """The bus for one visitor, who acts on it.

    Args:
        bus: the bus.
        visitor: the person who acts, for the audit.
    """

    def __init__(self, bus: BusAccess, visitor: Visitor) -> None:
        super().__init__(bus.config.file)
        self.config = bus.config
        self.clock = bus.clock
        self.visitor = visitor
        self.passwords = bus.passwords
        self._journal = bus.journal

    def acting(self) -> AbstractContextManager[None]:
        return acting_as(self.visitor.person.name, self.visitor.origin)

    def reading(self) -> AbstractContextManager[Connection]:
        return self._journal.reading()

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        with self.acting(), self._journal.writing() as connection:
            yield connection

    def decision(self, reason: str) -> RepairDecision:
        with self.acting():
            return super().decision(reason)

    def hash_password(self, password: str) -> str:
        return self.passwords.hash_password(password)

    def check_right(self, right: Right) -> None:
        self.visitor.check(right)
