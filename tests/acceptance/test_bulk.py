"""Large events handed over to a bulk worker as a whole, with the real broker and our own recipients."""

import asyncio
import json
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from examples.bulk_totals import Totals
from tests.conftest import StartDaemon
from tests.support.attempts import attempts
from tests.support.bulk_worker import GRAPH, SOON, Halves, halved
from tests.support.bus import add_bus
from tests.support.daemon import Daemon
from tests.support.operating import Operator, isolate_bad_items
from tests.support.sdk import Keeps, emit, send_numbers, send_values
from tests.support.serving import serving
from tests.support.showing import become, shown
from tests.support.waiting import answered, eventually
from xbus import model
from xbus.admin.cli import main
from xbus.broker.journal.database.connection import writing
from xbus.emitter import Emitter


async def works_on(daemon: Daemon, role: str) -> list[dict[str, Any]]:
    """What ``xbus recipient list`` tells of a role's work."""
    command = ["recipient", "list", "--json", "-c", str(daemon.config)]
    done = await asyncio.to_thread(CliRunner().invoke, main, command)
    roles = [json.loads(line) for line in done.stdout.splitlines()]
    found: list[dict[str, Any]] = next(facts["work"] for facts in roles if facts["role"] == role)
    return found


async def waits_for_output(url: str, envelope_id: str) -> bool:
    """Whether an envelope has cost no attempt yet, and waits for what is being made."""
    role = (await become(url, envelope_id, store_1="waiting"))["store_1"]
    return (role.code, role.attempts) == ("output_not_ready", 0)


@pytest.mark.usefixtures("each_way")
async def test_a_large_event_is_made_as_a_whole_and_a_small_one_item_by_item(
    database_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(database_url, GRAPH)
    daemon = start_daemon(database_url)
    keeps, halves = Keeps(), Halves(database_url)
    async with serving(daemon, "store_1", keeps), serving(daemon, "halves_1", halves):
        large = await emit(daemon, send_numbers(20_000))
        small = await emit(daemon, send_numbers(99))
        await eventually(lambda: len(keeps.committed) == 2, "the consumer commits both")
    assert keeps.committed[large.envelope_id] == halved(20_000)
    assert keeps.committed[small.envelope_id] == halved(99)
    assert [str(handover.envelope_id) for handover in halves.handed_over] == [large.envelope_id]
    assert len(halves.ordinary) == 1


async def test_others_pass_while_an_output_is_made_and_its_progress_is_shown(
    sqlite_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(sqlite_url, {**GRAPH, "plain": {"store": []}})
    daemon = start_daemon(sqlite_url, SOON)
    keeps, halves = Keeps(), Halves(sqlite_url)
    halves.gate.clear()

    def send_plain(emitter: Emitter) -> Any:
        with emitter.envelope() as envelope, envelope.event("plain") as event:
            event.send(1)
        return envelope.receipt

    async with serving(daemon, "store_1", keeps), serving(daemon, "halves_1", halves):
        large = await emit(daemon, send_numbers(200))
        await eventually(halves.at_work.is_set, "the output is begun")
        # It may have waited for the worker before.
        await answered(lambda: waits_for_output(sqlite_url, large.envelope_id), "it waits for the output")
        small = await emit(daemon, send_plain)
        await become(sqlite_url, small.envelope_id, store_1="done")
        work = await answered(lambda: works_on(daemon, "halves_1"), "it is shown what the worker works on")
        assert (work[0]["envelope_id"], work[0]["verb"], work[0]["progress"]) == (large.envelope_id, "take_output", 0)
        halves.gate.set()
        await become(sqlite_url, large.envelope_id, store_1="done")
    assert list(keeps.committed) == [small.envelope_id, large.envelope_id]


async def test_bulk_nodes_stand_below_one_another_and_a_merge_takes_the_ordinary_path(
    database_url: str, start_daemon: StartDaemon
) -> None:
    """``first`` and ``second`` are bulk nodes; ``both`` has two parents, so it gets items."""
    graph = {"first": ["second", "both"], "second": ["both", "store"], "both": ["store"], "store": []}
    add_bus(database_url, {"numbers": graph})
    daemon = start_daemon(database_url, SOON)
    keeps, first, second, both = Keeps(), Halves(database_url), Halves(database_url), Halves(database_url)
    async with (
        serving(daemon, "store_1", keeps),
        serving(daemon, "first_1", first),
        serving(daemon, "second_1", second),
        serving(daemon, "both_1", both),
    ):
        receipt = await emit(daemon, send_numbers(200))
        await become(database_url, receipt.envelope_id, store_1="done")
    assert [(handover.node, handover.is_output, handover.items) for handover in first.handed_over] == [
        ("first", False, 200)
    ]
    assert [(handover.node, handover.is_output, handover.items) for handover in second.handed_over] == [
        ("second", True, 200)
    ]
    assert both.handed_over == []


async def test_a_role_that_comes_later_gets_what_is_ready_though_no_worker_is_there(
    sqlite_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(sqlite_url, GRAPH, {"store": 2})
    daemon = start_daemon(sqlite_url, SOON)
    keeps, late, halves = Keeps(), Keeps(), Halves(sqlite_url)
    async with serving(daemon, "store_1", keeps):
        async with serving(daemon, "halves_1", halves):
            receipt = await emit(daemon, send_numbers(200))
            await become(sqlite_url, receipt.envelope_id, store_1="done")
        async with serving(daemon, "store_2", late):
            await become(sqlite_url, receipt.envelope_id, store_1="done", store_2="done")
    assert late.committed == keeps.committed == {receipt.envelope_id: halved(200)}
    assert len(halves.handed_over) == 1


VALUES = [*range(150), [], *range(150, 200)]
"""One item of these is no number."""

GOOD = [
    pair
    for index, value in enumerate(VALUES)
    if isinstance(value, int) and value % 2 == 0
    for pair in ((index, value), (index, str(value)))
]


async def test_what_is_refused_is_parked_with_the_workers_words_and_corrected_item_by_item(
    sqlite_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(sqlite_url, GRAPH)
    daemon = start_daemon(sqlite_url, SOON)
    keeps, halves = Keeps(), Halves(sqlite_url)
    async with serving(daemon, "store_1", keeps), serving(daemon, "halves_1", halves):
        receipt = await emit(daemon, send_values(VALUES))
        await become(sqlite_url, receipt.envelope_id, store_1="parked")
        (failure,) = shown(sqlite_url, receipt.envelope_id).failures
        assert (failure.message, failure.indices, failure.node) == ("no number", [150], "halves")
        assert attempts(sqlite_url) == [("failed", "refused")]
        operator = Operator(daemon)
        correction = ("--event", "1", "--item", "150", "--value", "1", "--reason", "a slip")
        await operator.give("correct", receipt.envelope_id, *correction, "--resume")
        await become(sqlite_url, receipt.envelope_id, store_1="done")
    assert keeps.committed == {receipt.envelope_id: GOOD}
    assert (len(halves.handed_over), len(halves.ordinary)) == (1, 1)


async def test_where_bad_items_are_isolated_the_rest_takes_the_ordinary_path(
    database_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(database_url, GRAPH)
    isolate_bad_items(database_url, "numbers")
    daemon = start_daemon(database_url, SOON)
    keeps, halves = Keeps(), Halves(database_url)
    async with serving(daemon, "store_1", keeps), serving(daemon, "halves_1", halves):
        receipt = await emit(daemon, send_values(VALUES))
        await become(database_url, receipt.envelope_id, store_1="done")
    assert keeps.committed == {receipt.envelope_id: GOOD}
    assert (len(halves.handed_over), len(halves.ordinary)) == (1, 1)


@pytest.mark.usefixtures("each_way")
async def test_what_can_not_be_made_now_is_tried_again_and_then_parked(
    sqlite_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(sqlite_url, GRAPH, wishes={"store": {"attempts": 3}})
    daemon = start_daemon(sqlite_url, SOON)
    keeps, halves = Keeps(), Halves(sqlite_url)
    async with serving(daemon, "store_1", keeps), serving(daemon, "halves_1", halves):
        halves.fails = 2
        well = await emit(daemon, send_numbers(200))
        await become(sqlite_url, well.envelope_id, store_1="done")
        assert attempts(sqlite_url) == [("failed", "cluster_away"), ("failed", "cluster_away"), ("ready", None)]
        halves.fails = 3
        never = await emit(daemon, send_numbers(200))
        roles = await become(sqlite_url, never.envelope_id, store_1="parked")
        assert (roles["store_1"].code, roles["store_1"].attempts) == ("cluster_away", 3)
        await Operator(daemon).give("resume", never.envelope_id, "--reason", "it is back", "--yes")
        await become(sqlite_url, never.envelope_id, store_1="done")
    assert keeps.committed == {well.envelope_id: halved(200), never.envelope_id: halved(200)}


async def test_an_output_that_is_not_what_was_said_counts_for_nothing(
    database_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(database_url, GRAPH)
    daemon = start_daemon(database_url, SOON)
    keeps, halves = Keeps(), Halves(database_url)
    halves.lies = 1
    async with serving(daemon, "store_1", keeps), serving(daemon, "halves_1", halves):
        receipt = await emit(daemon, send_numbers(200))
        await become(database_url, receipt.envelope_id, store_1="done")
    assert attempts(database_url) == [("failed", "output_mismatch"), ("ready", None)]
    assert keeps.committed == {receipt.envelope_id: halved(200)}


async def test_the_example_counts_large_and_small_events_alike(database_url: str, start_daemon: StartDaemon) -> None:
    add_bus(database_url, GRAPH)
    daemon = start_daemon(database_url, SOON)
    keeps, totals = Keeps(), Totals(database_url)
    totals.min_bulk_items = 1_000
    async with serving(daemon, "store_1", keeps), serving(daemon, "halves_1", totals):
        for count in (999, 1_000, 20_000):
            receipt = await emit(daemon, send_numbers(count))
            await become(database_url, receipt.envelope_id, store_1="done")
            assert keeps.committed[receipt.envelope_id] == [(-1, {"name": f"{count} clients"})]
    assert attempts(database_url) == [("ready", None), ("ready", None)]


async def test_what_is_replayed_is_made_anew_from_the_same_items(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, GRAPH)
    daemon = start_daemon(sqlite_url, SOON)
    keeps, halves = Keeps(), Halves(sqlite_url)
    async with serving(daemon, "store_1", keeps), serving(daemon, "halves_1", halves):
        receipt = await emit(daemon, send_numbers(200))
        await become(sqlite_url, receipt.envelope_id, store_1="done")
        again = await emit(daemon, lambda emitter: emitter.replay(receipt.envelope_id))
        await become(sqlite_url, again, store_1="done")
    assert keeps.committed == {receipt.envelope_id: halved(200), again: halved(200)}
    first, second = halves.handed_over
    assert (first.source, second.source) == (first.event_id, first.event_id)


async def test_a_large_event_keeps_its_place_where_order_is_wanted(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, GRAPH)
    with writing(sqlite_url) as connection:
        connection.execute(sa.update(model.role).where(model.role.c.login == "store_1").values(ordered=True))
    daemon = start_daemon(sqlite_url, SOON)
    keeps, halves = Keeps(), Halves(sqlite_url)
    halves.gate.clear()
    async with serving(daemon, "store_1", keeps), serving(daemon, "halves_1", halves):
        large = await emit(daemon, send_numbers(200))
        await eventually(halves.at_work.is_set, "the output is begun")
        small = [await emit(daemon, send_numbers(2)) for _ in range(3)]
        await become(sqlite_url, small[-1].envelope_id, store_1="held")
        halves.gate.set()
        await become(sqlite_url, small[-1].envelope_id, store_1="done")
    assert list(keeps.committed) == [receipt.envelope_id for receipt in (large, *small)]
