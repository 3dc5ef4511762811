"""Looks back at the orders of the log, and at those of one key; nobody notices."""

import sys

from xbus.reader import Reader


def main(url: str, login: str) -> None:
    with Reader(url, login) as reader:
        for batch in reader.at("oldest", types=["orders"]):
            for item in batch:
                event = item.event
                print(event.position, item.index, event.emitter, item.value["amount"])
        for batch in reader.for_key("client 7"):
            print(len(batch), "of client 7 up to", batch.end)


if __name__ == "__main__":
    main(url=sys.argv[1], login=sys.argv[2])
