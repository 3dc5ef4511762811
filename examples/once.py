"""Sends the orders of a day, once: killed at any moment, it may simply be run again."""

import sys

from xbus.emitter import Emitter

ORDERS = {"2026-11-21": ["apples", "pears"]}


def main(url: str = "tcp://127.0.0.1:1984", day: str = "2026-11-21") -> None:
    with Emitter(url, "test_emitter", "password") as emitter:
        with emitter.envelope(key=f"orders of {day}") as envelope, envelope.event("test_event") as event:
            for order in ORDERS[day]:
                event.send({"name": order})
        print("sealed at position", envelope.receipt.position)


if __name__ == "__main__":
    main(*sys.argv[1:])
