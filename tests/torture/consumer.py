"""A consumer that writes down what it commits, all or nothing, in a file that outlives it."""

import argparse
import json
import logging
import random
import time
from pathlib import Path
from typing import Any, cast

from tests.support.bus import PASSWORD
from tests.torture.history import Log, runs_of
from tests.torture.items import read, reply_to
from xbus.recipient import Batch, Consumer, Envelope, Event, ServeOptions, run

MOST_STRANGE = 3
"""How many strange items of an event are kept."""


class Registrations(logging.Handler):
    """Notes when the program registered last: the broker that it registered at hands out all that comes.

    Attributes:
        last: when that was, in seconds; 0 before the first time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.last = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "action", "") == "recipient_registered":
            self.last = time.monotonic()

    def listen(self) -> None:
        """Note registrations from now on."""
        logging.basicConfig()
        logger = logging.getLogger("xbus.recipient.registration")
        logger.setLevel(logging.INFO)
        logger.addHandler(self)


class Book(Consumer):
    """Keeps the events of an envelope with it, and writes them in ``commit``.

    Args:
        log: the file.
        registrations: of this program.
        paths: by event type the workers by which its items come.
        pause: how long it takes for an envelope at the most, in seconds.
    """

    def __init__(self, log: Log, registrations: Registrations, paths: dict[str, list[str]], pause: float) -> None:
        self._log = log
        self._registrations = registrations
        self._paths = paths
        self._pause = pause
        self._chance = random.Random()

    def on_event_start(self, event: Event) -> None:
        event.envelope.state.setdefault("begun", time.monotonic())
        event.envelope.state.setdefault("events", []).append(event)
        event.state.update(ref="", indices=[], strange=[])

    def on_batch(self, event: Event, batch: Batch) -> None:
        for data in batch.data:
            self._take(event.state, data, self._paths.get(event.type_name, []))

    def commit(self, envelope: Envelope) -> None:
        time.sleep(self._chance.uniform(0, self._pause))
        events = [
            (
                event.type_name,
                event.state["ref"],
                runs_of(event.state["indices"]),
                event.state["strange"],
                dict(event.headers),
            )
            for event in envelope.state["events"]
        ]
        begun, registered = envelope.state["begun"], self._registrations.last
        self._log.write(id=envelope.id, begun=begun, registered=registered, events=events)

    @staticmethod
    def _take(state: dict[str, Any], data: bytes, path: list[str]) -> None:
        found = read(data, path)
        ref, index = found or ("", 0)
        state["ref"] = state["ref"] or ref
        if found is not None and ref == state["ref"]:
            state["indices"].append(index)
        elif len(state["strange"]) < MOST_STRANGE:
            state["strange"].append(repr(data[:100]))


class Books(Book):
    """The same with several envelopes open at once; it answers questions too."""

    envelopes = 4
    immediate_reply = ("questions",)

    def on_event_end(self, event: Event) -> Any:
        return reply_to(event.state["ref"], len(event.state["indices"]))


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    for name in ("--back", "--login", "--log", "--paths", "--pause", "--options"):
        parser.add_argument(name, required=True)
    parser.add_argument("--several", action="store_true")
    given = parser.parse_args()
    kind = Books if given.several else Book
    registrations = Registrations()
    registrations.listen()
    book = kind(Log(Path(given.log)), registrations, json.loads(given.paths), float(given.pause))
    run(book, given.back, given.login, PASSWORD, **cast(ServeOptions, json.loads(given.options)))


if __name__ == "__main__":
    main()
