"""Saves the files that come over the bus in a folder, under the names that their senders gave them."""

import sys
from pathlib import Path

from xbus.recipient import Consumer, Envelope, Event, run


class Files(Consumer):
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_event_start(self, event: Event) -> None:
        event.save(self.folder)

    def commit(self, envelope: Envelope) -> None:
        for file in envelope.files:
            print("saved:", file.path.name, file.path.stat().st_size, "bytes", flush=True)


if __name__ == "__main__":
    back_url = sys.argv[2] if len(sys.argv) > 2 else "tcp://127.0.0.1:4891"
    run(Files(Path(sys.argv[1])), back_url, login="consumer_role", password="password")
