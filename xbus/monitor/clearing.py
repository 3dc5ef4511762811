"""Asks the consumers that keep items for a person, through the bus, as the emitter of ``[monitor] clearing_login``.

Details and clearing are envelopes of that emitter; the list is read in the clearing databases that consumers announce.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from xbus.admin.address import reachable
from xbus.admin.clearing_databases import ClearingDatabase, clearing_databases
from xbus.admin.repair.masking import mask
from xbus.broker.journal.database.clearing_items import ClearingItem
from xbus.config import Config
from xbus.emitter import Emitter
from xbus.errors import Refused, XbusError
from xbus.rpc.codec import Key, Value
from xbus.rpc.curve import read_password

ANSWER_SECONDS = 5.0
"""Seconds to wait for the broker and for a consumer. More keep a thread from other pages, fewer fail under load."""

DATA_OF_REPLY = ("source_data", "current_data", "out_data")
"""The keys of details under which a consumer shows an item."""


@dataclass(frozen=True, slots=True)
class ClearingList:
    """Items of all clearing databases, with the database of each, and the errors of those that can't be read."""

    items: list[tuple[ClearingItem, ClearingDatabase]]
    errors: list[XbusError]


class ClearingDesk:
    """Finds, shows and clears items; blocks, and opens a connection of its own each time.

    Args:
        config: names the front, and the emitter that asks.
    """

    def __init__(self, config: Config) -> None:
        self._config = config

    @property
    def is_open(self) -> bool:
        """True if the configuration names an emitter that asks."""
        return bool(self._config.monitor.clearing_login)

    def list_items(self, state: str | None, request_type: str | None, before: int | None, limit: int) -> ClearingList:
        """List items of all consumers, the newest of each first.

        Args:
            state: one of ``CLEARING_STATES``; None for all.
            request_type: only of the consumer that answers requests of this event type; None for all.
            before: an id; only items below it.
            limit: the most items of one consumer.

        Raises:
            Refused: the emitter may not log in.
            Failed: the broker does not answer.
        """
        with self._emitter() as emitter:
            databases = list(clearing_databases(emitter.consumers(timeout=ANSWER_SECONDS), request_type))
        items: list[tuple[ClearingItem, ClearingDatabase]] = []
        errors: list[XbusError] = []
        for database in databases:
            try:
                items += [(item, database) for item in database.read(state, before, limit)]
            except XbusError as error:
                errors.append(error)
        return ClearingList(items, errors)

    def details(self, request_type: str, item_id: int) -> list[Value]:
        """Ask a consumer for the details of an item.

        Raises:
            Refused: the consumer refuses (``reply_refused``), or the emitter may not ask so.
            Failed: no reply comes.
        """
        return self._ask(request_type, {"action": "get_item_details", "item_id": item_id})

    def clear(self, request_type: str, item_id: int, values: Mapping[Key, Value]) -> list[Value]:
        """Give a consumer the values of an item; its answer has the item's new details.

        Raises:
            Refused: the consumer refuses (``reply_refused``): nothing has changed.
            Failed: no reply comes: nothing has changed.
        """
        return self._ask(request_type, {"action": "clear_item", "item_id": item_id, "values": dict(values)})

    def _ask(self, request_type: str, request: Mapping[str, object]) -> list[Value]:
        with self._emitter() as emitter:
            reply = emitter.ask(request_type, request, timeout=ANSWER_SECONDS)
        return list(reply) if isinstance(reply, list | tuple) else [reply]

    def _emitter(self) -> Emitter:
        monitor = self._config.monitor
        if not self.is_open:
            raise Refused(
                "the monitor has no emitter that asks consumers",
                "give [monitor] clearing_login and clearing_password_file, as docs/clearing.md says",
                code="no_clearing_login",
            )
        front = reachable(self._config.zmq.frontsocket, "front")
        return Emitter(
            front,
            monitor.clearing_login,
            "" if monitor.clearing_password_file is None else read_password(monitor.clearing_password_file),
            answer_seconds=ANSWER_SECONDS / 2,
            retry_seconds=ANSWER_SECONDS,
        )


def without_secrets(details: Iterable[Value], fields: Iterable[str]) -> list[Value]:
    """Hide secret fields of items in the details that a consumer gives.

    Args:
        fields: the secret fields of all types: the details do not say of which type their item is.
    """
    paths: Set[str] = {f"{key}.{field}" for field in fields for key in DATA_OF_REPLY}
    return [mask(each, paths) for each in details]
