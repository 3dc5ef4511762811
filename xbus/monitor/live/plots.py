"""Makes the plots of the home page: what came, and how far the roles were behind."""

from collections.abc import Sequence
from datetime import datetime

from xbus.broker.journal.samples.sample import Sample
from xbus.monitor.drawings.plot import LinePlot, PlotValue, plot
from xbus.monitor.drawings.scales import NUMBER, SECONDS, number_text
from xbus.monitor.live.ranges import PlotRange, parts_of


def draw_plots(samples: Sequence[Sample], range_: PlotRange, now: datetime) -> list[LinePlot]:
    """Draw the samples of a range."""
    parts = [*parts_of(samples, range_, now)]
    since, until = range_.since(now), range_.until(now)
    received, late, lacking = [], [], []
    for began_at, ended_at, sample in parts:
        span = began_at, ended_at
        if sample is None:
            nothing = PlotValue(*span, None)
            received.append(nothing)
            late.append(nothing)
            lacking.append(nothing)
            continue
        seconds = sample.observed
        counts = (
            f"{number_text(sample.events / seconds)} events/s, {number_text(sample.envelopes / seconds)} envelopes/s"
        )
        received.append(PlotValue(*span, sample.items / seconds, counts))
        late.append(PlotValue(*span, sample.lag_seconds))
        lacking.append(PlotValue(*span, sample.lag, f"{sample.parked:,} parked"))
    return [
        plot("received", "Items received each second", NUMBER, received, since, until),
        plot("late", "Age of the oldest envelope that a role lacks", SECONDS, late, since, until),
        plot("lacking", "Envelopes that roles lack", NUMBER, lacking, since, until),
    ]
