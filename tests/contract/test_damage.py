"""Items that do not have their hash are handed to nobody; on every database."""

import ast
import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from uuid import UUID

import pytest
import sqlalchemy as sa

from tests.support.attempts import event_of, make_output
from tests.support.item_places import places_with_items
from tests.support.journal import Scribe, change_segments, looking
from tests.support.sources import CHECKOUT
from xbus import model
from xbus.broker.housekeeping.damage import MET, DamageKeeper
from xbus.broker.journal.archive.records import read_rows
from xbus.broker.journal.bulk.outputs import read_output
from xbus.broker.journal.bulk.segment_reader import open_reader
from xbus.broker.journal.database.compression import DAMAGED
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.planning import SegmentRange, cut_event, cut_output
from xbus.broker.journal.log.reading import digest_segments, read_segments, read_small_events
from xbus.broker.journal.log.slices.items import read_slice
from xbus.broker.journal.log.slices.values import Place, SliceBounds, Stretch
from xbus.clock import SystemClock
from xbus.errors import JournalError
from xbus.supervision.health import Health

HANDING_ON = {
    "xbus/broker/journal/archive/records.py:read_stored",
    "xbus/broker/journal/fsck/content.py:_by_parts",
    "xbus/broker/journal/log/slices/items.py:StoredItems._fetch_data",
}
"""The functions that give items as they are stored: each of their callers is looked at as well."""

GUARDS = frozenset({"plain", "plain_of", "verified", "verify"})
"""The calls that compare items with their hash."""

COMPARED = {
    "xbus/broker/journal/archive/records.py:read_rows": "read_rows",
    "xbus/broker/journal/bulk/outputs.py:read_output": "read_output",
    "xbus/broker/journal/bulk/segment_reader.py:SegmentReader._gathered": "SegmentReader._gathered",
    "xbus/broker/journal/bulk/segment_reader.py:SegmentReader._large": "SegmentReader._in_pages",
    "xbus/broker/journal/bulk/segment_reader.py:SegmentReader.segments": "SegmentReader._in_pages",
    "xbus/broker/journal/fsck/content.py:_read_own": "_take",
    "xbus/broker/journal/log/damage.py:find_damage": "find_damage",
    "xbus/broker/journal/log/damage.py:find_damaged_outputs": "find_damaged_outputs",
    "xbus/broker/journal/log/reading.py:read_segments": "_segment",
    "xbus/broker/journal/log/reading.py:read_small_events": "_segment",
    "xbus/broker/journal/log/slices/items.py:StoredItems.segments": "StoredItems.segments",
}
"""The functions that read items, each with the function of its module that compares them."""

NOT_READ = {
    "xbus/broker/journal/archive/records.py:_content": "asks for hash and size",
    "xbus/broker/journal/commit/statements/bulk.py:append": "the database copies them, with their hash",
    "xbus/broker/journal/commit/statements/rows.py:update_rows": "makes statements that write",
    "xbus/broker/journal/configuration/checked.py:_copy": "copies tables of the configuration",
    "xbus/broker/journal/configuration/checked.py:_remove": "removes rows of the configuration",
    "xbus/broker/journal/database/foreign.py:read_foreign": "reads no journal",
    "xbus/broker/journal/database/grants.py:grant_statements": "names tables alone",
    "xbus/broker/journal/database/schema.py:_comment": "describes all columns",
    "xbus/broker/journal/database/table_rows.py:count_rows": "counts",
    "xbus/broker/journal/fsck/content.py:_check_page": "takes an event's row without its items",
    "xbus/broker/journal/fsck/values.py:check_references": "asks for keys",
    "xbus/broker/journal/fsck/progress.py:_of_another_envelope": "asks for ids",
    "xbus/broker/journal/fsck/progress.py:_outside_of_its_event": "asks for ids",
    "xbus/broker/journal/fsck/values.py:_check_table": "looks at the kind of each value",
    "xbus/broker/journal/fsck/values.py:check_values": "looks at the kind of each value",
    "xbus/broker/journal/log/envelopes.py:_stored_events": "asks for hash and size",
    "xbus/broker/journal/operations/envelopes/details.py:_events": "takes an event's row without its items",
    "xbus/broker/journal/operations/relocation.py:_check_empty": "asks whether rows are there",
    "xbus/broker/journal/operations/relocation.py:move": "copies rows with their hash, and fsck compares the copy",
    "xbus/emitter/outbox/box.py:Outbox.small_ones": "reads the file of an outbox",
    "xbus/emitter/outbox/file.py:OutboxFile._set_up": "makes the file of an outbox",
}
"""The functions that name items and read none of a journal."""


@pytest.fixture(scope="module")
def sources() -> Mapping[str, str]:
    packages = ("xbus", "spark_worker")
    files = [path for package in packages for path in (CHECKOUT / package).rglob("*.py")]
    return {path.relative_to(CHECKOUT).as_posix(): path.read_text(encoding="utf-8") for path in files}


def called(node: ast.AST) -> set[str]:
    """The last names of all that a function calls."""
    calls = [each.func for each in ast.walk(node) if isinstance(each, ast.Call)]
    return {ast.unparse(function).rpartition(".")[2] for function in calls}


def function_of(source: str, name: str) -> ast.AST:
    """A function of a module by its qualified name."""
    found: ast.AST = ast.parse(source)
    for part in name.split("."):
        (found,) = [each for each in ast.iter_child_nodes(found) if getattr(each, "name", None) == part]
    return found


def test_all_who_read_items_back_compare_their_hash(sources: Mapping[str, str]) -> None:
    found = places_with_items(sources, HANDING_ON)
    assert found.keys() == COMPARED.keys() | NOT_READ.keys() | HANDING_ON
    for place, comparing in COMPARED.items():
        path, _, name = place.partition(":")
        assert name == comparing or comparing.rpartition(".")[2] in called(found[place]), place
        assert GUARDS & called(function_of(sources[path], comparing)), f"{path}:{comparing}"


def test_only_fsck_compares_items_in_its_own_way(sources: Mapping[str, str]) -> None:
    own = {path for path, source in sources.items() if re.search(r"\bread_output\([^()]*\bverify=", source)}
    assert own == {"xbus/broker/journal/fsck/content.py"}


PLANTED = {
    "a second read of a module": "return connection.execute(_SEGMENTS).all()",
    "a column": "return connection.execute(sa.select(model.log_segment.c.data)).all()",
    "the column of small events": "return connection.execute(sa.select(model.event.c.data)).all()",
    "a column by its name": "return connection.execute(sa.select(model.segment.c['data'])).all()",
    "columns by names": "return connection.execute(sa.select(*[_COLUMNS[name] for name in names])).all()",
    "all columns": "return connection.execute(sa.select(*model.event.c)).all()",
    "a table": "return connection.execute(sa.select(model.event)).all()",
    "a method of a table": "return connection.execute(model.bulk_segment.select()).all()",
    "an alias": "one = model.event.alias(); return connection.execute(sa.select(one.c.data)).all()",
    "one of several tables": "return [connection.execute(sa.select(each)) for each in (model.event, model.segment)]",
    "all tables": "return [connection.execute(sa.select(each)) for each in model.metadata.sorted_tables]",
    "a function of a column": "return connection.execute(sa.select(sa.func.hex(model.event.c.data))).all()",
    "SQL": "return connection.exec_driver_sql('SELECT id, data FROM event').all()",
    "SQL of a whole row": "return connection.exec_driver_sql('SELECT * FROM bulk_segment').all()",
    "SQL in small letters": "return connection.execute(sa.text('select data from event where id = :id')).all()",
    "SQL of a table put in": "return connection.exec_driver_sql(f'SELECT * FROM {table.name}').all()",
    "SQL of a join": "return fetcher.fetch('SELECT e.data FROM envelope JOIN event AS e ON envelope_id = e.id')",
    "SQL with columns put in": "return fetcher.fetch(f'SELECT {STORED_DATA_TEXT} FROM log_segment')",
    "a binary copy": "return cursor.copy_expert('COPY event (id, data) TO STDOUT', file)",
    "what another gives as it is stored": "return read_stored(connection, event_id, 0, 1)",
}
"""Reads of items that nobody compares."""


@pytest.mark.parametrize("read", PLANTED)
def test_a_planted_read_is_found(read: str, sources: Mapping[str, str]) -> None:
    guarded, other = "xbus/broker/journal/log/reading.py", "xbus/broker/journal/operations/planted.py"
    of_segments = "xbus/broker/journal/archive/records.py"
    imports = f"from xbus import model\nfrom {of_segments[:-3].replace('/', '.')} import read_stored\n"
    statements = f"from {guarded[:-3].replace('/', '.')} import _SEGMENTS\n_COLUMNS = model.log_segment.c\n"
    planted = f"\n\ndef planted(connection):\n    {PLANTED[read]}\n"
    some = {
        of_segments: sources[of_segments],
        guarded: sources[guarded] + planted + "\n_COLUMNS = model.event.c\n",
        other: imports + statements + planted,
    }
    found = places_with_items(some, HANDING_ON)
    assert f"{other}:planted" in found
    assert f"{guarded}:planted" in found or "read_stored" in PLANTED[read]


@pytest.mark.parametrize(
    "line",
    [
        "return sa.select(model.event.c.id, sa.func.length(model.event.c.data))",
        "return sa.select(model.event.c.id).where(model.event.c.data.is_not(None))",
        "return sa.select(sa.func.count()).select_from(model.segment)",
        "return sa.insert(model.event).values(data=data)",
        "return 'SELECT id, length(data) FROM event WHERE data IS NOT NULL'",
    ],
)
def test_a_size_is_no_read(line: str) -> None:
    assert not places_with_items({"xbus/a.py": f"from xbus import model\n\ndef a(data):\n    {line}\n"})


Read = Callable[[Journal, Scribe, str, UUID], Awaitable[object]]


async def by_spark(journal: Journal, scribe: Scribe, url: str, event_id: UUID) -> object:
    with open_reader(url) as reader:
        return [list(reader.segments(each)) for each in await journal.read(cut_event, event_id, 1)]


async def by_the_data_source(journal: Journal, scribe: Scribe, url: str, event_id: UUID) -> object:
    with open_reader(url) as reader:
        return list(reader.log(scribe.catalog.event_types["notes"].id, 0, 100))


async def by_the_data_source_of_large_events(journal: Journal, scribe: Scribe, url: str, event_id: UUID) -> object:
    with open_reader(url, page_bytes=1) as reader:
        return list(reader.log(scribe.catalog.event_types["notes"].id, 0, 100))


async def by_a_reader(journal: Journal, scribe: Scribe, url: str, event_id: UUID) -> object:
    whole = Stretch(0, 2**64 - 1, Place(1))
    types = frozenset({scribe.catalog.event_types["notes"].id})
    return await journal.read(read_slice, types, [whole], SliceBounds(100, 1 << 20))


READS: Mapping[str, Read] = {
    "a run": lambda journal, scribe, url, event_id: journal.read(read_segments, event_id, 0, 1 << 20),
    "a repeat": lambda journal, scribe, url, event_id: journal.read(digest_segments, event_id, 0, 1 << 20, sha256()),
    "an archive": lambda journal, scribe, url, event_id: journal.read(read_rows, event_id, 0, 1 << 20),
    "a reader": by_a_reader,
    "a Spark task": by_spark,
    "the data source": by_the_data_source,
    "the data source of large events": by_the_data_source_of_large_events,
}


@pytest.mark.parametrize("who", READS)
async def test_damaged_items_are_given_to_nobody(
    who: str, shared_url: str, shared_journal: Journal, shared_scribe: Scribe
) -> None:
    event_id = await event_of(shared_journal, await shared_scribe.put([b"1000 EUR"]))
    health = Health("broker", SystemClock())
    shared_journal.on_damage(DamageKeeper(shared_journal, SystemClock(), health).met)
    await READS[who](shared_journal, shared_scribe, shared_url, event_id)
    damage(shared_url, event_id)
    with pytest.raises(JournalError) as refused:
        await READS[who](shared_journal, shared_scribe, shared_url, event_id)
    assert refused.value.code == DAMAGED
    if "Spark" not in who and "data source" not in who:
        assert str(event_id) in refused.value.cause
    told = {problem.about for problem in health.problems}
    # Programs of Spark read past the journal's door. Health hears of that by the report of the worker.
    assert told == (set() if "data source" in who or "Spark" in who else {MET})


async def test_a_damaged_output_is_given_to_nobody(
    shared_url: str, shared_journal: Journal, shared_scribe: Scribe
) -> None:
    event_id = await event_of(shared_journal, await shared_scribe.put([b"x"], type_name="flights"))
    attempt_id = await make_output(shared_journal, shared_scribe, shared_url, event_id, [[b"1000 EUR"]])
    (wanted,) = await shared_journal.read(cut_output, attempt_id, 1)
    assert await shared_journal.read(read_output, attempt_id)
    with looking(shared_url) as connection:
        changed = sa.update(model.bulk_segment).where(model.bulk_segment.c.attempt_id == attempt_id)
        connection.execute(changed.values(data=b"\xc4\x089000 EUR"))
    with pytest.raises(JournalError) as refused:
        await shared_journal.read(read_output, attempt_id)
    assert refused.value.code == DAMAGED
    with pytest.raises(JournalError) as refused:
        read_all(shared_url, wanted)
    assert refused.value.code == DAMAGED


async def test_others_are_read_together_without_a_damaged_event(
    shared_url: str, shared_journal: Journal, shared_scribe: Scribe
) -> None:
    bad = await event_of(shared_journal, await shared_scribe.put([b"1000 EUR"]))
    good = await event_of(shared_journal, await shared_scribe.put([b"2000 EUR"]))
    damage(shared_url, bad)
    found = await shared_journal.read(read_small_events, [bad, good])
    assert found.keys() == {good}


async def test_a_slow_look_tells_health_until_the_items_are_whole(
    shared_url: str, shared_journal: Journal, shared_scribe: Scribe
) -> None:
    events = [await event_of(shared_journal, await shared_scribe.put([b"1000 EUR"])) for _ in range(3)]
    health = Health("broker", SystemClock())
    keeper = DamageKeeper(shared_journal, SystemClock(), health, page_seconds=0.0)
    await keeper.look_through()
    assert health.problems == []
    damage(shared_url, events[1])
    await keeper.look_through()
    (problem,) = health.problems
    assert (problem.code, problem.about) == (DAMAGED, f"event {events[1]}")
    damage(shared_url, events[1], b"1000 EUR")
    await keeper.look_through()
    assert health.problems == []


async def test_damage_that_is_met_while_a_slow_look_goes_on_stays_in_health(
    shared_journal: Journal, shared_scribe: Scribe
) -> None:
    """It may lie in what the look has passed already."""
    await event_of(shared_journal, await shared_scribe.put([b"1000 EUR"]))
    health = Health("broker", SystemClock())
    keeper = DamageKeeper(shared_journal, SystemClock(), health, page_seconds=0.0)
    looking_through = asyncio.create_task(keeper.look_through())
    await asyncio.sleep(0)
    keeper.met(JournalError("a segment is damaged", code=DAMAGED))
    await looking_through
    assert MET in [problem.about for problem in health.problems]
    await keeper.look_through()
    assert MET not in [problem.about for problem in health.problems]


async def test_a_slow_look_covers_outputs_of_bulk_workers(
    shared_url: str, shared_journal: Journal, shared_scribe: Scribe
) -> None:
    event_id = await event_of(shared_journal, await shared_scribe.put([b"x"], type_name="flights"))
    attempt_id = await make_output(shared_journal, shared_scribe, shared_url, event_id, [[b"1000 EUR"], [b"2000 EUR"]])
    health = Health("broker", SystemClock())
    keeper = DamageKeeper(shared_journal, SystemClock(), health, page_seconds=0.0)
    await keeper.look_through()
    assert [each for each in health.problems if str(attempt_id) in each.about] == []
    with looking(shared_url) as connection:
        changed = sa.update(model.bulk_segment).where(model.bulk_segment.c.attempt_id == attempt_id)
        connection.execute(changed.values(data=b"\xc4\x089000 EUR"))
    await keeper.look_through()
    (problem,) = [each for each in health.problems if str(attempt_id) in each.about]
    assert (problem.code, problem.about) == (DAMAGED, f"output {attempt_id}")


def damage(url: str, event_id: UUID, item: bytes = b"9000 EUR") -> None:
    with looking(url) as connection:
        assert change_segments(connection, [event_id], data=b"\xc4\x08" + item) == 1


def read_all(url: str, wanted: SegmentRange) -> None:
    with open_reader(url) as reader:
        assert list(reader.segments(wanted))
