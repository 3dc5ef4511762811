"""The pictures of the page, as SVG by their names."""

from collections.abc import Iterator, Mapping

from benchmarks.report.charts import Bar, draw
from benchmarks.report.figures import Figure, Figures
from benchmarks.report.peers import ALONE, OURS, SCENARIOS, in_words

SMALL = ("small_1", "small_10", "small_100", "small_100_emitters")
COSTS = (*SMALL, "small_old_1", "small_old_100", "worker", "fan_out")


def pictures(found: Figures) -> Mapping[str, str]:
    """Draw all pictures of which there are figures."""
    return dict(_drawn(found))


def _drawn(found: Figures) -> Iterator[tuple[str, str]]:
    if rates := list(_rates(found)):
        title = "Envelopes of one item of 200 bytes, a second"
        yield "small.svg", draw(title, "dark: acknowledged, pale: delivered to a consumer", rates)
    if costs := list(_costs(found)):
        yield "cpu.svg", draw("The broker's processor time for an envelope, ms", "less is better", costs)
    for scenario in SCENARIOS:
        if delivered := list(_delivered(found, scenario)):
            title = f"Messages of 200 bytes delivered a second, {in_words(scenario)}"
            yield f"{scenario}.svg", draw(title, "blue: the bus", delivered)
    if latencies := list(_latencies(found)):
        title = "Milliseconds from sender to taker, one message after another"
        yield "peers_latency.svg", draw(title, "the median, less is better; blue: the bus", latencies)


def _delivered(found: Figures, scenario: str) -> Iterator[Bar]:
    for figure in sorted(found.of(scenario), key=lambda one: -one.numbers["delivered_per_s"]):
        yield Bar(figure.place, figure.numbers["delivered_per_s"], _kind(figure))


def _latencies(found: Figures) -> Iterator[Bar]:
    for figure in sorted(found.of(ALONE), key=lambda one: one.numbers["delivered_p50_ms"]):
        yield Bar(figure.place, figure.numbers["delivered_p50_ms"], _kind(figure))


def _kind(figure: Figure) -> str:
    return "ours" if figure.place.startswith(OURS) else "other"


def _rates(found: Figures) -> Iterator[Bar]:
    for scenario in SMALL:
        for figure in found.of(scenario):
            name = f"{scenario}, {figure.place}"
            yield Bar(name, figure.numbers["value"])
            yield Bar("", figure.numbers["delivered_per_s"], "paler")


def _costs(found: Figures) -> Iterator[Bar]:
    for scenario in COSTS:
        for figure in found.of(scenario):
            yield Bar(f"{scenario}, {figure.place}", figure.numbers["broker_cpu_ms"])
