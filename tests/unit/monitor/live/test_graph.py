"""The graph of what the sampler found: who sends what where, who is in trouble, and names of strangers."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote

import pytest

from xbus.broker.journal.operations.stalled import Stalled
from xbus.broker.journal.samples.attention import Attention, AttentionGroup
from xbus.broker.journal.samples.outline import BusOutline, ReaderFigures, RoleOfService, ServiceOutline
from xbus.broker.journal.samples.sample import Count, Sample
from xbus.broker.journal.samples.taking import RoleFigures
from xbus.broker.journal.writes import PauseEntry, PauseKind
from xbus.monitor.drawings.graphs import GraphNode
from xbus.monitor.features.home import NeededDecision, decisions_of
from xbus.monitor.live.plots import MOST_IDLE_EDGES, draw_bus, graph_of
from xbus.monitor.live.sampler import BrokerHealth, BusNow
from xbus.rpc.messages import HealthProblem
from xbus.states import PresenceState

NOW = datetime(2026, 2, 28, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)

CALM = Attention([], [], [], [], [])


def role(role_id: int, service_id: int, **changes: object) -> RoleFigures:
    figures = RoleFigures(role_id, f"role_{role_id}", service_id, PresenceState.PRESENT, NOW - HOUR, 0, None, 0, 0)
    return replace(figures, **changes)  # type: ignore[arg-type]


def bus(**changes: object) -> BusNow:
    """Two emitters send orders, which go through two workers to the shop; notes go straight there."""
    outline = BusOutline(
        version=1,
        emitters={1: "north", 2: "south"},
        types={1: "orders", 2: "notes", 3: "lost"},
        services={
            1: ServiceOutline("names", is_worker=True),
            2: ServiceOutline("prices", is_worker=True),
            3: ServiceOutline("shop", is_worker=False),
        },
        roles={number: RoleOfService(f"role_{number}", number) for number in (1, 2, 3)},
        sends={1: [1, 2, 3], 2: [2]},
        ways={1: {None: {1}, 1: {2}, 2: {3}}, 2: {None: {3}}},
    )
    minute = Sample(60, NOW - HOUR / 60, NOW, 60.0, 9, traffic={(1, 1): Count(120, 600), (2, 2): Count(60, 60)})
    now = BusNow(NOW, outline, minute, [role(number, number) for number in (1, 2, 3)], CALM, BrokerHealth())
    return replace(now, **changes)  # type: ignore[arg-type]


def nodes(now: BusNow) -> dict[str, GraphNode]:
    """The boxes by their names."""
    return {node.head.name: node for column in graph_of(now)[0] for node in column.nodes}


def test_columns_follow_the_way_of_an_event() -> None:
    columns, _ = graph_of(bus())
    assert [(column.title, [node.head.name for node in column.nodes]) for column in columns] == [
        ("Emitters", ["north", "south"]),
        ("Event types", ["lost", "notes", "orders"]),
        ("Workers", ["names"]),
        ("Workers", ["prices"]),
        ("Consumers", ["shop"]),
    ]


def test_edges_have_what_passes_each_second() -> None:
    _, edges = graph_of(bus())
    assert edges == {
        ("e1", "t1"): 2.0,
        ("e1", "t2"): 0.0,
        ("e1", "t3"): 0.0,
        ("e2", "t2"): 1.0,
        ("t1", "s1"): 2.0,
        ("s1", "s2"): 2.0,
        ("s2", "s3"): 2.0,
        ("t2", "s3"): 1.0,
    }
    assert nodes(bus())["shop"].weight == 3.0
    assert nodes(bus())["shop"].head.figure == "3/s"


def test_without_samples_nothing_passes() -> None:
    _, edges = graph_of(bus(minute=None))
    assert set(edges.values()) == {0.0}


def test_of_very_many_ways_only_the_used_ones_are_drawn() -> None:
    now = bus()
    types = {number: f"type {number}" for number in range(1, MOST_IDLE_EDGES + 2)}
    outline = replace(now.outline, types=types, sends={1: [*types]})
    _, edges = graph_of(replace(now, outline=outline))
    assert [edge for edge in edges if edge[0].startswith("e")] == [("e1", "t1"), ("e2", "t2")]


def test_what_was_sent_by_a_removed_emitter_does_no_harm() -> None:
    now = bus(minute=Sample(60, NOW, NOW, 60.0, 1, traffic={(99, 1): Count(60, 60), (1, 99): Count(1, 1)}))
    assert draw_bus(now).boxes


@pytest.mark.parametrize(
    ("changes", "tone", "figure"),
    [
        ({}, "", ""),
        ({"lag": 3, "owed_since": NOW - timedelta(seconds=90)}, "", "1.5 min late"),
        ({"lag": 3, "owed_since": NOW}, "", ""),
        ({"state": PresenceState.ABSENT}, "busy", "absent"),
        ({"state": PresenceState.PAUSED}, "busy", "paused"),
        ({"state": PresenceState.TROUBLED}, "bad", "troubled"),
        ({"parked": 2, "parked_items": 1, "state": PresenceState.ABSENT}, "bad", "3 parked"),
    ],
)
def test_colour_says_trouble(changes: dict[str, object], tone: str, figure: str) -> None:
    (row,) = nodes(bus(roles=[role(3, 3, **changes)]))["shop"].rows
    assert (row.tone, row.figure) == (tone, figure)


def test_a_role_says_all_in_words() -> None:
    late = role(3, 3, lag=3, owed_since=NOW - HOUR, parked=2, parked_items=1, state=PresenceState.ABSENT)
    (row,) = nodes(bus(roles=[late]))["shop"].rows
    assert row.about == (
        "role role_3: absent, for 1 h, lacks 3 envelopes, the oldest sealed 1 h ago, 2 envelopes parked, 1 items parked"
    )


def pause(kind: PauseKind, subject_id: int, name: str) -> PauseEntry:
    return PauseEntry(kind, subject_id, name, "moving", "ada", NOW - HOUR, None)


def test_pauses_and_types_that_lead_nowhere_are_seen() -> None:
    pauses = [pause(PauseKind.TYPE, 1, "orders"), pause(PauseKind.EMITTER, 1, "north")]
    now = bus(attention=replace(CALM, pauses=pauses))
    assert {(node.head.tone, node.head.figure) for node in (nodes(now)["orders"], nodes(now)["north"])} == {
        ("busy", "paused")
    }
    assert nodes(now)["lost"].head.tone == ""
    sent = Sample(60, NOW, NOW, 60.0, 1, traffic={(1, 3): Count(60, 60)})
    assert nodes(bus(minute=sent))["lost"].head.tone == "busy"


def test_workers_that_follow_each_other_both_ways_have_a_place() -> None:
    now = bus()
    ways = {1: {None: {1}, 1: {2}, 2: {3}}, 2: {None: {2}, 2: {1}, 1: {3}}}
    columns, _ = graph_of(replace(now, outline=replace(now.outline, ways=ways)))
    assert [len(column.nodes) for column in columns] == [2, 3, 0, 2, 1]
    assert len(draw_bus(replace(now, outline=replace(now.outline, ways=ways))).boxes) == 8


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "a/../b?c#d", "x" * 1000, "\u202etxt", "%2e%2e"])
def test_a_name_leads_to_its_own_page(name: str) -> None:
    now = bus()
    outline = replace(now.outline, emitters={1: name}, types={1: name}, services={3: ServiceOutline(name, False)})
    drawing = draw_bus(replace(now, outline=outline, roles=[role(3, 3, login=name)]))
    addresses = [row.address for box in drawing.boxes for row in (box.node.head, *(each.row for each in box.rows))]
    for folder in ("emitters", "types", "recipients"):
        (address,) = [each for each in addresses if each is not None and each.startswith(f"/{folder}/")]
        assert unquote(address.removeprefix(f"/{folder}/")) == name
        assert address.count("/") == 2


def titles(now: BusNow) -> list[str]:
    return [decision.title for decision in decisions_of(now)]


def test_a_calm_bus_needs_no_decision() -> None:
    assert decisions_of(bus()) == []


def test_what_needs_a_decision() -> None:
    problem: HealthProblem = {
        "code": "consumer_absent",
        "about": "role_3",
        "cause": "the role role_3 is absent",
        "since": NOW.isoformat(),
        "next_step": "start its recipient",
    }
    told_elsewhere: HealthProblem = {**problem, "code": "parked"}
    attention = Attention(
        parked=[AttentionGroup("role_3", "refused", 1, False, NOW, NOW)],
        parked_items=[AttentionGroup("role_3", "refused", 5000, True, NOW, NOW)],
        failures=[AttentionGroup(None, "timed_out", 3, False, NOW, NOW)],
        pauses=[pause(PauseKind.ROLE, 3, "role 3"), pause(PauseKind.SERVICE, 3, "shop")],
        open=[("north", Stalled(1000, NOW, at_least=True))],
    )
    found = decisions_of(bus(attention=attention, health=BrokerHealth([problem, told_elsewhere], ["front"])))
    assert [(each.tone, each.title, each.address) for each in found] == [
        ("bad", "The front does not answer", None),
        ("bad", "Consumer absent", "/recipients/role_3"),
        ("bad", "1 envelope parked for role_3", "/parked?role=role_3&code=refused"),
        ("bad", "at least 5,000 items parked for role_3", "/parked?role=role_3&code=refused"),
        ("busy", "More parked work than is counted here", "/parked"),
        ("busy", "3 failures that nobody has looked at", "/failures?state=unprocessed&code=timed_out"),
        ("busy", "at least 1,000 envelopes of north open for long", "/envelopes?state=open&emitter=north"),
        ("busy", "Role role 3 is paused", "/recipients/role%203"),
        ("busy", "Service shop is paused", "/services/shop"),
    ]
    assert all(each.code and each.cause and each.next_step for each in found)
    assert found[1] == NeededDecision(
        "bad", "Consumer absent", "consumer_absent", problem["cause"], "start its recipient", "/recipients/role_3", NOW
    )


def test_a_role_in_trouble_leads_to_its_failures() -> None:
    problem: HealthProblem = {
        "code": "role_in_trouble",
        "about": "a&b",
        "cause": "it fails",
        "since": None,
        "next_step": "see",
    }
    (found,) = decisions_of(bus(health=BrokerHealth([problem])))
    assert (found.address, found.since) == ("/failures?role=a%26b", None)


def test_readers_stand_at_the_end_with_how_late_they_are() -> None:
    late = ReaderFigures(9, "billing", [1], 0, NOW - HOUR, 3)
    well = ReaderFigures(10, "bot/nightly", [1, 3], 2, None, 0)
    columns, edges = graph_of(bus(readers=[late, well]))
    assert (columns[-1].title, [node.head.name for node in columns[-1].nodes]) == (
        "Readers",
        ["billing", "bot/nightly"],
    )
    assert (edges["t1", "r9"], edges["t3", "r10"]) == (2.0, 0.0)
    found = nodes(bus(readers=[late, well]))
    assert (found["billing"].head.tone, found["billing"].head.figure) == ("busy", "1 h late")
    assert (found["bot/nightly"].head.tone, found["bot/nightly"].head.figure) == ("", "")
    assert found["bot/nightly"].head.address == "/readers/bot%2Fnightly"
    assert "nobody reads it" not in found["lost"].head.about


def test_what_bots_and_nodes_put_leads_to_their_pages() -> None:
    own = replace(bus().outline, emitters={1: "bot/nightly", 2: "orders/made"}, own_emitters={1: "bot", 2: "node"})
    found = nodes(bus(outline=own))
    assert found["bot/nightly"].head.address == "/bots/nightly"
    assert found["orders/made"].head.address == "/recipients/orders%2Fmade"


def test_each_pause_leads_to_the_page_of_what_is_paused() -> None:
    kinds = [PauseKind.ROLE, PauseKind.SERVICE, PauseKind.TYPE, PauseKind.EMITTER, PauseKind.BOT]
    pauses = [PauseEntry(kind, number, f"a {kind}", "tired", "ada", NOW, None) for number, kind in enumerate(kinds)]
    pauses.append(PauseEntry(PauseKind.SERVICE, 9, "billing", "tired", "ada", NOW, None))
    now = bus(attention=replace(CALM, pauses=pauses), readers=[ReaderFigures(9, "billing", [1], 1, None, 0)])
    assert [each.address for each in decisions_of(now)] == [
        "/recipients/a%20role",
        "/services/a%20service",
        "/types/a%20type",
        "/emitters/a%20emitter",
        "/bots/a%20bot",
        "/readers/billing",
    ]
