"""Prints the clients that come over the bus."""

import sys

from xbus.recipient import Consumer, Event, Item, run


class Clients(Consumer):
    def on_item(self, event: Event, item: Item) -> None:
        print("client:", item.value["name"], flush=True)


if __name__ == "__main__":
    back_url = sys.argv[1] if len(sys.argv) > 1 else "tcp://127.0.0.1:4891"
    run(Clients, back_url, login="consumer_role", password="password")
