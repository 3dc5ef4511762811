"""What a benchmark tells."""

import json

import pytest

from benchmarks.__main__ import main
from benchmarks.recording import Recorder
from benchmarks.result import Result
from benchmarks.sizes import Sizes


def test_a_line_tells_value_floor_and_ratio() -> None:
    assert json.loads(Result(15_000.04, 30_000, "calls/s").line("ack_100", "sqlite")) == {
        "scenario": "ack_100",
        "database": "sqlite",
        "value": 15_000.0,
        "unit": "calls/s",
        "floor": 30_000,
        "ratio": 0.5,
    }


def test_rounds_are_told_by_their_medians() -> None:
    assert Result.median([(1, 10), (3, 30), (2, 90)], "items/s") == Result(2, 30, "items/s")


@pytest.mark.parametrize(("only", "kinds"), [("nothing", ""), ("", "mysql")])
def test_an_unknown_name_is_refused_with_those_there_are(only: str, kinds: str) -> None:
    with pytest.raises(SystemExit, match=r"none of that name, choose one of (ack_one|sqlite)"):
        main(only, kinds, Sizes(), Recorder(None))
