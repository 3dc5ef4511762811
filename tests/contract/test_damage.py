"""Items that do not have their hash are handed to nobody; on every database."""

import re
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from pathlib import Path
from uuid import UUID

import pytest
import sqlalchemy as sa

from tests.support.attempts import event_of, make_output
from tests.support.journal import Scribe, change_segments, looking
from xbus import model
from xbus.broker.housekeeping.damage import MET, DamageKeeper
from xbus.broker.journal.archive.segments import read_rows
from xbus.broker.journal.bulk.outputs import read_output
from xbus.broker.journal.bulk.segment_reader import open_reader
from xbus.broker.journal.database.compression import DAMAGED
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.ranges import SegmentRange, cut_event, cut_output
from xbus.broker.journal.log.reading import digest_segments, read_segments, read_small_events
from xbus.broker.journal.log.slices import Place, SliceBounds, Stretch, read_slice
from xbus.clock import SystemClock
from xbus.errors import JournalError
from xbus.supervision.health import Health

CHECKOUT = Path(__file__).parents[2]
SOURCES = [path for package in ("xbus", "spark_worker") for path in (CHECKOUT / package).rglob("*.py")]

READS_DATA = re.compile(
    r"STORED_DATA\b|model\.(?:bulk_|log_)?segment\.c(?:\.data\b|\[\"data\"|\[name)|select\(model\.(?:bulk_|log_)?segment\)"
    r"|SELECT [^\"]*\bdata\b[^\"]* FROM (?:bulk_|log_)?segment\b"
)
"""The ways to select the data of a segment, but for columns that have a name of the module's."""

NAMED = re.compile(r"^ *(?:\w+, )*(\w+) = (?:[\w.]+, )*model\.(?:(?:bulk_|log_)?segment|event)(?:\.c)?$", re.MULTILINE)


def reads_data(source: str) -> bool:
    named = [rf"\b{name}(?:\.c)?(?:\.data\b|\[\"data\"\]|\[name\])" for name in NAMED.findall(source)]
    return READS_DATA.search(source) is not None or any(re.search(each, source) for each in named)


COMPARED = {
    "xbus/broker/journal/archive/segments.py": ".plain(door)",
    "xbus/broker/journal/bulk/outputs.py": "verify(",
    "xbus/broker/journal/bulk/segment_reader.py": "._data.plain(",
    "xbus/broker/journal/fsck/content.py": ".plain(door)",
    "xbus/broker/journal/log/damage.py": "door.plain(",
    "xbus/broker/journal/log/reading.py": "door.plain_of(",
    "xbus/broker/journal/log/slices/stored.py": "door.plain_of(",
}
"""The modules that read data back, with the guard that each calls."""

NOT_READ = {
    "xbus/broker/journal/bulk/cleaning.py": "asks for the size",
    "xbus/broker/journal/commit/statements/bulk.py": "the database copies it, with its hash",
    "xbus/broker/journal/database/compression.py": "has the guard, and asks for the size",
    "xbus/broker/journal/objects/reading.py": "is the door",
    "xbus/broker/journal/retention/pruning.py": "removes it",
}


def test_all_who_read_items_back_compare_their_hash() -> None:
    found = {path.relative_to(CHECKOUT).as_posix() for path in SOURCES if reads_data(path.read_text())}
    assert found == COMPARED.keys() | NOT_READ.keys()
    for path, guard in COMPARED.items():
        assert guard in (CHECKOUT / path).read_text(), path


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
