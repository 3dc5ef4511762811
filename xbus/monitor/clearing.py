"""Asks the consumers that keep items for a person, through the bus, as the emitter of ``[monitor] clearing_login``.

Details and clearing are envelopes of that emitter; the list is read in the clearing databases that consumers announce.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from xbus.admin.clearing_databases import ClearingDatabase, clearing_databases
from xbus.broker.journal.database.clearing_items import ClearingItem
from xbus.config import Config
from xbus.config.reaching import reachable
from xbus.emitter import Emitter
from xbus.errors import Refused, XbusError
from xbus.rpc.codec import Key, Value
from xbus.rpc.curve import read_password

ANSWER_SECONDS = 5.0
"""Seconds to wait for the broker and for a consumer. More keep a thread from other pages, fewer fail under load."""


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
        unfinished: list[int] = []
        for database in databases:
            try:
                found = database.read(state, before, limit)
            except XbusError as error:
                errors.append(error)
                continue
            items += [(item, database) for item in found]
            if len(found) == limit:
                unfinished.append(found[-1].id)
        return ClearingList(items, errors, max(unfinished, default=None))

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
            pause_seconds=ANSWER_SECONDS,
        )
