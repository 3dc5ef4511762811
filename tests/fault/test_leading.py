"""The trial of ``make trial-standby``, in brief, and its judge: one that can't fail proves nothing."""

import json
from pathlib import Path

import pytest

from tests.fault.leading.judge import StandbyBooks, Taken, summary
from tests.fault.leading.trial import StandbyTrial
from tests.torture.database import database
from tests.torture.history import Log, lines

A, B, C = Taken("a", 1, 1), Taken("b", 2, 2), Taken("c", 11, 3)
JOURNAL = [(1, "a"), (2, "b"), (3, "c")]


@pytest.mark.parametrize(
    ("acknowledged", "taken", "journal", "broken"),
    [
        ({1: 1, 2: 2, 11: 3}, [A, B, C], JOURNAL, []),
        ({1: 1}, [B, A, C], JOURNAL, []),
        ({1: 1, 12: 4}, [A, B, C], JOURNAL, ["lost"]),
        ({1: 2}, [A, B, C], JOURNAL, ["lost"]),
        ({}, [A, B, C], [(1, "a"), (3, "c")], ["gap", "invented"]),
        ({}, [C, A], JOURNAL, ["reordered"]),
        ({}, [A, Taken("b", 1, 2)], JOURNAL, ["doubled"]),
    ],
)
def test_the_judge_finds_what_is_wrong(
    acknowledged: dict[int, int], taken: list[Taken], journal: list[tuple[int, str]], broken: list[str]
) -> None:
    found = StandbyBooks(lanes=10).look(acknowledged, taken, journal)
    assert [each.partition(":")[0] for each in found] == broken


def test_what_the_judge_has_seen_before_counts() -> None:
    books = StandbyBooks(lanes=10)
    assert books.look({1: 1}, [A], JOURNAL[:1]) == []
    assert books.look({11: 3}, [B, C], JOURNAL[1:]) == []
    assert [each.partition(":")[0] for each in books.look({}, [A], [])] == ["doubled", "reordered"]


def test_a_summary_tells_the_usual_and_the_longest_times() -> None:
    strikes = [{"kind": "kill", "leads": number, "delivers": 1.0} for number in range(1, 101)]
    told = summary([*strikes, {"kind": "kill"}])["kill"]
    assert told == {
        "strikes": 100,
        "leads": {"p50": 50, "p95": 95, "most": 100},
        "delivers": {"p50": 1.0, "p95": 1.0, "most": 1.0},
    }


@pytest.mark.slow
async def test_a_leader_that_is_killed_or_stopped_is_replaced(tmp_path: Path) -> None:
    async with database("postgresql", tmp_path) as journal:
        await StandbyTrial(tmp_path, journal, Log(tmp_path / "strikes.jsonl"), "1").run(["kill", "stop"])
    strikes = [*lines(tmp_path / "strikes.jsonl")]
    assert [strike["kind"] for strike in strikes] == ["kill", "stop"], json.dumps(strikes)
    assert [strike["violations"] for strike in strikes] == [[], []]
