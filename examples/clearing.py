"""A consumer with data clearing: clients that it can't understand wait in its database until a person clears them."""

import sys
from typing import Any, ClassVar

from examples.clearing_store import FIELDS, ClearingStore
from xbus.recipient import Consumer, Envelope, Event, Item, Refusal, run


class Clients(Consumer):
    """Stores clients, and answers what a monitor asks about those that it could not store.

    Args:
        database_url: of the database for both.
    """

    immediate_reply: ClassVar[tuple[str, ...]] = ("data_clearing",)

    def __init__(self, database_url: str) -> None:
        self.clearing = database_url

    def on_start(self) -> None:
        self._store = ClearingStore(self.clearing)

    def on_event_start(self, event: Event) -> None:
        event.state["comes_again"] = self._store.has_taken(event.envelope.id)
        event.state["replies"] = []

    def on_item(self, event: Event, item: Item) -> None:
        if event.state["comes_again"]:
            return
        if event.type_name in self.immediate_reply:
            event.state["replies"].append(self._answer(item.value))
        elif not isinstance(item.value, dict):
            raise Refusal("a client is a map from names to values")
        elif is_client(item.value):
            self._store.put_client(item.value)
        else:
            self._store.keep(event.id, item.value)

    def on_event_end(self, event: Event) -> list[dict[str, Any]]:
        replies: list[dict[str, Any]] = event.state["replies"]
        return replies

    def commit(self, envelope: Envelope) -> None:
        self._store.commit(envelope.id)

    def rollback(self, envelope: Envelope) -> None:
        self._store.rollback()

    def on_stop(self) -> None:
        self._store.close()

    def _answer(self, request: Any) -> dict[str, Any]:
        match request:
            case {"action": "get_item_details", "item_id": int(item_id)}:
                return self._details(item_id)
            case {"action": "clear_item" | "clear_items", "item_id": int(item_id), "values": dict(values)}:
                self._clear(item_id, values)
                return self._details(item_id)
        raise Refusal(
            f"{request!r:.200} is no request: get_item_details has an item_id, a number; "
            "clear_item has values besides, a map"
        )

    def _details(self, item_id: int) -> dict[str, Any]:
        if (details := self._store.details(item_id)) is None:
            raise Refusal(f"there is no item {item_id}")
        return details

    def _clear(self, item_id: int, values: dict[str, Any]) -> None:
        details = self._details(item_id)
        if details["state"] == "cleared":
            raise Refusal(f"item {item_id} was cleared before")
        if unknown := [name for name in values if name not in FIELDS]:
            raise Refusal(f"a client has no {unknown[0]}")
        client = {**details["source_data"], **values}
        if not is_client(client):
            raise Refusal("a client has a number, a name, and an e-mail address with an @")
        self._store.clear(item_id, client)
        self._store.put_client(client)


def is_client(fields: dict[str, Any]) -> bool:
    """Whether these are the fields of a client."""
    match {**dict.fromkeys(FIELDS), **fields}:
        case {"number": int(), "name": None | str(), "email": str(email)}:
            return "@" in email
    return False


if __name__ == "__main__":
    database_url = sys.argv[1] if len(sys.argv) > 1 else "sqlite:///clearing.db"
    back_url = sys.argv[2] if len(sys.argv) > 2 else "tcp://127.0.0.1:4891"
    run(Clients(database_url), back_url, login="clients_1", password="password")
