"""Metrics are written so that Prometheus reads them, whatever names people chose."""

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from xbus.broker.counts import Histogram
from xbus.broker.metrics.exposition import LEFT_OUT, LONGEST_LABEL, MOST_SAMPLES, Exposition
from xbus.broker.metrics.families import Family, MetricKind, counter, gauge, one

OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
HOSTILE = ['say "hi"\n\\', 'x{a="b"} 1\n# EOF', "\u202e evil \x1b[31m", "é" * 1000, "\ud800"]


def read(families: list[Family], accept: str) -> dict[str, Metric]:
    """Write the families, and read them as a client that asks for this form does."""
    body, content_type = Exposition(families).write(accept)
    is_openmetrics = content_type.startswith("application/openmetrics-text")
    found = (read_openmetrics if is_openmetrics else read_text)(body.decode())
    return {metric.name: metric for metric in found}


@pytest.mark.parametrize("accept", [OPENMETRICS, "", "text/html", ";;,=,q" * 100])
def test_both_forms_say_the_same(accept: str) -> None:
    histogram = Histogram((0.5, 1))
    for value in (0.1, 0.7, 0.7, 3):
        histogram.note(value)
    found = read(
        [
            counter("xbus_things", "Things", [({"role": "a"}, 3.0)]),
            gauge("xbus_size_bytes", "Size", one(5)),
            Family("xbus_build", MetricKind.INFO, "Build", [({"version": "1"}, 1)]),
            Family("xbus_wait_seconds", MetricKind.HISTOGRAM, "Wait", [], histogram),
        ],
        accept,
    )
    values = {
        (sample.name, *sample.labels.values()): sample.value for metric in found.values() for sample in metric.samples
    }
    assert values["xbus_things_total", "a"] == 3
    assert values["xbus_size_bytes",] == 5
    assert values["xbus_build_info", "1"] == 1
    assert [values["xbus_wait_seconds_bucket", bound] for bound in ("0.5", "1.0", "+Inf")] == [1, 3, 4]
    assert (values["xbus_wait_seconds_count",], values["xbus_wait_seconds_sum",]) == (4, 4.5)
    assert "process_resident_memory_bytes" in found


@pytest.mark.parametrize("accept", [OPENMETRICS, ""])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_stays_a_label(name: str, accept: str) -> None:
    found = read([gauge("xbus_lag_seconds", "Lag", [({"role": name}, 1), ({"role": f"{name}!"}, 2)])], accept)
    shown = {sample.value: sample.labels["role"] for sample in found["xbus_lag_seconds"].samples}
    assert set(shown) == {1, 2}
    assert shown[1] != shown[2]
    assert all(len(label) <= LONGEST_LABEL for label in shown.values())


def test_a_family_without_samples_is_shown() -> None:
    assert read([gauge("xbus_lag_seconds", "Lag", [])], OPENMETRICS)["xbus_lag_seconds"].samples == []


def test_samples_are_bounded_in_number() -> None:
    many = [({"role": str(number)}, 1.0) for number in range(MOST_SAMPLES + 7)]
    found = read([gauge("xbus_lag_seconds", "Lag", many)], "")
    assert len(found["xbus_lag_seconds"].samples) == MOST_SAMPLES
    assert found[LEFT_OUT].samples[0].value == 7
