"""Counts under the names of Routemaster's metrics, and gives its gauges; pure.

The source of the names is the documentation of deliveroo/routemaster, "Metrics", and its server. All of them begin with
``routemaster``.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from xbus.rpc.messages.subscriptions import SubscriptionHealthMap

PREFIX = "routemaster"
QUEUE = "main"
"""The one queue of jobs: a batch that waits for its call."""

Tags: TypeAlias = tuple[tuple[str, str], ...]


class Gauge(NamedTuple):
    """A figure of one moment."""

    name: str
    tags: Tags
    value: float


class RoutemasterCounters:
    """The counts of this gateway since it began, by name and tags."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, Tags]] = Counter()

    def began(self, kind: str) -> None:
        """Count the start of a part of the gateway: ``web``, or ``worker`` for callbacks."""
        self._add("process", 1, status="start", type=kind)

    def ended(self, kind: str) -> None:
        """Count the orderly end of a part."""
        self._add("process", 1, status="stop", type=kind)

    def pushed(self, topic: str) -> None:
        """Count an event that a publisher pushed."""
        self._add("events.published", 1, topic=topic)

    def handed_out(self, subscriber: str, events: int, waited: float) -> None:
        """Count the first call with a batch.

        Args:
            events: that are in it.
            waited: seconds since the first of them was sealed.
        """
        self._add("events.added", events, subscriber=subscriber)
        self._add("latency.batches.count", 1, subscriber=subscriber)
        self._add("latency.batches.first_attempt", _milliseconds(waited), subscriber=subscriber)

    def called(self, subscriber: str, events: int, seconds: float, waited: float, *, is_taken: bool) -> None:
        """Count a call.

        Args:
            events: that are in its batch.
            seconds: that the call took.
            waited: seconds from the seal of the first event to the call.
        """
        tags = {"status": "success" if is_taken else "failure", "subscriber": subscriber}
        took = _milliseconds(seconds)
        self._add("delivery.events", events, **tags)
        self._add("delivery.batches", 1, **tags)
        self._add("delivery.time", took, **tags)
        self._add("delivery.time2", took * took, **tags)
        if is_taken:
            self._add("events.removed", events, subscriber=subscriber)
            self._add("latency.batches.last_attempt", _milliseconds(waited), subscriber=subscriber)

    def dropped(self, subscriber: str, events: int) -> None:
        """Count events that a subscriber was made to do without."""
        if events:
            self._add("events.autodropped", events, subscriber=subscriber)
            self._add("events.removed", events, subscriber=subscriber)

    def _add(self, name: str, number: int, **tags: str) -> None:
        self.counts[name, tuple(sorted(tags.items()))] += number


def gauges(found: Sequence[SubscriptionHealthMap]) -> Iterator[Gauge]:
    """Give the gauges of subscriptions.

    The bus makes a batch when it calls. So those that wait are as many as the waiting events fill.
    """
    jobs = {"instant": 0, "scheduled": 0}
    for each in found:
        batches = -(-each["events"] // each["batch_events"])
        tags = (("subscriber", each["name"]),)
        yield Gauge("subscriber.queue.events", tags, each["events"])
        yield Gauge("subscriber.queue.batches", tags, batches)
        jobs["scheduled" if each["failures"] else "instant"] += batches
    for status, number in jobs.items():
        yield Gauge("jobs.count", (("queue", QUEUE), ("status", status)), number)


def _milliseconds(seconds: float) -> int:
    return max(0, round(seconds * 1000))
