"""Finds the clearing databases that consumers announce, and reads what waits there for a person."""

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace

from xbus.admin.objects import JsonObject, fields_of
from xbus.admin.repair.payload import Payload
from xbus.broker.journal.database.clearing_items import ClearingItem, read_clearing_items
from xbus.errors import Failed, JournalUnavailable, Refused, XbusError
from xbus.rpc.codec import Key, Value

UNREADABLE = "clearing_unreadable"


@dataclass(frozen=True, slots=True)
class ClearingDatabase:
    """The clearing database of a consumer.

    Args:
        consumer: the name that the consumer gives itself.
        url: its address, without a password.
        request_types: the event types by which the consumer answers requests, sorted.
    """

    consumer: str
    url: str
    request_types: tuple[str, ...]

    def read(self, state: str | None, before: int | None, limit: int) -> list[ClearingItem]:
        """Read its items, the newest first; the arguments are those of ``read_clearing_items``.

        Raises:
            Failed: it can't be reached now (``clearing_unreadable``).
            Refused: it is of another kind, or has other tables (``clearing_unreadable``).
        """
        try:
            return read_clearing_items(self.url, state, before, limit)
        except JournalUnavailable as error:
            raise Failed(self._unread(error), UNREACHED, code=UNREADABLE) from error
        except XbusError as error:
            raise Refused(self._unread(error), UNREACHED, code=UNREADABLE) from error

    def _unread(self, error: XbusError) -> str:
        return f"the clearing database of {self.consumer} at {self.url} can't be read ({error.cause})"


UNREACHED = (
    "see that it runs, that this machine reaches it, and that ~/.pgpass or PGPASSWORD has its password; a path is that "
    "of the consumer's machine"
)


def clearing_databases(
    consumers: Iterable[tuple[Mapping[Key, Value], Mapping[Key, Value]]], request_type: str | None
) -> Iterator[ClearingDatabase]:
    """Find the databases that consumers announce.

    Args:
        consumers: their metadata and features, as the front shows them to an emitter.
        request_type: only of the consumer that answers requests of this event type; None for all.
    """
    for metadata, features in consumers:
        match features:
            case {"clearing": [True, str(url)], "immediate_reply": [True, [*types]]}:
                names = tuple(sorted(map(str, types)))
                if request_type is None or request_type in names:
                    yield ClearingDatabase(str(metadata.get("name", "a consumer")), url, names)


@dataclass(frozen=True, slots=True)
class ClearingList:
    """Items of all clearing databases.

    Args:
        items: each with its database.
        errors: of the databases that can't be read.
        below: the id below which the list goes on; None at its end. Each database has ids of its own, so items of the
            one that is behind come twice.
    """

    items: list[tuple[ClearingItem, ClearingDatabase]]
    errors: list[XbusError]
    below: int | None

    def shown(self, secrets: Mapping[str, Set[str]]) -> list[tuple[ClearingItem, ClearingDatabase, Payload]]:
        """Give each item with its database and its value, which hides the secret fields of its type."""
        return [
            (item, database, Payload.of(item.data, secrets.get(item.type or "", frozenset())))
            for item, database in self.items
        ]


def of_clearing_item(item: ClearingItem, value: Value, database: ClearingDatabase) -> JsonObject:
    """Give what a program reads of an item, with its value as people may see it."""
    found = fields_of(item, "data", id="item_id")
    return {**found, "value": value, "consumer": database.consumer, "request_types": database.request_types}


def read_all(databases: Iterable[ClearingDatabase], state: str | None, before: int | None, limit: int) -> ClearingList:
    """Read the items of several databases, the newest of each first; the arguments are those of ``read``."""
    found = ClearingList([], [], None)
    unfinished: list[int] = []
    for database in databases:
        try:
            items = database.read(state, before, limit)
        except XbusError as error:
            found.errors.append(error)
            continue
        found.items.extend((item, database) for item in items)
        if len(items) == limit:
            unfinished.append(items[-1].id)
    return replace(found, below=max(unfinished, default=None))
