"""An administrator edits the tables of the configuration by SQL, while the broker runs."""

import time
from collections.abc import Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from tests.conftest import StartDaemon
from tests.support.bus import add_bus
from tests.support.daemon import Daemon
from tests.support.old_clients import OldConsumer, OldEmitter, OldWorker
from tests.support.operating import run_xbus, xbus
from tests.support.showing import become, progress
from tests.support.waiting import eventually
from xbus import model
from xbus.broker.journal.database.connection import writing

NOTICED_SECONDS = 2.0


def run_sql(url: str, *statements: str) -> None:
    """Edit tables as somebody does with the database's own program."""
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    engine.dispose()


async def edit(daemon: Daemon, url: str, *statements: str) -> None:
    """Edit tables, and wait until the broker has noticed it."""
    seen = daemon.log.count("configuration read")
    run_sql(url, *statements)
    began = time.monotonic()
    await eventually(lambda: daemon.log.count("configuration read") > seen, "the broker has noticed it")
    assert time.monotonic() - began < NOTICED_SECONDS


async def test_an_edited_profile_counts_for_the_next_event(database_url: str, start_daemon: StartDaemon) -> None:
    add_bus(database_url, {"test_event": {"c": []}, "forbidden_event": {"c": []}})
    daemon = start_daemon(database_url)
    allow = (
        "INSERT INTO profile_event_type (profile_id, event_type_id) "
        "SELECT p.id, t.id FROM emitter_profile p, event_type t WHERE t.name = 'forbidden_event'"
    )
    async with OldEmitter(daemon.front) as emitter, OldConsumer(daemon.back, "c_1") as consumer:
        envelope_id = await emitter.call.start_envelope(emitter.token)
        assert await emitter.call.start_event(emitter.token, envelope_id, "forbidden_event", 0) == ""
        await edit(daemon, database_url, allow)
        await consumer.wait_for([await emitter.emit(b"item", type_name="forbidden_event")])
        await edit(daemon, database_url, "DELETE FROM profile_event_type")
        envelope_id = await emitter.call.start_envelope(emitter.token)
        assert await emitter.call.start_event(emitter.token, envelope_id, "test_event", 0) == ""


async def test_a_role_that_is_inserted_gets_what_comes_from_then_on(
    database_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(database_url, {"test_event": {"c": []}})
    daemon = start_daemon(database_url)
    new = (
        "INSERT INTO role (login, password_hash, service_id) "
        "SELECT 'c_2', password_hash, service_id FROM role WHERE login = 'c_1'"
    )
    async with OldEmitter(daemon.front) as emitter:
        await emitter.emit(b"before")
        await edit(daemon, database_url, new)
        async with OldConsumer(daemon.back, "c_2") as consumer:
            after = await emitter.emit(b"after")
            await consumer.wait_for([after])
            assert consumer.committed == [after]
            await edit(daemon, database_url, "UPDATE role SET removed_at = '2026-01-01 00:00:00' WHERE login = 'c_2'")
            await eventually(lambda: "its role was changed or removed" in daemon.log, "it is served no longer")


async def test_an_edited_graph_is_the_way_of_what_comes(database_url: str, start_daemon: StartDaemon) -> None:
    add_bus(database_url, {"test_event": {"c": []}, "other": {"d": []}})
    daemon = start_daemon(database_url)
    other_way = (
        "UPDATE node SET service_id = (SELECT id FROM service WHERE name = 'd') "
        "WHERE name = 'c' AND graph_id = (SELECT MIN(id) FROM graph)"
    )
    async with (
        OldEmitter(daemon.front) as emitter,
        OldConsumer(daemon.back, "c_1") as first,
        OldConsumer(daemon.back, "d_1") as second,
    ):
        before = await emitter.emit(b"before")
        await first.wait_for([before])
        await edit(daemon, database_url, other_way)
        await second.wait_for([after := await emitter.emit(b"after")])
    assert (first.committed, second.committed) == ([before], [after])


@pytest.mark.parametrize(
    ("wrong", "place", "cause", "right"),
    [
        (
            [
                "INSERT INTO edge (parent_id, child_id) "
                "SELECT b.id, a.id FROM node a, node b WHERE a.name = 'w' AND b.name = 'v'"
            ],
            "graph ",
            "nodes lead back to themselves",
            [
                "DELETE FROM edge WHERE parent_id = (SELECT id FROM node WHERE name = 'v') "
                "AND child_id = (SELECT id FROM node WHERE name = 'w')"
            ],
        ),
        (
            ["UPDATE service SET jitter = 7 WHERE name = 'c'"],
            "service",
            "jitter is 7.0, and has to be from 0 to 1",
            ["UPDATE service SET jitter = 0.5 WHERE name = 'c'"],
        ),
        (
            ["INSERT INTO sending_limit (kind, subject_id, items_per_second) VALUES ('emitter', 1, 0)"],
            "sending_limit emitter, 1",
            "items_per_second is 0, and has to be 1 or more",
            ["UPDATE sending_limit SET items_per_second = 5000"],
        ),
        (
            ["INSERT INTO bot (name, emitter_id, command) SELECT 'b', min(id), '5' FROM emitter"],
            "bot",
            "command is 5, and has to be a JSON list of texts",
            ["DELETE FROM bot"],
        ),
        (
            ["UPDATE service SET removed_at = '2026-01-01 00:00:00' WHERE name = 'c'"],
            "event_type",
            'there is no service "c"',
            ["UPDATE service SET removed_at = NULL WHERE name = 'c'"],
        ),
    ],
)
async def test_what_makes_no_sense_is_told_and_the_last_good_configuration_stays(
    wrong: Sequence[str],
    place: str,
    cause: str,
    right: Sequence[str],
    database_url: str,
    start_daemon: StartDaemon,
) -> None:
    add_bus(database_url, {"test_event": {"w": ["v"], "v": ["c"], "c": []}, "direct": {"c": []}})
    daemon = start_daemon(database_url)
    async with OldEmitter(daemon.front) as emitter, OldConsumer(daemon.back, "c_1") as consumer:
        run_sql(database_url, *wrong)
        await eventually(lambda: "configuration wrong" in daemon.log, "it is noticed")
        health = await run_xbus(daemon, "health", "--json")
        assert health.returncode == 1
        assert "configuration_wrong" in health.stdout
        assert cause in health.stdout.replace('\\"', '"')
        assert place in health.stdout
        await consumer.wait_for([await emitter.emit(b"item", type_name="direct")])
        await edit(daemon, database_url, *right)
        assert "healthy" in await xbus(daemon, "health")
        await consumer.wait_for([await emitter.emit(b"item", type_name="direct")])


async def test_a_circular_graph_parks_what_goes_that_way_and_stops_nobody_else(
    database_url: str, start_daemon: StartDaemon
) -> None:
    """The broker takes no more of that type, but some envelopes were sealed before the edit."""
    add_bus(
        database_url,
        {"test_event": {"w": ["v"], "v": ["c"], "c": []}, "half": {"u": ["d"], "d": [], "c": []}, "direct": {"c": []}},
    )
    daemon = start_daemon(database_url)
    ends = "FROM node a, node b WHERE a.name = '{0}' AND b.name = '{1}'"
    back = [ends.format("w", "v"), ends.format("u", "u")]
    async with OldEmitter(daemon.front) as emitter:
        circular = await emitter.emit(b"item")
        half = await emitter.emit(b"item", type_name="half")
        direct = await emitter.emit(b"item", type_name="direct")
        run_sql(database_url, *(f"INSERT INTO edge (parent_id, child_id) SELECT b.id, a.id {edge}" for edge in back))
        await eventually(lambda: "configuration wrong" in daemon.log, "it is noticed")
    async with (
        OldWorker(daemon.back, "w_1"),
        OldWorker(daemon.back, "v_1"),
        OldConsumer(daemon.back, "c_1") as consumer,
    ):
        await consumer.wait_for([direct, half])
        await become(database_url, circular, c_1="parked")
        parked = progress(database_url, circular)["c_1"]
        assert parked.code == "graph_circular"
        assert 'the graph of event type "test_event" leads back to itself' in str(parked.cause)
        assert set(consumer.committed) == {direct, half}
        right = [
            f"DELETE FROM edge WHERE parent_id = (SELECT id FROM node WHERE name = '{parent}') "
            f"AND child_id = (SELECT id FROM node WHERE name = '{child}')"
            for parent, child in [("v", "w"), ("u", "u")]
        ]
        await edit(daemon, database_url, *right)
        await xbus(daemon, "parked", "resume", circular)
        await consumer.wait_for([circular])


async def test_a_broker_starts_without_a_row_that_makes_no_sense(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"test_event": {"c": []}, "other": {"d": []}})
    run_sql(
        sqlite_url,
        "UPDATE role SET service_id = 99, absent_minutes = 'soon' WHERE login = 'c_1'",
        "INSERT INTO event_type (name) VALUES ('by_hand')",
        "INSERT INTO profile_event_type SELECT p.id, t.id FROM emitter_profile p, event_type t WHERE t.name LIKE 'by%'",
    )
    daemon = start_daemon(sqlite_url)
    assert "absent_minutes is no number" in (await run_xbus(daemon, "health")).stdout
    async with OldEmitter(daemon.front) as emitter, OldConsumer(daemon.back, "d_1") as consumer:
        await emitter.emit(b"item", type_name="by_hand")
        missed = await emitter.emit(b"item")
        await consumer.wait_for([await emitter.emit(b"item", type_name="other")])
        await edit(daemon, sqlite_url, "UPDATE role SET absent_minutes = NULL WHERE login = 'c_1'")
        cause = "service_id is 99, and service has no such row"
        assert cause in (await run_xbus(daemon, "health")).stdout
        right = "UPDATE role SET service_id = (SELECT id FROM service WHERE name = 'c') WHERE login = 'c_1'"
        await edit(daemon, sqlite_url, right)
        async with OldConsumer(daemon.back, "c_1") as late:
            await late.wait_for([missed])
    assert "healthy" in await xbus(daemon, "health")


def version(url: str) -> Any:
    with writing(url) as connection:
        return connection.execute(sa.select(model.configuration.c.version)).scalar_one()


def test_apply_counts_once_whatever_it_changes(database_url: str) -> None:
    before = version(database_url)
    add_bus(database_url, {"test_event": {"w": ["c"], "c": []}, "other": {"c": []}})
    # A plan, and a password for each of two roles and two emitters.
    assert version(database_url) == before + 1 + 4
    run_sql(database_url, "UPDATE emitter SET login = login")
    assert version(database_url) > before + 5
