"""A worker that marks each item with its service."""

import argparse
import json
from typing import cast

from tests.support.bus import PASSWORD
from tests.torture.items import mark
from xbus.recipient import Event, Item, ServeOptions, Worker, run


class Marker(Worker):
    """Passes items on, marked.

    Args:
        service: the mark.
    """

    def __init__(self, service: str) -> None:
        self._service = service

    def on_item(self, event: Event, item: Item) -> bytes:
        return mark(item.data, self._service)


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    for name in ("--back", "--login", "--service", "--options"):
        parser.add_argument(name, required=True)
    given = parser.parse_args()
    run(Marker(given.service), given.back, given.login, PASSWORD, **cast(ServeOptions, json.loads(given.options)))


if __name__ == "__main__":
    main()
