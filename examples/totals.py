"""A worker that makes one item of all items of an event, and refuses what it can't count."""

import sys

from xbus.recipient import Event, Item, Refusal, Worker, run


class Totals(Worker):
    def on_event_start(self, event: Event) -> None:
        event.state["clients"] = 0

    def on_item(self, event: Event, item: Item) -> None:
        if "name" not in item.value:
            raise Refusal("a client needs a name")
        event.state["clients"] += 1

    def on_event_end(self, event: Event) -> dict[str, str]:
        return {"name": f"{event.state['clients']} clients"}


if __name__ == "__main__":
    back_url = sys.argv[1] if len(sys.argv) > 1 else "tcp://127.0.0.1:4891"
    run(Totals, back_url, login="worker_role", password="password")
