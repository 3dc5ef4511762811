"""The ranges of the plots, and the samples of a range in parts of equal length."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, TypeAlias

from xbus.broker.journal.samples.keeping import floor
from xbus.broker.journal.samples.sample import Sample, join


class PlotRange(NamedTuple):
    """A range of time up to now.

    Args:
        step: the kind of samples that it is made of, in seconds.
        part: seconds of one value.
    """

    title: str
    length: timedelta
    step: int
    part: int

    def since(self, now: datetime) -> datetime:
        """Give the moment at which it begins."""
        return floor(now, self.part) - self.length

    def until(self, now: datetime) -> datetime:
        """Give the moment at which it ends: the end of the part that has begun."""
        return floor(now, self.part) + timedelta(seconds=self.part)


RangeName: TypeAlias = Literal["15min", "6h", "1d", "1w", "5w"]
"""The names that addresses have."""

RANGES: Mapping[RangeName, PlotRange] = {
    "15min": PlotRange("15 minutes", timedelta(minutes=15), 10, 15),
    "6h": PlotRange("6 hours", timedelta(hours=6), 60, 180),
    "1d": PlotRange("1 day", timedelta(days=1), 60, 900),
    "1w": PlotRange("1 week", timedelta(weeks=1), 900, 5400),
    "5w": PlotRange("5 weeks", timedelta(weeks=5), 5400, 27_000),
}
USUAL: RangeName = "15min"


class RangePart(NamedTuple):
    """A part of a range; ``sample`` is None where no monitor ran."""

    began_at: datetime
    ended_at: datetime
    sample: Sample | None


def parts_of(samples: Sequence[Sample], range_: PlotRange, now: datetime) -> Iterator[RangePart]:
    """Cut a range into parts of equal length, each with what the samples of its time came to together.

    A sample that is longer than a part fills all parts whose middle lies in it.
    """
    since, length = range_.since(now), timedelta(seconds=range_.part)
    found: defaultdict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        if sample.observed:
            first, last = (sample.began_at - since) / length, (sample.ended_at - since) / length
            middles = range(round(first), round(last))
            for number in {int((first + last) // 2), *middles}:
                found[number].append(sample)
    for number in range(round((range_.until(now) - since) / length)):
        began_at = since + number * length
        joined = join(found[number], range_.part, began_at) if number in found else None
        yield RangePart(began_at, began_at + length, joined)
