"""Writes families in the forms that Prometheus reads; the only place that knows prometheus_client."""

import hashlib
import re
from collections.abc import Iterable, Iterator

from prometheus_client import ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from xbus.broker.counts import Histogram
from xbus.broker.metrics.families import Family, Labels, MetricKind

LONGEST_LABEL = 255
"""The most characters of a label's value. Names are no longer, unless somebody edited them in their table."""

MOST_SAMPLES = 5_000
"""The most samples of a family. More would cost Prometheus and every scrape more than they tell anybody."""

_SURROGATE = re.compile("[\ud800-\udfff]")
"""Halves of characters, which no encoding has; only an edit by SQL could bring them into a name."""

LEFT_OUT = "xbus_left_out_samples"

_FAMILIES = {
    MetricKind.COUNTER: CounterMetricFamily,
    MetricKind.GAUGE: GaugeMetricFamily,
    MetricKind.INFO: InfoMetricFamily,
}


class Exposition(Collector):
    """Some families as prometheus_client wants them, with those of the operating system's process.

    Args:
        families: at one moment.
    """

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = list(families)

    def collect(self) -> Iterator[Metric]:
        """Give all families, and how many samples were left out."""
        yield from ProcessCollector(registry=None).collect()
        left_out = 0
        for family in self._families:
            left_out += max(0, len(family.samples) - MOST_SAMPLES)
            yield _metric(family)
        yield GaugeMetricFamily(LEFT_OUT, f"Samples left out, as a family has {MOST_SAMPLES} at the most", left_out)

    def write(self, accept: str) -> tuple[bytes, str]:
        """Write all in the form that a client asks for, OpenMetrics or the older text; returns it with its type."""
        encode, content_type = choose_encoder(accept)
        return encode(self), content_type


def _metric(family: Family) -> Metric:
    if family.histogram is not None:
        return _counted(family.name, family.about, family.histogram)
    metric: Metric = _FAMILIES[family.kind](family.name, family.about)
    suffix = {MetricKind.COUNTER: "_total", MetricKind.INFO: "_info"}.get(family.kind, "")
    for labels, value in family.samples[:MOST_SAMPLES]:
        metric.add_sample(family.name + suffix, _short(labels), value)
    return metric


def _counted(name: str, about: str, histogram: Histogram) -> Metric:
    upto = 0
    buckets: list[tuple[str, float]] = []
    bounds = [*map(str, map(float, histogram.bounds)), "+Inf"]
    for bound, count in zip(bounds, histogram.counts, strict=True):
        upto += count
        buckets.append((bound, upto))
    return HistogramMetricFamily(name, about, buckets, histogram.sum)


def _short(labels: Labels) -> dict[str, str]:
    return {name: value if _fits(value) else _cut(value) for name, value in labels.items()}


def _fits(value: str) -> bool:
    return len(value) <= LONGEST_LABEL and (value.isascii() or not _SURROGATE.search(value))


def _cut(value: str) -> str:
    """Keep the beginning of a value, and what tells it from others that begin the same."""
    digest = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{_SURROGATE.sub('?', value[: LONGEST_LABEL - len(digest) - 1])}~{digest}"
