"""History reaches who comes later, and who wants it again: real commands beside a real broker."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.conftest import StartDaemon, StartProcess
from tests.support.bus import PASSWORD, add_bus
from tests.support.daemon import Daemon, Options
from tests.support.journal import looking
from tests.support.old_clients import OldConsumer, OldEmitter, OldWorker
from tests.support.operating import run_xbus, xbus
from tests.support.processes import script
from tests.support.showing import become, progress, shown
from tests.support.waiting import answered, eventually
from xbus import model
from xbus.emitter import AsyncEmitter

NEW_SERVICE = """
[[event_type]]
name = "test_event"
[[event_type.node]]
name = "c"
service = "c"
[[event_type.node]]
name = "w"
service = "w"
to = ["late"]
[[event_type.node]]
name = "late"
service = "late"
[[service]]
name = "w"
kind = "worker"
[[service]]
name = "late"
kind = "consumer"
[[role]]
login = "w_1"
service = "w"
[[role]]
login = "late_1"
service = "late"
start = "oldest"
"""

IN_ITS_PLACE = """
[[event_type]]
name = "test_event"
[[event_type.node]]
name = "late"
service = "late"
[[service]]
name = "late"
kind = "consumer"
[[role]]
login = "late_1"
service = "late"
start = "oldest"
"""


async def let_in(daemon: Daemon, *logins: str) -> None:
    for login in logins:
        await xbus(daemon, "password", "role", login, "--stdin", stdin=PASSWORD)


async def send(daemon: Daemon, envelopes: int) -> None:
    """Send envelopes of one item each, fast."""
    async with AsyncEmitter(daemon.front, "emitter_1", PASSWORD) as emitter:
        for first in range(0, envelopes, 50):
            numbers = range(first, min(first + 50, envelopes))
            await asyncio.gather(*(emitter.put("test_event", [b"%d" % number]) for number in numbers))


def count_replays(url: str) -> int:
    wanted = sa.select(sa.func.count()).where(model.envelope_role.c.replay.is_not(None))
    with looking(url) as connection:
        return int(connection.execute(wanted).scalar_one())


async def test_a_new_service_that_starts_at_the_oldest_gets_all_that_was_sent_before_it_came(
    database_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(database_url, {"test_event": {"c": []}, "other": {"c": []}})
    daemon = start_daemon(database_url)
    async with OldEmitter(daemon.front) as emitter, OldConsumer(daemon.back, "c_1") as first:
        sent = [await emitter.emit(b"%d" % number) for number in range(3)]
        await emitter.emit(b"of another type", type_name="other")
        await eventually(lambda: len(first.committed) == 4, "the first consumer has all")
        told = await xbus(daemon, "apply", "-", stdin=NEW_SERVICE)
        assert 'Earlier events of type "test_event" had no node for service late.' in told
        assert "3 envelopes, 3 events, 3 items" in told
        assert "Sent 3 envelopes with 3 items to late_1." in told
        await let_in(daemon, "w_1", "late_1")
        async with OldWorker(daemon.back, "w_1"), OldConsumer(daemon.back, "late_1") as late:
            sent.append(await emitter.emit(b"3"))
            await eventually(lambda: len(late.committed) == 4, "the late consumer has the history and what is new")
            await become(database_url, sent[-1], late_1="done", c_1="done")
            assert sorted(late.items()) == [b"0 w_1", b"1 w_1", b"2 w_1", b"3 w_1"]
            history = [item for item in late.items() if item != b"3 w_1"]
            assert history == [b"0 w_1", b"1 w_1", b"2 w_1"]
        assert len(first.committed) == 5
        repeated = await xbus(daemon, "apply", "-", stdin=NEW_SERVICE)
    assert "Nothing to change" in repeated
    assert count_replays(database_url) == 3
    assert await states(database_url, sent[0]) == {"c_1": "done"}


async def states(url: str, envelope_id: str) -> dict[str, str]:
    found = await asyncio.to_thread(progress, url, envelope_id)
    return {login: role.state for login, role in found.items()}


async def test_a_range_is_sent_again_to_one_role_and_to_nobody_else(
    database_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(database_url, {"test_event": {"w": ["c"], "c": []}, "other": {"c": []}}, {"c": 2})
    daemon = start_daemon(database_url)
    async with (
        OldEmitter(daemon.front) as emitter,
        OldWorker(daemon.back, "w_1"),
        OldConsumer(daemon.back, "c_1") as one,
        OldConsumer(daemon.back, "c_2") as two,
    ):
        envelopes = [await emitter.emit(b"%d" % number) for number in range(5)]
        mixed, event_id = await emitter.start("other")
        await emitter.send(mixed, event_id, b"not this")
        second_id = await emitter.start_event(mixed, "test_event")
        await emitter.send(mixed, second_id, b"but this")
        await emitter.end(mixed, event_id, second_id)
        for envelope_id in (*envelopes, mixed):
            await become(database_url, envelope_id, c_1="done", c_2="done")
        for consumer in (one, two):
            consumer.calls.clear()

        replay = ["replay", "--type", "test_event", "--role", "c_1", "--from", "3"]
        told = await xbus(daemon, *replay, "--dry-run")
        assert 'To c_1 (service c), events of type "test_event"' in told
        assert "4 envelopes, 4 events, 4 items, sealed from 20" in told
        assert count_replays(database_url) == 0
        assert (await run_xbus(daemon, *replay, stdin="n\n")).returncode == 1
        assert count_replays(database_url) == 0
        told = await xbus(daemon, *replay, "--reason", "lost a disk", "--yes")
        assert "Sent 4 envelopes with 4 items to c_1." in told
        await eventually(lambda: len(one.committed) == 4, "the range has come again")
        last = await emitter.emit(b"last")
        await two.wait_for([last])
        assert two.committed == [last]
        assert one.items() == [b"2 w_1", b"3 w_1", b"4 w_1", b"but this w_1", b"last w_1"]
        again = one.committed[0]
        assert not {*envelopes, mixed} & {*one.committed}
        summary = shown(database_url, again).summary
        assert (str(summary.origin), summary.only_roles) == (envelopes[2], ("c_1",))
        # Of what came again nobody says that it was retried: it was never parked.
        assert await states(database_url, envelopes[2]) == {"c_1": "done", "c_2": "done"}
        assert await emitter.call.retry_event(emitter.token, second_id) == ""

        told = await xbus(daemon, *replay, "--to", "6", "--yes")
        assert "left out: 4 envelopes were replayed to it before" in told
        assert "Nothing is left to send." in told
        assert "Sent 4 envelopes" in await xbus(daemon, *replay, "--to", "6", "--again", "second disk", "--yes")
        await eventually(lambda: len(one.committed) == 9, "the range has come once more")


@pytest.mark.slow
async def test_a_command_that_is_killed_is_repeated_and_nothing_comes_twice(
    database_url: str, start_daemon: StartDaemon, start_process: StartProcess
) -> None:
    add_bus(database_url, {"test_event": {"c": []}}, {"c": 2})
    daemon = start_daemon(database_url)
    async with OldConsumer(daemon.back, "c_1") as consumer:
        await send(daemon, 900)
        await eventually(lambda: len(consumer.committed) == 900, "all is delivered")
        first_time = consumer.items()
        consumer.calls.clear()
        command = ["replay", "--type", "test_event", "--role", "c_1", "--from", "oldest", "--to", "900", "--yes"]
        running = start_process(script("xbus"), *command, "-c", daemon.config)
        await eventually(lambda: count_replays(database_url), "the first of them are sent")
        os.kill(running.pid, signal.SIGKILL)
        before = await asyncio.to_thread(count_replays, database_url)
        told = await xbus(daemon, *command)
        assert count_replays(database_url) == 900
        assert before == 900 or f"Sent {900 - before} envelopes" in told
        await eventually(lambda: len(consumer.committed) == 900, "all has come again")
    assert consumer.items() == first_time


async def test_it_works_where_front_and_back_are_processes_of_their_own(
    postgres_url: str, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    add_bus(postgres_url, {"test_event": {"c": []}})
    options: Options = {"zmq": {"b2fsocket": f"ipc://{tmp_path}/f2b"}}
    back = start_daemon(postgres_url, options, only="back")
    front = start_daemon(postgres_url, options, only="front")
    async with OldEmitter(front.front) as emitter, OldConsumer(back.back, "c_1") as consumer:
        await consumer.wait_for([await emitter.emit(b"x")])
        await xbus(front, "replay", "--type", "test_event", "--role", "c_1", "--from", "1h", "--yes")
        await eventually(lambda: len(consumer.committed) == 2, "it has come again")
    assert consumer.items() == [b"x", b"x"]


async def test_what_is_rerouted_to_a_new_service_comes_to_it_once(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"test_event": {"c": []}, "other": {"c": []}})
    daemon = start_daemon(sqlite_url)
    async with OldEmitter(daemon.front) as emitter:
        async with OldConsumer(daemon.back, "c_1") as first:
            had = await emitter.emit(b"had")
            await first.wait_for([had])
            await become(sqlite_url, had, c_1="done")
        await eventually(lambda: "recipient left" in daemon.log, "it is known that it has gone")
        await emitter.emit(b"owed")
        replay = ["replay", "--type", "test_event", "--role", "late_1", "--from", "1", "--unreached"]
        told = await xbus(daemon, "apply", "-", "--owed", "reroute", stdin=IN_ITS_PLACE)
        assert f"xbus {' '.join(replay)}\n" in told
        await eventually(lambda: "decision carried out" in daemon.log, "what is owed is rerouted")

        async def replayed() -> str:
            # The log tells of the decision a moment before the journal has it.
            done = await run_xbus(daemon, *replay, "--yes")
            return "" if "reroute_pending" in done.stderr else done.stdout

        assert "Sent 1 envelope" in await answered(replayed, "what is rerouted is written down")
        await let_in(daemon, "late_1")
        async with OldConsumer(daemon.back, "late_1") as late:
            await late.wait_for([await emitter.emit(b"new")])
            await eventually(lambda: len(late.committed) == 3, "it has all of it")
    assert sorted(late.items()) == [b"had", b"new", b"owed"]
