"""Asks a consumer what it knows of an item that it could not understand, and waits for the reply."""

import sys

from xbus.emitter import Emitter
from xbus.errors import CallError


def main(item_id: str, url: str = "tcp://127.0.0.1:1984") -> None:
    with Emitter(url, "shop_1", "password") as emitter:
        try:
            reply = emitter.ask("data_clearing", {"action": "get_item_details", "item_id": int(item_id)})
        except CallError as error:
            print("no reply:", error.code, "-", error.cause)
            return
    match reply:
        case [{"id": number, "state": state}]:
            print("item", number, "is", state)
        case _:
            print("a reply of another form:", reply)


if __name__ == "__main__":
    main(*sys.argv[1:])
