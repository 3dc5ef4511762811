"""``xbus bot`` shows the runs of bots."""

import json

from tests.integration.admin.conftest import Xbus
from tests.support.reading_bus import make_reading_bus


def test_runs_are_shown_from_the_one_on_at_which_the_list_before_ended(xbus: Xbus, database_url: str) -> None:
    bus = make_reading_bus(database_url)
    runs = [bus.run("nightly/report") for _ in range(4)]
    newest = xbus("bot", "runs", "--limit", "2").output
    assert f"--before {runs[2]}" in newest
    rest = xbus("bot", "runs", "--json", "--before", str(runs[2])).output
    assert [json.loads(line)["run_id"] for line in rest.splitlines()] == [runs[1], runs[0]]
