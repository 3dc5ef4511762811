"""Sends although the bus may be away: what it has to say waits in a file."""

import sys

from xbus.emitter import Emitter


def main(url: str = "tcp://127.0.0.1:1984") -> None:
    with Emitter(url, "test_emitter", "password", outbox="orders.outbox", outbox_seconds=1) as emitter:
        with emitter.envelope() as envelope, envelope.event("test_event") as event:
            event.send({"name": "Ada"})
        print("queued:", envelope.queued)


if __name__ == "__main__":
    main(*sys.argv[1:])
