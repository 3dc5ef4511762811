"""Each benchmark measures what it says, here with next to nothing."""

import json
from collections.abc import Iterator

import pytest

from benchmarks.__main__ import SCENARIOS
from benchmarks.databases import Databases, databases, of_server
from benchmarks.sizes import Sizes
from tests.support import postgres

TINY = Sizes(rounds=1, single_calls=3, pipelined_calls=120, envelope_items=1_500, envelopes=2, backlog_envelopes=2)


@pytest.fixture(params=["sqlite", "postgresql"])
def some_databases(request: pytest.FixtureRequest) -> Iterator[Databases]:
    if request.param == "postgresql":
        server: postgres.Server = request.getfixturevalue("postgres_server")
        yield of_server(server)
        return
    with databases("sqlite") as of_kind:
        yield of_kind


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_is_measured_beside_its_floor(scenario: str, some_databases: Databases) -> None:
    told = json.loads(SCENARIOS[scenario](some_databases, TINY).line(scenario, "some"))

    assert told["scenario"] == scenario
    assert told["value"] > 0
    assert told["floor"] > 0
    assert told["unit"] in ("calls/s", "items/s", "MiB")
