"""Broker and bulk workers die, are stopped, and start again while an output is made: it is delivered once, whole."""

import asyncio
from pathlib import Path

import pytest

from tests.conftest import StartDaemon, StartProcess
from tests.support import postgres
from tests.support.attempts import attempts
from tests.support.bulk_worker import GRAPH, SOON, Halves, halved
from tests.support.bus import add_bus
from tests.support.daemon import Daemon, Options
from tests.support.operating import xbus
from tests.support.processes import Process, module
from tests.support.sdk import Keeps, emit, send_numbers
from tests.support.serving import serving
from tests.support.showing import become
from tests.support.waiting import eventually
from xbus.recipient import Envelope
from xbus.recipient.bulk import RENEWALS

EDITED = """
[[event_type]]
name = "numbers"
[[event_type.node]]
name = "other"
service = "other"
"""
"""It leads to another consumer, without a worker."""

REGISTER_SECONDS = 0.5

SHORT_LEASE: Options = {
    "back": {**SOON["back"], "bulk_lease": 3, "attempts": 100},
    "supervision": SOON["supervision"],
}
"""It may be over as well because the machine stood still for a moment: then another attempt is made."""


class KeepsAgain(Keeps):
    """What a crash left without an answer may come again, the same as before."""

    def commit(self, envelope: Envelope) -> None:
        assert self.committed.setdefault(envelope.id, envelope.state["items"]) == envelope.state["items"]


def program(start_process: StartProcess, daemon: Daemon, login: str, gate: str) -> Process:
    """A bulk worker in a process of its own."""
    return start_process(*module("tests.support.bulk_worker"), daemon.url, daemon.back, login, gate)


@pytest.mark.parametrize("end", ["kill", "stop"])
@pytest.mark.usefixtures("each_way")
async def test_a_job_outlives_the_broker(end: str, database_url: str, start_daemon: StartDaemon) -> None:
    add_bus(database_url, GRAPH)
    daemon = start_daemon(database_url, SOON)
    keeps, halves = Keeps(), Halves(database_url)
    halves.gate.clear()
    async with serving(daemon, "store_1", keeps), serving(daemon, "halves_1", halves):
        receipt = await emit(daemon, send_numbers(200))
        await eventually(halves.at_work.is_set, "the output is begun")
        await become(database_url, receipt.envelope_id, store_1="waiting")
        if end == "kill":
            daemon.crash()
        else:
            assert await asyncio.to_thread(daemon.stop) == 0
        # It goes on, and ends, while nobody is there to be told.
        halves.gate.set()
        await asyncio.to_thread(daemon.start)
        await become(database_url, receipt.envelope_id, store_1="done")
    assert keeps.committed == {receipt.envelope_id: halved(200)}
    assert len(halves.handed_over) == 1
    assert attempts(database_url) == [("ready", None)]


@pytest.mark.usefixtures("each_way")
async def test_the_broker_is_killed_again_and_again(database_url: str, start_daemon: StartDaemon) -> None:
    add_bus(database_url, {"numbers": {"first": ["second"], "second": ["store"], "store": []}})
    daemon = start_daemon(database_url, SHORT_LEASE)
    keeps, first, second = KeepsAgain(), Halves(database_url), Halves(database_url)
    async with (
        serving(daemon, "store_1", keeps),
        serving(daemon, "first_1", first),
        serving(daemon, "second_1", second),
    ):
        receipts = []
        for seconds in (0.0, 0.1, 0.3, 0.6):
            receipts.append(await emit(daemon, send_numbers(2_000)))
            await asyncio.sleep(seconds)
            daemon.crash()
            await asyncio.to_thread(daemon.start)
        for receipt in receipts:
            await become(database_url, receipt.envelope_id, store_1="done")
    assert set(keeps.committed) == {receipt.envelope_id for receipt in receipts}
    assert len({str(items) for items in keeps.committed.values()}) == 1, "each came to the same"


async def test_a_worker_that_is_killed_is_replaced_when_its_lease_is_over(
    database_url: str, start_daemon: StartDaemon, start_process: StartProcess
) -> None:
    add_bus(database_url, GRAPH, {"halves": 2})
    daemon = start_daemon(database_url, SHORT_LEASE)
    keeps, other = Keeps(), Halves(database_url)
    doomed = program(start_process, daemon, "halves_1", "closed")
    async with serving(daemon, "store_1", keeps):
        receipt = await emit(daemon, send_numbers(200))
        await eventually(lambda: attempts(database_url) == [("building", None)], "the output is begun")
        async with serving(daemon, "halves_2", other):
            doomed.kill()
            await become(database_url, receipt.envelope_id, store_1="done")
    assert keeps.committed == {receipt.envelope_id: halved(200)}
    *lost, last = attempts(database_url)
    assert (set(lost), last) == ({("abandoned", "lease_over")}, ("ready", None))


async def test_a_worker_that_starts_anew_says_that_it_makes_nothing(
    sqlite_url: str, start_daemon: StartDaemon, start_process: StartProcess
) -> None:
    """The lease is long: nobody need wait for its end."""
    options: Options = {
        "back": {**SOON["back"], "register_timeout": REGISTER_SECONDS, "bulk_lease": 3600},
        "supervision": SOON["supervision"],
    }
    add_bus(sqlite_url, GRAPH)
    daemon = start_daemon(sqlite_url, options)
    keeps, again = Keeps(), Halves(sqlite_url)
    doomed = program(start_process, daemon, "halves_1", "closed")
    async with serving(daemon, "store_1", keeps):
        receipt = await emit(daemon, send_numbers(200))
        await eventually(lambda: "makes" in doomed.text, "the worker has it")
        # Of what began while it introduced itself a worker can't tell: there is nothing to be seen of the end of that.
        await asyncio.sleep(REGISTER_SECONDS)
        doomed.kill()
        async with serving(daemon, "halves_1", again):
            await become(sqlite_url, receipt.envelope_id, store_1="done")
    assert keeps.committed == {receipt.envelope_id: halved(200)}
    assert attempts(sqlite_url) == [("abandoned", "output_lost"), ("ready", None)]


@pytest.mark.usefixtures("each_way")
async def test_a_worker_that_stops_hands_back_what_it_has_not_made(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, GRAPH, {"halves": 2}, wishes={"store": {"attempts": 1}})
    daemon = start_daemon(sqlite_url, SOON)
    keeps, stopping, other = Keeps(), Halves(sqlite_url), Halves(sqlite_url)
    stopping.gate.clear()
    async with serving(daemon, "store_1", keeps):
        async with serving(daemon, "halves_1", stopping):
            receipt = await emit(daemon, send_numbers(200))
            await eventually(stopping.at_work.is_set, "the output is begun")
        async with serving(daemon, "halves_2", other):
            await become(sqlite_url, receipt.envelope_id, store_1="done")
    assert stopping.cancelled == 1
    assert attempts(sqlite_url) == [("failed", "recipient_stopping"), ("ready", None)]


async def test_two_workers_of_a_service_share_the_work(database_url: str, start_daemon: StartDaemon) -> None:
    add_bus(database_url, GRAPH, {"halves": 2})
    daemon = start_daemon(database_url, SOON)
    keeps, one, two = Keeps(), Halves(database_url), Halves(database_url)
    one.gate.clear()
    two.gate.clear()
    async with (
        serving(daemon, "store_1", keeps),
        serving(daemon, "halves_1", one),
        serving(daemon, "halves_2", two),
    ):
        receipts = [await emit(daemon, send_numbers(200)) for _ in range(3)]
        await eventually(lambda: one.handed_over and two.handed_over, "each has one")
        assert (len(one.handed_over), len(two.handed_over)) == (1, 1), "one has a single slot"
        one.gate.set()
        two.gate.set()
        for receipt in receipts:
            await become(database_url, receipt.envelope_id, store_1="done")
    assert keeps.committed == {receipt.envelope_id: halved(200) for receipt in receipts}


async def test_what_nobody_is_owed_any_more_is_broken_off(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, GRAPH)
    daemon = start_daemon(sqlite_url, SOON)
    halves = Halves(sqlite_url)
    halves.gate.clear()
    async with serving(daemon, "halves_1", halves):
        async with serving(daemon, "store_1", Keeps()):
            receipt = await emit(daemon, send_numbers(200))
            await eventually(halves.at_work.is_set, "the output is begun")
            await become(sqlite_url, receipt.envelope_id, store_1="waiting")
        await xbus(daemon, "recipient", "detach", "store_1", "--reason", "it is gone", "--yes")
        await eventually(lambda: halves.cancelled == 1, "the job is cancelled")
        await eventually(lambda: attempts(sqlite_url) == [("abandoned", "unwanted")], "that is written down")


async def test_a_program_that_is_killed_leaves_nothing_that_counts(
    sqlite_url: str, start_daemon: StartDaemon, start_process: StartProcess
) -> None:
    """Broker and worker are killed together."""
    add_bus(sqlite_url, GRAPH)
    daemon = start_daemon(sqlite_url, SHORT_LEASE)
    keeps = Keeps()
    doomed = program(start_process, daemon, "halves_1", "closed")
    async with serving(daemon, "store_1", keeps):
        receipt = await emit(daemon, send_numbers(200))
        await eventually(lambda: attempts(sqlite_url) == [("building", None)], "the output is begun")
        doomed.kill()
        daemon.crash()
        await asyncio.to_thread(daemon.start)
        async with serving(daemon, "halves_1", Halves(sqlite_url)):
            await become(sqlite_url, receipt.envelope_id, store_1="done")
    assert keeps.committed == {receipt.envelope_id: halved(200)}


async def test_the_database_is_away_while_an_output_is_made(
    url: str, cluster: postgres.Cluster, start_daemon: StartDaemon
) -> None:
    add_bus(url, GRAPH)
    daemon = start_daemon(url, {**SHORT_LEASE, "back": {**SHORT_LEASE["back"], "bulk_lease": 6}})
    keeps, halves = Keeps(), Halves(url)
    halves.gate.clear()
    async with serving(daemon, "store_1", keeps), serving(daemon, "halves_1", halves):
        receipt = await emit(daemon, send_numbers(200))
        await eventually(halves.at_work.is_set, "the output is begun")
        await become(url, receipt.envelope_id, store_1="waiting")
        await asyncio.to_thread(cluster.stop)
        # Longer than the lease: that the worker lives is known without the database.
        await eventually(lambda: daemon.log.count("lease_unwritten") > RENEWALS + 1, "the lease would be over")
        await asyncio.to_thread(cluster.start)
        halves.gate.set()
        await become(url, receipt.envelope_id, store_1="done")
        assert attempts(url) == [("ready", None)]

        halves.gate.clear()
        halves.at_work.clear()
        again = await emit(daemon, send_numbers(200))
        await eventually(halves.at_work.is_set, "the output is begun")
        await asyncio.to_thread(cluster.stop)
        halves.gate.set()
        await eventually(lambda: "output_failed" in daemon.log or "attempt_unwritten" in daemon.log, "it was told")
        await asyncio.to_thread(cluster.start)
        await become(url, again.envelope_id, store_1="done")
    assert keeps.committed == {receipt.envelope_id: halved(200), again.envelope_id: halved(200)}
    assert [state for state, _ in attempts(url)] == ["ready", "failed", "ready"]


async def test_a_graph_that_is_edited_takes_the_job_from_its_worker(
    sqlite_url: str, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    add_bus(sqlite_url, {**GRAPH, "others": {"other": []}})
    daemon = start_daemon(sqlite_url, SOON)
    keeps, halves = Keeps(), Halves(sqlite_url)
    halves.gate.clear()
    edited = tmp_path / "edited.toml"
    edited.write_text(EDITED)
    async with serving(daemon, "halves_1", halves), serving(daemon, "store_1", keeps):
        receipt = await emit(daemon, send_numbers(200))
        await eventually(halves.at_work.is_set, "the output is begun")
        await become(sqlite_url, receipt.envelope_id, store_1="waiting")
        await xbus(daemon, "apply", edited, "--owed", "drop", "--yes")
        await eventually(lambda: halves.cancelled == 1, "the job is cancelled")
        await eventually(lambda: attempts(sqlite_url) == [("abandoned", "unwanted")], "that is written down")
    assert keeps.committed == {}
