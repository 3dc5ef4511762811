"""The ranges of plots, and the plots: what came and how far the roles were behind, of the bus and of one role."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, TypeAlias

from xbus.broker.journal.samples.keeping import floor
from xbus.broker.journal.samples.sample import Delivered, RoleLag, Sample, join
from xbus.monitor.drawings.plot import NUMBER, SECONDS, LinePlot, PlotValue, number_text, plot


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


NO_LAG = RoleLag(0, 0.0, 0)
NONE_DELIVERED = Delivered(0, 0)


def draw_plots(samples: Sequence[Sample], range_: PlotRange, now: datetime) -> list[LinePlot]:
    """Draw the samples of a range."""
    parts = [*parts_of(samples, range_, now)]
    since, until = range_.since(now), range_.until(now)
    received = _values(parts, lambda it: (it.items / it.observed, _rates(it)))
    late = _values(parts, lambda it: (it.lag_seconds, ""))
    lacking = _values(parts, lambda it: (it.lag, f"{it.parked:,} parked"))
    return [
        plot("received", "Items received each second", NUMBER, received, since, until),
        plot("late", "Age of the oldest envelope that a role lacks", SECONDS, late, since, until),
        plot("lacking", "Envelopes that roles lack", NUMBER, lacking, since, until),
    ]


def draw_role_plots(samples: Sequence[Sample], role_id: int, range_: PlotRange, now: datetime) -> list[LinePlot]:
    """Draw what was delivered to a role in a range, and how far it was behind."""
    parts = [*parts_of(samples, range_, now)]
    since, until = range_.since(now), range_.until(now)

    def delivered(sample: Sample) -> tuple[float, str]:
        number = sample.delivered.get(role_id, NONE_DELIVERED)
        return number.items / sample.observed, f"{number_text(number.envelopes / sample.observed)} envelopes/s"

    def lag(sample: Sample) -> RoleLag:
        return sample.roles.get(role_id, NO_LAG)

    brought = _values(parts, delivered)
    late = _values(parts, lambda it: (lag(it).lag_seconds, ""))
    lacking = _values(parts, lambda it: (lag(it).lag, f"{lag(it).parked:,} parked"))
    return [
        plot("delivered", "Items delivered each second", NUMBER, brought, since, until),
        plot("late", "Age of the oldest envelope that it lacks", SECONDS, late, since, until),
        plot("lacking", "Envelopes that it lacks", NUMBER, lacking, since, until),
    ]


def _values(parts: Sequence[RangePart], of_sample: Callable[[Sample], tuple[float, str]]) -> list[PlotValue]:
    """Make a value of each part, with more words about it; a part in which no monitor ran has none."""
    return [
        PlotValue(began_at, ended_at, *((None, "") if sample is None else of_sample(sample)))
        for began_at, ended_at, sample in parts
    ]


def _rates(sample: Sample) -> str:
    events, envelopes = sample.events / sample.observed, sample.envelopes / sample.observed
    return f"{number_text(events)} events/s, {number_text(envelopes)} envelopes/s"
