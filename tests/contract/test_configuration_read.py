"""A broker reads the configuration once for all who wait, and checks it after edits by SQL; on every database."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from typing import Any, cast

import pytest
import sqlalchemy as sa

from tests.contract.test_readers import change
from tests.support.journal import NOW, Scribe, add_small_bus, edit_sqlite, looking
from xbus import model
from xbus.broker.configuration import Configuration
from xbus.broker.journal.audit import RepairDecision
from xbus.broker.journal.commit.statements import pauses
from xbus.broker.journal.configuration import BotSpec, BusSpec, EventTypeSpec
from xbus.broker.journal.configuration.checked import read_checked, read_readable
from xbus.broker.journal.configuration.pausing import pause, resume
from xbus.broker.journal.database.engine import create_engine
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.catalog import read_graph, read_pauses
from xbus.broker.journal.operations.bots import list_bots
from xbus.broker.journal.operations.roles import list_roles
from xbus.broker.journal.topics import ensure_topics
from xbus.broker.journal.writes import EndPauses, PauseKind
from xbus.clock import SystemClock
from xbus.supervision.health import Health

WRONG = "configuration_wrong"


class ReadsOf:
    """A journal that counts how often the configuration is read."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.reads = 0

    async def read(self, question: Any, *arguments: Any) -> Any:
        self.reads += question is read_checked
        return await self._journal.read(question, *arguments)


async def test_one_reads_for_all(journal: Journal, scribe: Scribe) -> None:
    counting = ReadsOf(journal)
    configuration = Configuration(cast(Journal, counting))
    await asyncio.gather(*(configuration.refresh() for _ in range(10)))
    assert counting.reads == 1
    await journal.run(change, BusSpec(event_types={"new": EventTypeSpec("new", False, {})}))
    await asyncio.gather(*(configuration.refresh() for _ in range(10)))
    assert (counting.reads, "new" in configuration.catalog.event_types) == (2, True)


async def test_what_programs_change_is_taken_and_what_sql_edits_is_checked(journal: Journal, scribe: Scribe) -> None:
    health = Health("broker", SystemClock())
    configuration = Configuration(journal, health)
    await configuration.refresh()
    await journal.run(break_a_rule)
    await configuration.refresh()
    assert [problem.code for problem in health.problems] == [WRONG]
    await journal.run(change_by_a_program)
    await configuration.refresh()
    assert [problem.code for problem in health.problems] == [WRONG], "it is checked until it is right"
    assert "later" in configuration.catalog.event_types
    await journal.run(mend_it)
    await configuration.refresh()
    assert not health.problems


def by_hand(*statements: str) -> Callable[[sa.Connection], None]:
    """Make an edit as somebody does with the database's own program."""

    def edit(connection: sa.Connection) -> None:
        for statement in statements:
            connection.exec_driver_sql(statement)

    return edit


ROWS = {
    "a type": ["INSERT INTO event_type (name) VALUES ('new')"],
    "a type whose graph was removed": [
        "INSERT INTO event_type (name) VALUES ('new')",
        "DELETE FROM graph WHERE event_type_id = (SELECT id FROM event_type WHERE name = 'new')",
    ],
    "a consumer": [
        "INSERT INTO service (name, kind) VALUES ('new', 'consumer'), ('newer', 'consumer')",
        "INSERT INTO role (login, service_id) SELECT 'new_1', id FROM service WHERE name = 'new'",
    ],
    "an emitter": [
        "INSERT INTO emitter_profile (name) VALUES ('new')",
        "INSERT INTO emitter (login, profile_id) SELECT 'new', id FROM emitter_profile WHERE name = 'new'",
    ],
    "a reader": [
        "INSERT INTO service (name, kind) VALUES ('new', 'reader')",
        "INSERT INTO reader (service_id) SELECT id FROM service WHERE name = 'new'",
        "INSERT INTO reader_event_type (service_id, event_type_id) SELECT s.id, t.id FROM service s, event_type t "
        "WHERE s.name = 'new' AND t.name = 'notes'",
    ],
    "a pause": ["INSERT INTO pause (kind, subject_id) SELECT 'role', id FROM role"],
    "a limit": [
        "INSERT INTO lag_limit (kind, subject_id, seconds) SELECT 'role', r.id, 60 FROM role r, service s "
        "WHERE s.id = r.service_id AND s.kind = 'consumer'"
    ],
}
"""Rows with no value but those that nothing else can say."""


@pytest.mark.parametrize("row", ROWS)
async def test_a_row_that_was_made_by_hand_counts(row: str, journal: Journal, scribe: Scribe) -> None:
    health = Health("broker", SystemClock())
    configuration = Configuration(journal, health)
    await configuration.refresh()
    await journal.run(by_hand(*ROWS[row]))
    await configuration.refresh()
    assert [problem.cause for problem in health.problems] == []
    started = Configuration(journal)
    await started.refresh()
    assert started.catalog.event_types == configuration.catalog.event_types
    assert ("new" in started.catalog.event_types) == row.startswith("a type")
    await journal.run(by_hand("INSERT INTO event_type (name) VALUES ('later')"))
    await configuration.refresh()
    later = configuration.catalog.event_types["later"]
    graph = await journal.read(read_graph, later.graph_id)
    assert graph.nodes == {}


BAD_ROWS = {
    "a setting of a service": ["UPDATE service SET jitter = 7 WHERE name = 'prices'"],
    "a service out of use": ["UPDATE service SET removed_at = '2026-01-01 00:00:00' WHERE name = 'prices'"],
    "a name": ["UPDATE event_type SET name = '' WHERE name = 'fares'"],
    "a login of an emitter": ["UPDATE emitter SET login = '' WHERE login = 'south'"],
    "a role": ["UPDATE role SET absent_minutes = -1 WHERE service_id = (SELECT id FROM service WHERE name = 'prices')"],
    "a circle": [
        "INSERT INTO edge (parent_id, child_id) SELECT b.id, a.id FROM node a, node b, graph, event_type "
        "WHERE a.name = 'names' AND b.name = 'prices' AND a.graph_id = b.graph_id AND graph.id = a.graph_id "
        "AND event_type.id = graph.event_type_id AND event_type.name = 'fares'"
    ],
    "a limit": ["INSERT INTO sending_limit (kind, subject_id, items_per_second) SELECT 'emitter', id, 0 FROM emitter"],
    "a lag": ["INSERT INTO lag_limit (kind, subject_id, envelopes) SELECT 'role', id, 0 FROM role"],
    "a reader without settings": ["INSERT INTO service (name, kind) VALUES ('empty', 'reader')"],
    "a command that is no list": [
        "INSERT INTO bot (name, emitter_id, command) SELECT 'bad', min(id), '5' FROM emitter"
    ],
    "a command that is null": [
        "INSERT INTO bot (name, emitter_id, command) SELECT 'bad', min(id), 'null' FROM emitter"
    ],
    "a word of a command": ["INSERT INTO bot (name, emitter_id, command) SELECT 'bad', min(id), '[5]' FROM emitter"],
    "settings that are no map": [
        "INSERT INTO bot (name, emitter_id, settings) SELECT 'bad', min(id), '[1]' FROM emitter"
    ],
    "a bot": ["INSERT INTO bot (name, emitter_id, attempts) SELECT 'bad', min(id), 0 FROM emitter"],
}
BAD_ROWS_OF_SQLITE = {
    "no JSON": ["INSERT INTO bot (name, emitter_id, command) SELECT 'bad', min(id), 'ls' FROM emitter"],
    "no JSON in settings": ["INSERT INTO bot (name, emitter_id, settings) SELECT 'bad', min(id), '{oops' FROM emitter"],
    "no number": ["UPDATE role SET absent_minutes = 'soon' WHERE login = 'prices_1'"],
    "no moment": ["UPDATE event_type SET removed_at = 'never' WHERE name = 'fares'"],
    "no moment of a pause": ["INSERT INTO pause (kind, subject_id, since) SELECT 'type', id, 'then' FROM event_type"],
    "a moment of SQLite alone": [
        "INSERT INTO pause (kind, subject_id, since) SELECT 'type', id, 'now' FROM event_type"
    ],
    "a day that is none": ["INSERT INTO pause (kind, subject_id, until) SELECT 'role', id, '2026-02-31' FROM role"],
    "no moment of a role": ["UPDATE role SET detached_at = 'then' WHERE login = 'prices_1'"],
}


@pytest.mark.parametrize("row", [*BAD_ROWS, *BAD_ROWS_OF_SQLITE])
async def test_one_wrong_row_stops_nothing_that_is_right(row: str, journal: Journal, scribe: Scribe) -> None:
    if row in BAD_ROWS_OF_SQLITE and not await journal.read(is_sqlite):
        pytest.skip("PostgreSQL takes no such row")
    health = Health("broker", SystemClock())
    running = Configuration(journal, health)
    await running.refresh()
    before = running.catalog
    await journal.run(by_hand(*(BAD_ROWS | BAD_ROWS_OF_SQLITE)[row]))
    await journal.run(by_hand("INSERT INTO event_type (name) VALUES ('later')"))
    await running.refresh()
    assert {problem.code for problem in health.problems} == {WRONG}
    assert running.catalog.event_types.keys() == before.event_types.keys() | {"later"}
    assert running.catalog.roles.keys() == before.roles.keys()
    sent = {key: each.event_types for key, each in before.emitters.items()}
    assert {key: each.event_types for key, each in running.catalog.emitters.items()} == sent

    # Operators and programs read the same rows.
    await journal.run(lambda connection: ensure_topics(connection, ["topic"], NOW))
    assert "notes" in (await journal.read(read_readable))[0].in_use.event_types
    await journal.read(list_bots, NOW)
    await journal.read(list_roles)

    started = Configuration(journal, Health("broker", SystemClock()))
    await started.refresh()
    right = {"flights", "notes", "wishes", "secrets", "later"}
    assert right <= started.catalog.event_types.keys()
    assert {"north"} <= {each.login for each in started.catalog.emitters.values()}
    stored = {each.login for each in started.catalog.roles.values() if each.service in ("store", "names")}
    assert stored == {each.login for each in before.roles.values() if each.service in ("store", "names")}


@pytest.mark.parametrize("column", ["since", "until"])
@pytest.mark.parametrize("moment", ["1.1.2020", "never"])
async def test_a_pause_with_a_moment_that_cannot_be_read_lasts_until_it_is_resumed(
    column: str, moment: str, journal: Journal, scribe: Scribe
) -> None:
    decision, later = RepairDecision("ada", "moving house", NOW), NOW + timedelta(hours=1)
    for name, until in (("store_1", None), ("names_1", later)):
        await journal.run(pause, PauseKind.ROLE, name, decision, until)
    await edit_sqlite(journal, f"UPDATE pause SET {column} = ? WHERE until IS NULL", moment)
    await journal.run(pauses.end, [EndPauses(later)])
    (found,) = (await journal.read(read_pauses)).values()
    assert (found.name, found.until, found.is_over(later)) == ("store_1", None, False)
    assert [role.role for role in await journal.read(list_roles) if role.pause] == ["store_1"]
    await journal.run(resume, PauseKind.ROLE, "store_1", decision)
    assert not await journal.read(read_pauses)


async def test_a_row_of_a_wrong_kind_hides_none_that_is_wrong_in_sense(journal: Journal, scribe: Scribe) -> None:
    health = Health("broker", SystemClock())
    await journal.run(
        by_hand(
            "INSERT INTO bot (name, emitter_id, command) SELECT 'bad', min(id), '5' FROM emitter",
            "UPDATE event_type SET keep = -1 WHERE name = 'notes'",
            "UPDATE service SET jitter = 7 WHERE name = 'prices'",
        )
    )
    await Configuration(journal, health).refresh()
    told = sorted(problem.cause.removeprefix("the row makes no sense: ") for problem in health.problems)
    assert told == [
        "command is 5, and has to be a JSON list of texts",
        "jitter is 7.0, and has to be from 0 to 1",
        "keep is -1.0, and has to be 0 or more",
    ]


async def test_a_type_is_left_out_with_a_service_on_its_way(journal: Journal, scribe: Scribe) -> None:
    """Without that service its events would miss a part of their way, for good."""
    await journal.run(by_hand("UPDATE service SET jitter = 7 WHERE name = 'prices'"))
    started = Configuration(journal)
    await started.refresh()
    assert "fares" not in started.catalog.event_types
    assert "notes" in started.catalog.event_types


async def test_a_bus_file_corrects_a_bot(journal: Journal, scribe: Scribe) -> None:
    await journal.run(
        by_hand(
            "INSERT INTO service (name, kind) VALUES ('night', 'runner')",
            "INSERT INTO bot (name, emitter_id, call, command) SELECT 'bad', min(id), 'm:f', '5' FROM emitter",
        )
    )
    health = Health("broker", SystemClock())
    configuration = Configuration(journal, health)
    await configuration.refresh()
    assert [problem.code for problem in health.problems] == [WRONG]
    await journal.run(change, BusSpec(bots={"bad": BotSpec("bad", call="m:f", emits=frozenset({"notes"}))}))
    await configuration.refresh()
    assert not health.problems


LOST = {
    "a service of a role": "UPDATE role SET service_id = 999 WHERE login = 'prices_1'",
    "a service of a node": "UPDATE node SET service_id = 999 WHERE name = 'prices'",
    "a profile": "UPDATE emitter SET profile_id = 999 WHERE login = 'south'",
    "a type of a profile": "UPDATE profile_event_type SET event_type_id = 999 WHERE event_type_id = 4",
}


@pytest.mark.parametrize("lost", LOST)
async def test_a_row_that_refers_to_nothing_stops_nothing_that_is_right(lost: str, sqlite_url: str) -> None:
    """SQLite's own program asks for no foreign keys."""
    with looking(sqlite_url) as connection:
        add_small_bus(connection)
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as database, database:
        database.execute(LOST[lost])
        database.execute("INSERT INTO event_type (name) VALUES ('later')")
    health = Health("broker", SystemClock())
    async with Journal(create_engine(sqlite_url), "broker") as journal:
        started = Configuration(journal, health)
        await started.refresh()
    assert {problem.code for problem in health.problems} == {WRONG}
    assert {"flights", "notes", "secrets", "later"} <= started.catalog.event_types.keys()
    assert ("fares" in started.catalog.event_types) == (lost != "a service of a node")
    assert ("south" in {each.login for each in started.catalog.emitters.values()}) == (lost != "a profile")


def is_sqlite(connection: sa.Connection) -> bool:
    return connection.dialect.name == "sqlite"


def break_a_rule(connection: sa.Connection) -> None:
    connection.execute(sa.update(model.service).where(model.service.c.name == "store").values(jitter=7))


def mend_it(connection: sa.Connection) -> None:
    connection.execute(sa.update(model.service).where(model.service.c.name == "store").values(jitter=0.5))


def change_by_a_program(connection: sa.Connection) -> None:
    ensure_topics(connection, ["later"], NOW)
