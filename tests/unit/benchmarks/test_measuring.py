"""Statistics, stamps and the counters of processes that benchmarks are made of."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.envelopes.ages import Ages
from benchmarks.envelopes.stamps import sent_ns, stamped
from benchmarks.envelopes.stopwatch import Stopwatch
from benchmarks.items import sample
from benchmarks.percentiles import percentile
from benchmarks.processes import cpu_seconds, peaks_mib
from benchmarks.recording import Recorder
from benchmarks.sizes import Sizes
from benchmarks.stopping import end_all_on_sigterm


@pytest.mark.parametrize(("percent", "value"), [(50, 3), (20, 1), (21, 2), (99, 5), (100, 5)])
def test_a_percentile_is_one_of_the_values(percent: float, value: float) -> None:
    assert percentile([5, 1, 4, 2, 3], percent) == value


@pytest.mark.parametrize("size", [200, 10_000])
def test_a_stamped_item_has_its_size_and_says_when_it_was_made(size: int) -> None:
    first, second = stamped(size), stamped(size)

    assert len(first) == size
    assert int(json.loads(first)["sent"]) == sent_ns(first)
    assert 0 < (sent_ns(first) or 0) <= (sent_ns(second) or 0)


def test_other_items_have_no_stamp() -> None:
    assert sent_ns(sample()[0]) is None


def test_ages_are_told_once() -> None:
    ages = Ages()
    for _ in range(3):
        ages.add(sent_ns(stamped()))
    report = ages.report()

    assert 0 < report["first"] <= report["last"]
    assert 0 <= report["p50_ms"] <= report["p99_ms"]
    assert "p50_ms" not in ages.report()


def test_a_stopwatch_tells_what_a_program_took() -> None:
    report = Stopwatch(os.getpid()).report([0.002, 0.001, 0.003])

    assert report["began"] <= report["ended"]
    assert (report["p50_ms"], report["p99_ms"]) == (2, 3)
    assert report["server_cpu_before"] > 0


def test_a_process_has_taken_time_and_memory() -> None:
    assert cpu_seconds(os.getpid()) > 0
    assert cpu_seconds(os.getpid(), os.getpid()) >= cpu_seconds(os.getpid())
    assert peaks_mib(os.getpid()) > 1


def test_a_process_is_measured_that_works_for_less_than_a_tick_of_the_system() -> None:
    for _ in range(3):
        before, until = cpu_seconds(os.getpid()), time.process_time() + 0.001
        while time.process_time() < until:
            pass
        assert cpu_seconds(os.getpid()) - before >= 0.001


def test_a_recorder_prints_and_keeps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kept" / "figures.jsonl"
    recorder = Recorder(path)
    recorder.begin("bench")
    recorder.record('{"scenario": "small_1"}')
    recorder.leave_out("redis", "there is none")

    about, figure, left_out = map(json.loads, path.read_text().splitlines())
    assert (about["about"], figure, left_out["left_out"]) == ("bench", {"scenario": "small_1"}, "redis")
    assert about["cores"] > 0
    assert capsys.readouterr().out == '{"scenario": "small_1"}\n'


def test_figures_are_kept_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("FIGURES", raising=False)
    Recorder.of_environment().leave_out("redis", "there is none")
    monkeypatch.setenv("FIGURES", str(tmp_path / "figures.jsonl"))
    Recorder.of_environment().leave_out("redis", "there is none")

    assert [path.name for path in tmp_path.iterdir()] == ["figures.jsonl"]


def test_the_environment_says_how_many_envelopes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENVELOPES", "")
    assert Sizes.of_environment() == Sizes()
    monkeypatch.setenv("ENVELOPES", "1000000")
    assert Sizes.of_environment().catch_up_envelopes == 1_000_000
    monkeypatch.setenv("ENVELOPES", "many")
    with pytest.raises(SystemExit, match="give a whole number above 0"):
        Sizes.of_environment()


@pytest.fixture
def sigterm() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("sigterm")
def test_a_program_that_is_told_to_stop_leaves_its_with_blocks() -> None:
    end_all_on_sigterm()

    with pytest.raises(SystemExit, match="stopped"):
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
