"""Sends three clients to the bus, as one envelope that arrives as a whole or not at all."""

import sys

from xbus.emitter import Emitter


def main(url: str = "tcp://127.0.0.1:1984") -> None:
    with Emitter(url, "test_emitter", "password") as emitter:
        with emitter.envelope() as envelope, envelope.event("test_event") as event:
            for name in ("Ada", "Grace", "Edsger"):
                event.send({"name": name})
        print("sealed at position", envelope.receipt.position)


if __name__ == "__main__":
    main(*sys.argv[1:])
