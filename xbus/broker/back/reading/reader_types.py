"""Knows which event types each reader reads."""

from collections.abc import Mapping

from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.catalog import Catalog
from xbus.broker.journal.readers import read_readers
from xbus.errors import Refused


class ReaderTypes:
    """The event types of readers, read anew after each change of the configuration.

    Args:
        journal: has the configuration.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._version = -1
        self._types: Mapping[str, frozenset[int]] = {}

    async def of_role(self, catalog: Catalog, role_id: int) -> frozenset[int]:
        """Give the ids of the event types that the reader of a role reads.

        Raises:
            Refused: the role is not a reader's (``not_a_reader``).
            JournalUnavailable: the database can't be read now.
        """
        if self._version != catalog.version:
            self._types = {reader.key: reader.event_types for reader in await self._journal.read(read_readers)}
            self._version = catalog.version
        role = catalog.reader_roles.get(role_id)
        if role is None or role.service not in self._types:
            raise Refused(
                "the role is not a reader's",
                "make a reader by [[reader]], and a role with its name as service, in the bus file",
                code="not_a_reader",
            )
        return self._types[role.service]
