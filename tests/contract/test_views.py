"""The views of the log, by which all read it: they show what the tables hold, and each look-up finds its index."""

import asyncio
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from tests.contract.test_put import whole
from tests.support.journal import NOW, Scribe
from xbus import model
from xbus.broker.journal.archive.records import finish_restore, read_stored
from xbus.broker.journal.bulk import segment_reader
from xbus.broker.journal.commit.statements.emission import SMALL_BYTES
from xbus.broker.journal.database.raw_reader import _with_colons
from xbus.broker.journal.fsck.content import _HASHES, _SEGMENTS, _SIZES
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log import planning
from xbus.broker.journal.log.damage import BEGINNING, find_damage
from xbus.broker.journal.log.envelopes import read_envelope
from xbus.broker.journal.log.planning import cut_event
from xbus.broker.journal.log.reading import read_at, read_log, read_segments, read_small_events
from xbus.broker.journal.log.slices import items
from xbus.broker.journal.retention import pruning, rules
from xbus.broker.journal.retention.needed import Candidate
from xbus.errors import XbusError

PAGE = 256
_READ_WHOLE = "SELECT relname FROM pg_stat_xact_user_tables WHERE seq_scan > 0"
"""The tables that the transaction has read as a whole."""

GROWING = ("envelope", "event", "segment")
OF_VIEW = "stored"
"""How ``log_segment`` calls its two halves together."""
SOME_ID = uuid.UUID(int=7)
WANTED = {"of_type": 1, "positions": [1, 2]}
SOME = Candidate(SOME_ID, 1, NOW, 10, keeps_row=False)
LARGE = Candidate(SOME_ID, 1, NOW, None, keeps_row=False)

_EVENT, _SEGMENT = model.log_event.c, model.log_segment.c
BY_PEOPLE = {
    "position": sa.select(model.log_event).where(_EVENT.position > 7).order_by(_EVENT.position).limit(9),
    "event_id": sa.select(model.log_event).where(_EVENT.event_id == SOME_ID),
    "type and position": sa.select(model.log_event).where(_EVENT.event_type == "notes", _EVENT.position.between(7, 9)),
    "type and key": sa.select(model.log_event).where(_EVENT.event_type_id == 1, _EVENT.partition_key == "a"),
    "segments": sa.select(model.log_segment).where(_SEGMENT.event_id == SOME_ID).order_by(_SEGMENT.first_index),
    "segments of a part of the log": sa.select(model.log_segment)
    .where(_SEGMENT.event_id.in_(sa.select(_EVENT.segments_id).where(_EVENT.position.between(7, 9))))
    .order_by(_SEGMENT.event_id, _SEGMENT.first_index),
}
"""As docs/operating.md says that they may be asked."""


def execute(statement: sa.Executable, **values: object) -> Callable[[sa.Connection], object]:
    return lambda connection: connection.execute(statement, values)


BY_THE_BUS: dict[str, Callable[[sa.Connection], object]] = {
    "read_segments": lambda c: read_segments(c, SOME_ID, 3, 1000),
    "read_log": lambda c: read_log(c, 0, 10),
    "read_at": lambda c: read_at(c, [1, 2]),
    "read_small_events": lambda c: read_small_events(c, [SOME_ID]),
    "read_stored": lambda c: read_stored(c, SOME_ID, 0, 1000),
    "cut_event": lambda c: cut_event(c, SOME_ID, 2),
    "find_damage": lambda c: find_damage(c, BEGINNING),
    "read_envelope": lambda c: read_envelope(c, SOME_ID),
    "count_items": lambda c: planning.count_items(c, 1, 0, 9),
    "has_events": lambda c: planning.has_events(c, 1, 0, 9),
    "count_bytes": execute(rules._SIZES, **WANTED),
    "start of a slice": execute(items._SEGMENT_START, of_event=str(SOME_ID), item=3),
    "sizes of a slice": execute(items._SIZES, events=[str(SOME_ID)], start=0, end=9),
    "data of a slice": execute(items._DATA, events=[str(SOME_ID)], start=0, end=9),
    "fsck sizes": execute(_SIZES, ids=[SOME_ID]),
    "fsck segments": execute(_SEGMENTS, ids=[SOME_ID]),
    "fsck hashes": execute(_HASHES, ids=[SOME_ID]),
    "remove all": lambda c: pruning.remove_segments(c, "broker", [SOME], keeps_events=True),
    "remove some": lambda c: pruning.remove_segments(c, "broker", [LARGE]),
    "finish_restore": lambda c: finish_restore(c, SOME_ID, NOW),
}


@pytest.mark.parametrize("name", BY_PEOPLE)
async def test_people_and_programs_look_up_by_an_index(journal: Journal, scribe: Scribe, name: str) -> None:
    await scribe.put([b"x"])
    await journal.run(lambda connection: check(connection, execute(BY_PEOPLE[name])))


@pytest.mark.parametrize("name", BY_THE_BUS)
async def test_the_bus_looks_up_by_an_index(journal: Journal, scribe: Scribe, name: str) -> None:
    for _ in range(2):
        # One in the row of its event, and one in a row of its own.
        await journal.write(whole(scribe, [b"x"], [b"y" * (SMALL_BYTES + 1)]))
    await journal.run(lambda connection: check(connection, BY_THE_BUS[name]))


async def test_a_page_is_read_by_indexes_where_postgresql_knows_nothing_of_its_tables(
    journal: Journal, scribe: Scribe
) -> None:
    """Tables that have grown fast have no statistics yet. Its planner then reads all of them for each page."""
    await asyncio.gather(*(journal.write(whole(scribe, [b"x"])) for _ in range(PAGE)))

    def read_page(connection: sa.Connection) -> list[str]:
        page = read_log(connection, 0, PAGE)
        assert len(read_small_events(connection, [event.event_id for each in page for event in each.events])) == PAGE
        if connection.dialect.name == "sqlite":
            return []
        return list(connection.scalars(sa.text(_READ_WHOLE)))

    assert not {*GROWING} & {*await journal.run(read_page)}


@pytest.mark.parametrize("name", ["_LOG_EVENTS", "_LOG_EVENTS_WITH_TAGS", "_LOG_SEGMENTS", "_LOG_SEGMENTS_BARE"])
async def test_spark_looks_up_by_an_index(journal: Journal, scribe: Scribe, name: str) -> None:
    await scribe.put([b"x"])
    text = getattr(segment_reader, name).text
    values = {"type_id": 1, "after": 1, "number": 1, "until": 9, "first": 1, "last": 9}

    def explain_it(connection: sa.Connection) -> list[str]:
        if connection.dialect.name == "sqlite":
            return explain(connection, _with_colons(text), values)
        connection.exec_driver_sql("SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off")
        return explain(connection, text, values)

    assert read_whole(await journal.run(explain_it)) == []


def check(connection: sa.Connection, work: Callable[[sa.Connection], object]) -> None:
    with explained(connection) as plans:
        try:
            work(connection)
        except (XbusError, sa.exc.NoResultFound):
            pass
    assert plans
    assert {statement: found for statement, plan in plans.items() if (found := read_whole(plan))} == {}


@contextmanager
def explained(connection: sa.Connection) -> Iterator[dict[str, list[str]]]:
    """Collect the plan of each statement."""
    plans: dict[str, list[str]] = {}

    def collect(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> None:
        plans[statement] = explain(connection, statement, parameters)

    sa.event.listen(connection, "before_cursor_execute", collect)
    yield plans
    sa.event.remove(connection, "before_cursor_execute", collect)


def explain(connection: sa.Connection, statement: str, parameters: Any) -> list[str]:
    is_sqlite = connection.dialect.name == "sqlite"
    with closing(connection.connection.cursor()) as cursor:
        if not is_sqlite:
            # These tables are small enough to be read as a whole; where an index serves, this has it taken.
            cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute(f"EXPLAIN {'QUERY PLAN ' if is_sqlite else ''}{statement}", parameters)
        return [str(row[-1]).strip() for row in cursor.fetchall()]


def read_whole(plan: list[str]) -> list[str]:
    """The steps that read all of a table that grows, or make rows of a view to choose or sort them.

    SQLite makes such rows whole: a page of a large event costs as much as the data of all that is before it.
    """
    return [step for step in plan if step in (f"CO-ROUTINE {OF_VIEW}", f"MATERIALIZE {OF_VIEW}")] + [
        step
        for step in plan
        for table in GROWING
        if (step.startswith(f"SCAN {table}") and "USING INDEX" not in step.replace("COVERING ", ""))
        or f"Seq Scan on {table} " in step
    ]


async def test_they_show_all_forms_of_an_event(journal: Journal, scribe: Scribe) -> None:
    in_parts = await scribe.put([b"a"], [])
    large = [b"b" * SMALL_BYTES]
    at_once = await journal.write(whole(scribe, [b"a"], large, []))

    def read(connection: sa.Connection) -> list[tuple[int, int, int]]:
        events = connection.execute(sa.select(model.log_event).order_by(_EVENT.position, _EVENT.number)).all()
        assert {event.envelope_id for event in events} == {in_parts.envelope_id, at_once.envelope_id}
        assert {(event.emitter, event.event_type, event.segments_id == event.event_id) for event in events} == {
            ("north", "notes", True)
        }
        counts: dict[uuid.UUID, int] = dict(
            connection.execute(sa.select(_SEGMENT.event_id, sa.func.count()).group_by(_SEGMENT.event_id)).all()
        )
        return [(event.position, event.items, counts.get(event.event_id, 0)) for event in events]

    assert await journal.read(read) == [(1, 1, 1), (1, 0, 0), (2, 1, 1), (2, 1, 1), (2, 0, 0)]
    rows = sa.select(sa.func.count()).select_from(model.segment)
    assert await journal.read(lambda connection: connection.execute(rows).scalar()) == 2
