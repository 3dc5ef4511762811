"""The events that are old enough for the archive by their types; on every database."""

from datetime import timedelta

import sqlalchemy as sa

from tests.support.clock import StandingClock
from tests.support.journal import NOW, Scribe, settle_all
from xbus import model
from xbus.broker.housekeeping.archiving import CODE, ArchiveKeeper
from xbus.broker.housekeeping.pruning import Pruner
from xbus.broker.journal.archive.plans import Round, has_archivable, read_archivable
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.reading import read_log
from xbus.broker.journal.retention.rules import read_keepings, way_to_archive
from xbus.clock import SystemClock
from xbus.supervision.health import Health

LATER = NOW + timedelta(hours=1)


async def archive_after(journal: Journal, type_name: str, seconds: float | None) -> None:
    of_type = sa.update(model.event_type).where(model.event_type.c.name == type_name)
    await journal.run(lambda connection: connection.execute(of_type.values(archive_after=seconds)))


async def due(journal: Journal) -> list[tuple[int, str]]:
    """The events that are to be archived: position and type."""
    scan = way_to_archive(await journal.read(read_keepings), LATER)
    if scan is None:
        return []
    events = await journal.read(read_archivable, 0, scan, Round())
    assert await journal.read(has_archivable, scan) == bool(events)
    return [(event.position, event.type_name) for event in events]


async def test_each_type_has_its_age(journal: Journal, scribe: Scribe) -> None:
    for type_name in ("notes", "flights", "fares"):
        await scribe.put([b"x"], type_name=type_name)
    await settle_all(journal, 3)
    assert await due(journal) == []
    await archive_after(journal, "notes", 60)
    await archive_after(journal, "flights", 7_200)
    assert await due(journal) == [(1, "notes")]


async def test_an_envelope_is_archived_as_a_whole_once_all_of_its_archived_types_are_old(
    journal: Journal, scribe: Scribe
) -> None:
    envelope_id, _ = scribe.start_envelope()
    for number, type_name in enumerate(("notes", "flights", "fares"), start=1):
        event_id, _ = scribe.start_event(envelope_id, number, type_name)
        scribe.append(envelope_id, event_id, 0, [b"x"])
        scribe.end_event(envelope_id, event_id, 1)
    await scribe.seal(envelope_id, 3, 3)
    await settle_all(journal, 1)
    await archive_after(journal, "notes", 60)
    await archive_after(journal, "flights", 7_200)
    assert await due(journal) == []
    await archive_after(journal, "flights", 60)
    assert await due(journal) == [(1, "notes"), (1, "flights"), (1, "fares")]


async def test_what_is_owed_is_not_archived(journal: Journal, scribe: Scribe) -> None:
    await scribe.put([b"x"])
    await archive_after(journal, "notes", 60)
    assert await due(journal) == []


async def test_nothing_removes_what_is_to_be_archived(journal: Journal, scribe: Scribe) -> None:
    await scribe.put([b"x"])
    await scribe.put([b"x"], type_name="flights")
    await settle_all(journal, 2)
    await archive_after(journal, "notes", 60)
    pruner = Pruner(journal, SystemClock(), keep_days=1, max_bytes=1)
    await pruner.prune_old()
    await pruner.prune_for_space()
    assert [envelope.position for envelope in await journal.read(read_log, 0, 10)] == [1]


async def test_an_archive_without_a_place_is_told(journal: Journal, scribe: Scribe) -> None:
    await scribe.put([b"x"])
    await settle_all(journal, 1)
    health = Health("back", StandingClock())
    keeper = ArchiveKeeper(journal, SystemClock(), health, "", ("false",))
    await keeper.look()
    assert health.healthy
    await archive_after(journal, "notes", 60)
    await keeper.look()
    (problem,) = health.problems
    assert (problem.code, problem.next_step.split(",")[0]) == (CODE, "set [journal] archive to a folder or an address")
    await archive_after(journal, "notes", None)
    await keeper.look()
    assert health.healthy
