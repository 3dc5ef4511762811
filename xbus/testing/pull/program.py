"""A reading program of a bus in memory, as the bus knows it."""

from dataclasses import dataclass
from uuid import UUID

from xbus.broker.journal.log.catalog import read_catalog
from xbus.broker.journal.readers.settings import read_readers
from xbus.clock import Clock
from xbus.errors import Refused
from xbus.testing.journal import Database
from xbus.testing.pull.connection import ReadingConnection

LATE_SECONDS = 1.0
"""Seconds by which the broker may be late with what the end of a lease frees."""


@dataclass(frozen=True)
class VirtualReadingProgram:
    """A program of a reader.

    Args:
        id: that it gives itself.
        login: of a role of the reader.
        connection: to the back.
        clock: tells the virtual time.
        patience: seconds of virtual time after which nothing is left for it: the lease, and the wait for a batch.
    """

    id: UUID
    login: str
    connection: ReadingConnection
    clock: Clock
    patience: float


def open_reader(
    database: Database, name: str, connection: ReadingConnection, clock: Clock, program: UUID
) -> VirtualReadingProgram:
    """Make a program of a reader.

    Args:
        name: of the reader, or the login of a role of it.

    Raises:
        Refused: no reader is called so (``unknown_reader``).
    """
    readers = {entry.key: entry for entry in database.read(read_readers)}
    for role in database.read(read_catalog).reader_roles.values():
        if name in (role.login, role.shown_service) and role.service in readers:
            entry = readers[role.service]
            patience = entry.lease + entry.batch_wait + LATE_SECONDS
            return VirtualReadingProgram(program, role.login, connection, clock, patience)
    known = ", ".join(sorted(entry.name for entry in readers.values())) or "none"
    raise Refused(
        f"no reader with a role is called {name} (there are: {known})",
        'describe it first: bus.type("orders").read_by("billing"), or [[reader]] and [[role]] in the bus file',
        code="unknown_reader",
    )
