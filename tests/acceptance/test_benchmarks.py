"""Each benchmark measures what it says, here with next to nothing."""

import json
from collections.abc import Iterator

import pytest

from benchmarks.__main__ import SCENARIOS
from benchmarks.databases import Databases, databases, of_server
from benchmarks.sizes import Sizes
from tests.support import postgres

TINY = Sizes(
    rounds=1,
    single_calls=3,
    pipelined_calls=120,
    envelope_items=1_500,
    envelopes=2,
    backlog_envelopes=2,
    restart_items=400,
)


@pytest.fixture
def sqlite() -> Iterator[Databases]:
    with databases("sqlite") as of_kind:
        yield of_kind


@pytest.fixture
def postgresql(postgres_server: postgres.Server) -> Databases:
    return of_server(postgres_server)


@pytest.mark.parametrize(
    ("scenario", "kind"),
    # On PostgreSQL those that together use all of its bare side.
    [*((scenario, "sqlite") for scenario in SCENARIOS), ("ack_one", "postgresql"), ("end_to_end", "postgresql")],
)
def test_a_scenario_is_measured_beside_its_floor(scenario: str, kind: str, request: pytest.FixtureRequest) -> None:
    told = json.loads(SCENARIOS[scenario](request.getfixturevalue(kind), TINY).line(scenario, kind))

    assert (told["scenario"], told["database"]) == (scenario, kind)
    assert told["value"] > 0
    assert told["floor"] > 0
    if scenario == "restart":
        # What waits does not make the start longer; the rest of it varies from run to run.
        assert told["ratio"] < 4
    assert told["unit"] in ("calls/s", "items/s", "MiB", "ms")
