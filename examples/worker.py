"""Writes the names of clients in capitals, and drops those without a name."""

import sys
from collections.abc import Iterator

from xbus.recipient import Event, Item, Worker, run


class Capitals(Worker):
    def on_item(self, event: Event, item: Item) -> Iterator[dict[str, str]]:
        if name := item.value["name"]:
            yield {"name": name.upper()}


if __name__ == "__main__":
    back_url = sys.argv[1] if len(sys.argv) > 1 else "tcp://127.0.0.1:4891"
    run(Capitals, back_url, login="worker_role", password="password")
