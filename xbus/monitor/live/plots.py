"""Makes the plots: what came and how far the roles were behind, of the whole bus and of one role."""

from collections.abc import Callable, Sequence
from datetime import datetime

from xbus.broker.journal.samples.sample import Delivered, RoleLag, Sample
from xbus.monitor.drawings.plot import LinePlot, PlotValue, plot
from xbus.monitor.drawings.scales import NUMBER, SECONDS, number_text
from xbus.monitor.live.ranges import PlotRange, RangePart, parts_of

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
