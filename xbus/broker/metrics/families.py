"""Families of metrics as values: a name, a meaning, and a sample for each set of labels; pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from xbus.broker.counts import Histogram

Labels: TypeAlias = Mapping[str, str]


class MetricKind(StrEnum):
    """The behaviour of a family's values."""

    COUNTER = "counter"
    """It only rises, until the process ends."""
    GAUGE = "gauge"
    """It rises and falls."""
    INFO = "info"
    """The labels are all that counts."""
    HISTOGRAM = "histogram"
    """Counts by size."""


@dataclass(frozen=True, slots=True)
class Family:
    """A family, which is shown also while it has no samples.

    Args:
        name: as Prometheus wants it: with the unit at its end, and without ``_total``.
        about: its meaning, a sentence without a full stop.
        samples: labels and value.
        histogram: the counts of a family of that kind.
    """

    name: str
    kind: MetricKind
    about: str
    samples: list[tuple[Labels, float]] = field(default_factory=list)
    histogram: Histogram | None = None


def counter(name: str, about: str, samples: Iterable[tuple[Labels, float]]) -> Family:
    """Make a family whose values only rise."""
    return Family(name, MetricKind.COUNTER, about, list(samples))


def gauge(name: str, about: str, samples: Iterable[tuple[Labels, float]]) -> Family:
    """Make a family whose values rise and fall."""
    return Family(name, MetricKind.GAUGE, about, list(samples))


def one(value: float) -> list[tuple[Labels, float]]:
    """Make the samples of a family without labels."""
    return [({}, value)]


def age(since: datetime | None, now: datetime) -> float:
    """Give the seconds since a moment; 0 without one, and for one that a clock of another machine puts ahead."""
    return 0.0 if since is None else max(0.0, (now - since).total_seconds())
