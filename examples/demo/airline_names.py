"""The worker: adds the airline's name to each flight, and drops the flights that were cancelled."""

from typing import Any

from xbus.recipient import Event, Item, Refusal, Worker


class AirlineNames(Worker):
    """Learns the airlines from the event before that of the flights: events of an envelope come in their order.

    What it has learned is kept with the envelope, so that another attempt at it starts from nothing again. One role
    alone provides this service: of several, each event might go to another one.
    """

    def on_event_start(self, event: Event) -> None:
        event.envelope.state.setdefault("names", {})

    def on_item(self, event: Event, item: Item) -> Any:
        names: dict[str, str] = event.envelope.state["names"]
        if event.type_name == "airlines":
            names[item.value["carrier"]] = item.value["name"]
            return item
        return self._flight(names, item.value)

    def _flight(self, names: dict[str, str], flight: dict[str, Any]) -> dict[str, Any] | None:
        if flight["dep_time"] is None:
            return None
        if flight["carrier"] not in names:
            raise Refusal(f"no airline has the code {flight['carrier']}")
        flight["airline"] = names[flight["carrier"]]
        return flight
