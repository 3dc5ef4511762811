"""Sends a file, in pieces."""

import sys

from xbus.emitter import Emitter


def main(path: str, url: str = "tcp://127.0.0.1:1984") -> None:
    with Emitter(url, "test_emitter", "password") as emitter:
        with emitter.envelope() as envelope, envelope.event("test_event") as event:
            event.send_file(path)
        print("sealed at position", envelope.receipt.position)


if __name__ == "__main__":
    main(*sys.argv[1:])
