"""The page on benchmarks, from figures that were kept."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.__main__ import SCENARIOS
from benchmarks.peers.known import MODULES
from benchmarks.recording import Recorder, machine
from benchmarks.report.__main__ import main
from benchmarks.report.charts import Bar, draw
from benchmarks.report.figures import UnreadableFigures, read
from benchmarks.report.numbers import written
from benchmarks.report.page import SECTIONS, write
from benchmarks.report.tables import FLOORED, RATES, table
from benchmarks.report.targets import TARGETS
from benchmarks.result import Result

MORE = {"delivered_per_s": 50.0, "delivered_p50_ms": 2.0, "delivered_p99_ms": 3.0, "broker_cpu_ms": 0.5}


def line(value: float, **labels: str) -> str:
    return Result(value, value * 2, "envelopes/s", MORE).labelled(**labels)


@pytest.mark.parametrize(
    ("number", "text"),
    [(None, "–"), (0, "0"), (0.0394, "0.039"), (0.5, "0.500"), (2.345, "2.35"), (97.04, "97.0"), (1234.5, "1,230")],
)
def test_numbers_are_written_with_three_digits(number: float | None, text: str) -> None:
    assert written(number) == text


def test_the_newest_figure_counts() -> None:
    found = read([line(1, scenario="small_1", database="sqlite"), line(2, scenario="small_1", database="sqlite")])

    assert [figure.numbers["value"] for figure in found.of("small_1")] == [2]


def test_a_peer_that_is_measured_is_no_longer_left_out() -> None:
    left_out = json.dumps({"left_out": "redis", "cause": "there is none"})
    peer = line(1, scenario="peers_1", peer="redis", settings="fast")

    assert read([left_out]).left_out == {"redis": "there is none"}
    assert read([left_out, peer]).left_out == {}


@pytest.mark.parametrize("text", ["nothing", "[]", "{}", '{"scenario": "small_1", "database": "sqlite", "value": "x"}'])
def test_another_line_is_refused_with_its_number(text: str) -> None:
    with pytest.raises(UnreadableFigures, match="line 2 is no figure"):
        read([line(1, scenario="small_1", database="sqlite"), text])


def test_a_table_has_a_row_for_each_place() -> None:
    found = read(line(100, scenario="small_1", database=kind) for kind in ("sqlite", "postgresql"))

    assert table(found, ["small_1", "small_10"], (*RATES, *FLOORED)) == [
        "| scenario | on | acknowledged/s | delivered/s | floor | part of floor |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
        "| `small_1` | sqlite | 100 | 50.0 | 200 | 0.500 |",
        "| `small_1` | postgresql | 100 | 50.0 | 200 | 0.500 |",
        "",
    ]


def test_every_scenario_is_on_the_page() -> None:
    assert {scenario for section in SECTIONS for scenario in section.scenarios} == set(SCENARIOS)


def test_the_page_says_where_peers_are_faster() -> None:
    rates = {"xbus_sqlite": 100.0, "redis": 200.0, "procrastinate": 10.0}
    figures = [line(rate, scenario="peers_10", peer=peer, settings=f"of {peer}") for peer, rate in rates.items()]
    page = " ".join(write(read([*figures, json.dumps({"left_out": "nats_synced", "cause": "it is old"})])).split())

    assert "With 10 in flight, `redis` acknowledged more a second than the bus" in page
    assert "none of them delivered more a second than the bus" in page
    assert "- `procrastinate`: of procrastinate." in page
    assert "- `nats_synced` was left out: it is old." in page


def test_a_picture_is_svg_with_all_bars() -> None:
    picture = ElementTree.fromstring(draw("Rates & more", "a second", [Bar("a < b", 10), Bar("none", 0, "other")]))
    texts = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]

    assert texts == ["Rates & more", "a second", "a < b", "10.0", "none", "0"]


def test_the_page_and_all_pictures_that_it_shows_are_written(tmp_path: Path) -> None:
    figures = tmp_path / "figures.jsonl"
    recorder = Recorder(figures)
    recorder.begin("bench")
    for scenario in SCENARIOS:
        recorder.record(line(1, scenario=scenario, database="sqlite"))
    for scenario in ("peers_1", "peers_10", "peers_100"):
        for peer in MODULES:
            recorder.record(line(1, scenario=scenario, peer=peer, settings="usual"))

    main(figures, tmp_path)

    page = (tmp_path / "benchmarks.md").read_text()
    shown = {part.partition(")")[0] for part in page.split("](")[1:]}
    assert shown == {f"benchmarks/{path.name}" for path in (tmp_path / "benchmarks").iterdir()}
    assert all(len(text) <= 120 for text in page.splitlines() if not text.startswith(("|", "!")))


def test_the_page_shows_which_targets_were_missed() -> None:
    figures = [
        line(1, scenario="small_1", database="sqlite"),
        line(0.9, scenario="latency", database="sqlite"),
        line(1.2, scenario="latency", database="postgresql"),
        line(1, scenario="end_to_end", database="postgresql"),
    ]
    page = write(read(figures))

    assert "| `small_1` | ≥ 1,400 / ≥ 900 delivered/s | **50.0** | – |" in page
    assert "| `latency` | ≤ 0.8 / ≤ 1.3 p50 ms | **0.900** | 1.20 |" in page
    assert "| `end_to_end` | ≥ 550,000 items/s | – | 1.00 |" in page, "nothing is wanted of that database"
    assert "`catch_up` | ≥" not in page


def test_targets_are_of_scenarios() -> None:
    assert {target.scenario for target in TARGETS} <= set(SCENARIOS)


def test_the_page_tells_which_scenarios_ran_again_later() -> None:
    def about(date: str) -> str:
        return json.dumps({"about": "bench", **machine(), "date": date})

    whole = [line(1, scenario=scenario, database="sqlite") for scenario in ("small_1", "catch_up")]
    page = write(
        read([about("2026-11-26"), *whole, about("2026-11-27"), line(2, scenario="small_1", database="sqlite")])
    )

    assert "`make bench` ran on 2026-11-26" in page
    assert "`make bench` ran for `small_1` on 2026-11-27" in page
