"""``xbus plan`` against a real database."""

import json
from pathlib import Path

import pytest

from tests.integration.admin.conftest import Log, Xbus, version

WITHOUT_COUNTER = """\
[[event_type]]
name = "flights"
[[event_type.node]]
name = "store"
service = "store"
[[event_type.node]]
name = "audit"
service = "audit"

[[role]]
login = "audit_1"
service = "audit"

[[emitter]]
login = "airport_2"
profile = "airport"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "bus.toml"
    path.write_text(WITHOUT_COUNTER)
    return path


def test_without_events_it_shows_what_a_dry_run_shows(xbus: Xbus, log: Log, file: Path, database_url: str) -> None:
    before = version(database_url)
    planned, dry = xbus("plan", file), xbus("apply", file, "--dry-run")
    assert (planned.exit_code, dry.exit_code) == (0, 0)
    assert dry.stdout.startswith(planned.stdout)
    assert 'change event_type "flights": nodes' in planned.stdout
    assert 'role "counter_1" has not got 2 envelopes yet' in planned.stdout
    assert version(database_url) == before


def test_the_last_events_are_compared_role_by_role(xbus: Xbus, log: Log, file: Path) -> None:
    lines = xbus("plan", file, "--last", "1000").stdout.splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("flights: 2 events, sealed since"))
    rows = [line.split() for line in lines[start + 1 : start + 5]]
    assert [row[:5] for row in rows] == [
        ["ROLE", "SERVICE", "KIND", "NOW", "THEN"],
        ["-", "audit", "consumer", "2", "0"],
        ["audit_1", "audit", "consumer", "0", "2"],
        ["counter_1", "counter", "consumer", "2", "0"],
    ]
    assert "store_1" not in "".join(lines[start:])
    assert str(log.second) in xbus("plan", file, "--last", "1", "-o", "wide").stdout
    assert "store_1" in xbus("plan", file, "--last", "1", "-o", "wide").stdout


def test_a_file_that_changes_nothing_says_so(xbus: Xbus, log: Log, tmp_path: Path) -> None:
    same = tmp_path / "same.toml"
    same.write_text(xbus("export").stdout)
    assert xbus("plan", same, "--last", "5").stdout.splitlines() == [
        "Nothing to change: the bus is as the file says.",
        "",
        "As before, of the last 5 events of each type: flights (2).",
    ]


def test_an_emitter_that_goes_is_told(xbus: Xbus, log: Log, tmp_path: Path) -> None:
    rest = tmp_path / "rest.toml"
    rest.write_text(xbus("export").stdout.replace('"airport_1"', '"airport_3"'))
    told = xbus("plan", rest, "--prune", "--last", "5").stdout
    assert 'remove emitter "airport_1"' in told
    assert "2 events of airport_1 would be refused: " in told
    renamed = tmp_path / "renamed.toml"
    renamed.write_text(rest.read_text().replace('"airport_3"', '"airport_3"\nrenamed_from = "airport_1"'))
    assert "refused" not in xbus("plan", renamed, "--prune", "--last", "5").stdout


def test_json_has_changes_and_comparisons(xbus: Xbus, log: Log, file: Path) -> None:
    (found,) = map(json.loads, xbus("plan", file, "--last", "1000", "-o", "json").stdout.splitlines())
    assert [(each["action"], each["object"]) for each in found["changes"]] == [
        ("change", 'event_type "flights"'),
        ("add", 'role "audit_1"'),
        ("add", 'emitter "airport_2"'),
    ]
    (owed,) = found["changes"][0]["owed"]
    assert (owed["role"], owed["envelopes"]) == ("counter_1", 2)
    (comparison,) = found["comparisons"]
    routes = {(each["service"], each["role"]): each for each in comparison["routes"]}
    gone = routes["counter", "counter_1"]
    assert (gone["events_now"], gone["events_then"], gone["examples"]) == (2, 0, [str(log.second), str(log.first)])
    assert (gone["nodes_now"], gone["nodes_then"]) == (["count"], None)
    assert not routes["store", "store_1"]["changed"]
    (without,) = map(json.loads, xbus("plan", file, "--json").stdout.splitlines())
    assert without == {**found, "comparisons": None}


def test_a_wrong_file_is_refused_with_its_lines(xbus: Xbus, log: Log, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.toml"
    wrong.write_text('[[role]]\nlogin = "a"\nservice = "nowhere"\n')
    result = xbus("plan", wrong, "--last", "5")
    assert (result.exit_code, "[bad_bus_file]" in result.stderr) == (1, True)
    assert "nowhere" in result.stderr
