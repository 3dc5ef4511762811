"""Each benchmark measures what it says, here with next to nothing."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.__main__ import OF_POSTGRESQL, SCENARIOS
from benchmarks.databases import Databases, databases, of_server
from benchmarks.peers.bus import server
from benchmarks.peers.rounds import Peer, measure
from benchmarks.sizes import Sizes
from tests.support import postgres

pytestmark = pytest.mark.slow

TINY = Sizes(
    rounds=1,
    single_calls=3,
    pipelined_calls=120,
    envelope_items=1_500,
    envelopes=2,
    backlog_envelopes=2,
    restart_items=400,
    small_single=3,
    small_pipelined=30,
    catch_up_envelopes=30,
    rare_envelopes=30,
    file_mb=9,
    output_items=1_000,
    http_seconds=0.3,
    http_requests=5,
    http_many=5,
    http_followers=20,
    bot_calls=2,
    bot_slots=1,
    young_envelopes=3,
)

LIKE_OTHERS = {
    "small_1",
    "small_10",
    "small_100",
    "small_100_emitters",
    "small_old_100",
    "small_10_kb",
    "idle_1000",
    "idle_10000",
    "reader_idle",
    "http_callback_single",
}
"""Scenarios that differ from others by a number alone, or by what ``latency`` runs too, or that only wait."""


@pytest.fixture
def sqlite() -> Iterator[Databases]:
    with databases("sqlite") as of_kind:
        yield of_kind


@pytest.fixture
def postgresql(postgres_server: postgres.Server) -> Databases:
    return of_server(postgres_server)


def measured(scenario: str, kind: str, databases: Databases) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(SCENARIOS[scenario](databases, TINY).line(scenario, kind))
    return told


@pytest.mark.parametrize(
    ("scenario", "kind"),
    # On PostgreSQL those that together use all of its bare side, and one beside a standby.
    [
        *((scenario, "sqlite") for scenario in SCENARIOS if scenario not in LIKE_OTHERS | OF_POSTGRESQL),
        *((scenario, "postgresql") for scenario in ("ack_one", "end_to_end", "small_10_standby")),
    ],
)
def test_a_scenario_is_measured_beside_its_floor(scenario: str, kind: str, request: pytest.FixtureRequest) -> None:
    databases = request.getfixturevalue(kind)
    told = measured(scenario, kind, databases)

    assert (told["scenario"], told["database"]) == (scenario, kind)
    assert told["value"] > 0
    assert told.get("floor", 1) > 0
    if scenario == "restart":
        # What waits does not make the start longer; the rest of it varies from run to run, and from minute to minute.
        assert told["ratio"] < 4 or any(measured(scenario, kind, databases)["ratio"] < 4 for _ in range(5))
    assert told["unit"] in ("calls/s", "envelopes/s", "events/s", "items/s", "MB/s", "MiB", "ms")


def test_the_bus_is_measured_as_its_peers_are(sqlite: Databases) -> None:
    with server(sqlite) as bus:
        ((peer, found),) = measure([Peer("xbus_sqlite", "", bus)], in_flight=10, messages=30, rounds=1)

    assert (peer.name, found.unit) == ("xbus_sqlite", "messages/s")
    assert found.value > 0
    assert found.more["delivered_per_s"] > 0
    assert found.more["server_peak_mib"] > 0
