"""Another consumer: counts the delays of each airline."""

import csv
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from xbus.recipient import Consumer, Envelope, Event, Item


@dataclass
class Delays:
    """What became of one airline's departures.

    Attributes:
        airline: its name.
        flights: how many left.
        late: how many of them left after their time.
        minutes: how much later they left, together.
    """

    airline: str
    flights: int = 0
    late: int = 0
    minutes: int = 0

    def count(self, dep_delay: int) -> None:
        """Count one departure, so many minutes after its time; below 0 is before it."""
        self.flights += 1
        if dep_delay > 0:
            self.late += 1
            self.minutes += dep_delay


class DelayCounter(Consumer):
    """Counts while the envelope comes, and writes when all of it is there: one file per envelope.

    An envelope that comes again is counted again, from nothing, to the same file.
    """

    def on_event_start(self, event: Event) -> None:
        event.envelope.state.setdefault("delays", {})

    def on_item(self, event: Event, item: Item) -> None:
        delays: dict[str, Delays] = event.envelope.state["delays"]
        value: dict[str, Any] = item.value
        if event.type_name == "airlines":
            delays[value["carrier"]] = Delays(value["name"])
        else:
            delays[value["carrier"]].count(value["dep_delay"])

    def commit(self, envelope: Envelope) -> None:
        complete = file_of(envelope.id)
        part = complete.with_suffix(".part")
        with part.open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(("airline", "flights", "late", "minutes"))
            rows.writerows(astuple(delays) for delays in envelope.state["delays"].values())
        part.replace(complete)


def file_of(envelope_id: str) -> Path:
    """Where the delays of an envelope are, in the folder that the consumer runs in."""
    return Path(f"delays-{envelope_id}.csv")
