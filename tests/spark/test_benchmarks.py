"""Each measurement of ``make bench-spark`` measures what it says, here with next to nothing."""

import json
import sys

import pytest

from tests.support.documentation import CHECKOUT
from tests.support.processes import run

MEASURE = """
import sys
from benchmarks.spark.__main__ import main
from benchmarks.spark.sizes import TINY
main(sys.argv[1], "sqlite", TINY)
"""
MOST_SECONDS = 600.0

pytestmark = pytest.mark.bench


@pytest.mark.parametrize(
    ("scenario", "names"),
    [
        ("source_read", ["source_read"]),
        ("bulk_transform", ["bulk_transform", "bulk_transform_msgpack", "bulk_transform_broker"]),
        ("stream", ["stream", "stream_smallest", "stream_flat"]),
        pytest.param("cluster", ["cluster"], marks=pytest.mark.cluster),
    ],
)
def test_a_scenario_is_measured_beside_its_floor(scenario: str, names: list[str]) -> None:
    done = run(sys.executable, "-c", MEASURE, scenario, cwd=CHECKOUT, timeout=MOST_SECONDS)

    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["scenario"] for line in lines] == names
    for line in lines:
        assert line["database"] == "sqlite"
        assert line["value"] > 0
        assert line["floor"] > 0
        assert line["unit"] in ("items/s", "MiB", "ms")
