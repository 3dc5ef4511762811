"""How long the settled events of each type stay; on every database."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import product

import pytest
import sqlalchemy as sa

from tests.support.journal import NOW, Scribe, edit_sqlite, settle_all
from xbus import model
from xbus.broker.housekeeping.pruning import Pruner
from xbus.broker.housekeeping.space import Space
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.planning import position_before
from xbus.broker.journal.log.reading import read_log
from xbus.broker.journal.retention.rules import begin_count, count_bytes, read_keepings, way_to_archive
from xbus.broker.journal.writes import SealReceipt
from xbus.clock import SystemClock
from xbus.headers import EventTags
from xbus.supervision.health import Health

DAY = timedelta(days=1)
FOR_EVER = float("inf")


class Today(SystemClock):
    """The day on which the tests write their newest envelopes, a minute later."""

    def now(self) -> datetime:
        return NOW + timedelta(minutes=1)


async def keep(journal: Journal, type_name: str, **limits: float | None) -> None:
    of_type = sa.update(model.event_type).where(model.event_type.c.name == type_name)
    await journal.run(lambda connection: connection.execute(of_type.values(**limits)))


async def put(journal: Journal, scribe: Scribe, days: Sequence[float], *types: str) -> list[SealReceipt]:
    """Envelopes that were sealed so many days ago, each time one of each type."""
    receipts = []
    for ago, type_name in product(days, types or ("notes",)):
        receipts.append(await scribe.put([b"x" * 100], type_name=type_name))
        of_envelope = sa.update(model.envelope).where(model.envelope.c.id == receipts[-1].envelope_id)
        sealed = of_envelope.values(closed_at=NOW - ago * DAY)
        await journal.run(lambda connection, sealed=sealed: connection.execute(sealed))  # type: ignore[misc]
    return receipts


async def put_keyed(scribe: Scribe, *keys: str | None) -> None:
    for key in keys:
        await scribe.put([b"x"], tags=[EventTags(partition_key=key)])


async def left(journal: Journal) -> list[int]:
    return [envelope.position for envelope in await journal.read(read_log, 0, 100)]


def pruner(journal: Journal, *, keep_days: float = 30, max_bytes: int = 0) -> Pruner:
    return Pruner(journal, Today(), keep_days=keep_days, max_bytes=max_bytes)


async def test_each_type_is_kept_as_long_as_it_says(journal: Journal, scribe: Scribe) -> None:
    await put(journal, scribe, [40, 20, 1], "notes", "flights", "fares")
    await keep(journal, "flights", keep=10 * DAY.total_seconds())
    await keep(journal, "fares", keep=FOR_EVER)
    await settle_all(journal, 9)
    await pruner(journal).prune_old()
    assert await left(journal) == [3, 4, 6, 7, 8, 9]
    await pruner(journal, keep_days=0).prune_old()
    assert await left(journal) == [3, 4, 6, 7, 8, 9]


async def test_without_a_bus_wide_age_a_type_may_have_one(journal: Journal, scribe: Scribe) -> None:
    await put(journal, scribe, [40, 1], "notes", "flights")
    await keep(journal, "flights", keep=10 * DAY.total_seconds())
    await settle_all(journal, 4)
    await pruner(journal, keep_days=0).prune_old()
    assert await left(journal) == [1, 3, 4]


async def test_what_is_owed_stays_whatever_its_type_says(journal: Journal, scribe: Scribe) -> None:
    await put(journal, scribe, [40, 40])
    await keep(journal, "notes", keep=1, keep_bytes=1, keep_last_per_key=1)
    await settle_all(journal, 1)
    await pruner(journal).prune_old()
    assert await left(journal) == [2]


async def test_an_envelope_stays_as_long_as_the_longest_of_its_types_wants(journal: Journal, scribe: Scribe) -> None:
    for other in ("flights", "fares"):
        envelope_id, _ = scribe.start_envelope()
        for number, type_name in enumerate(("notes", other), start=1):
            event_id, _ = scribe.start_event(envelope_id, number, type_name)
            scribe.append(envelope_id, event_id, 0, [b"x"])
            scribe.end_event(envelope_id, event_id, 1)
        await scribe.seal(envelope_id, 2, 2)
    await keep(journal, "notes", keep=1)
    await keep(journal, "flights", keep=DAY.total_seconds())
    await keep(journal, "fares", keep=2)
    await settle_all(journal, 2)
    await pruner(journal).prune_old()
    assert await left(journal) == [1]


async def test_the_newest_bytes_of_a_type_stay(journal: Journal, scribe: Scribe) -> None:
    receipts = await put(journal, scribe, [4, 3, 2, 1])
    await put(journal, scribe, [0], "flights")
    size = receipts[0].data_bytes
    await keep(journal, "notes", keep_bytes=2 * size)
    await settle_all(journal, 5)
    await pruner(journal).prune_old()
    assert await left(journal) == [3, 4, 5]
    await keep(journal, "notes", keep_bytes=2 * size - 1)
    await pruner(journal).prune_old()
    assert await left(journal) == [4, 5]


async def test_bytes_are_counted_page_by_page(journal: Journal, scribe: Scribe) -> None:
    receipts = await put(journal, scribe, [4, 3, 2])
    of_type = scribe.catalog.event_types["notes"].id
    counted = await journal.read(begin_count)
    assert counted.below == 4
    counted = await journal.read(count_bytes, of_type, 10_000, counted)
    assert (counted.data_bytes, counted.upto) == (3 * receipts[0].data_bytes, None)
    assert (await journal.read(count_bytes, of_type, 10_000, counted)).upto == 0


async def test_the_newest_events_of_each_key_stay(journal: Journal, scribe: Scribe) -> None:
    await put_keyed(scribe, "a", "b", "a", None, "a", "b", None)
    await keep(journal, "notes", keep_last_per_key=2)
    await settle_all(journal, 7)
    await pruner(journal).prune_old()
    assert await left(journal) == [2, 3, 4, 5, 6, 7]
    await keep(journal, "notes", keep_last_per_key=1)
    await pruner(journal, keep_days=1e-9).prune_old()
    assert await left(journal) == [4, 5, 6, 7]
    await keep(journal, "notes", keep=1)
    await pruner(journal).prune_old()
    assert await left(journal) == []


async def test_where_space_is_wanted_only_what_is_for_ever_stays(journal: Journal, scribe: Scribe) -> None:
    await put(journal, scribe, [1, 1], "notes", "flights")
    await keep(journal, "flights", keep=FOR_EVER)
    await settle_all(journal, 4)
    await pruner(journal, max_bytes=1).prune_for_space()
    assert (await read_events(journal)) == {2, 4}
    await keep(journal, "flights", keep=100 * DAY.total_seconds())
    await pruner(journal, keep_days=0, max_bytes=1).prune_for_space()
    assert (await read_events(journal)) == set()


async def read_events(journal: Journal) -> set[int]:
    return {envelope.position for envelope in await journal.read(read_log, 0, 100) if envelope.events}


@pytest.mark.parametrize("limits", [{"keep": 1e300}, {"archive_after": 1e300}])
async def test_a_time_beyond_all_dates_is_for_ever(limits: dict[str, float], journal: Journal, scribe: Scribe) -> None:
    await put(journal, scribe, [40], "notes", "flights")
    await settle_all(journal, 2)
    await keep(journal, "flights", **limits)
    assert way_to_archive(await journal.read(read_keepings), NOW) is None or "archive_after" in limits
    await pruner(journal).prune_old()
    assert await left(journal) == [2]
    await pruner(journal, max_bytes=1).prune_for_space()
    assert await read_events(journal) == {2}
    await pruner(journal, keep_days=1e300).prune_old()
    assert await left(journal) == [2]


@pytest.mark.parametrize(
    "limits",
    [
        {"keep": -1},
        {"keep_bytes": 0},
        {"keep_last_per_key": -1},
        {"keep": 1, "archive_after": -1},
    ],
)
async def test_a_limit_without_sense_keeps_its_type_alone(
    limits: dict[str, float], journal: Journal, scribe: Scribe
) -> None:
    await put(journal, scribe, [40], "notes", "flights")
    await settle_all(journal, 2)
    await keep(journal, "flights", **limits)
    await pruner(journal).prune_old()
    assert await left(journal) == [2]
    await pruner(journal, max_bytes=1).prune_for_space()
    assert await read_events(journal) == {2}
    await keep(journal, "flights", **dict.fromkeys(limits, None))
    await pruner(journal).prune_old()
    assert await left(journal) == []


async def test_a_limit_that_is_no_number_keeps_its_type_alone(journal: Journal, scribe: Scribe) -> None:
    await put(journal, scribe, [40], "notes", "flights")
    await settle_all(journal, 2)

    def edit(connection: sa.Connection) -> bool:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("UPDATE event_type SET keep = 'soon' WHERE name = 'flights'")
        return connection.dialect.name == "sqlite"

    if not await journal.run(edit):
        pytest.skip("PostgreSQL takes no such row")
    await pruner(journal).prune_old()
    assert await left(journal) == [2]


async def test_the_last_position_before_a_moment_is_found(journal: Journal, scribe: Scribe) -> None:
    await put(journal, scribe, [5, 4, 3, 2, 1])
    gone = sa.update(model.envelope).where(model.envelope.c.position == 3).values(position=None)
    await journal.run(lambda connection: connection.execute(gone))
    moments = [NOW - days * DAY for days in (6, 4.5, 3.5, 2, 0)]
    assert [await journal.read(position_before, moment) for moment in moments] == [0, 1, 2, 2, 5]


@pytest.mark.parametrize("limits", [{"keep": 30 * DAY.total_seconds()}, {"keep": 1e6, "keep_last_per_key": 1}])
@pytest.mark.parametrize("place", [1, 3, 5])
async def test_what_cannot_be_read_is_not_old(
    limits: dict[str, float], place: int, journal: Journal, scribe: Scribe
) -> None:
    await put(journal, scribe, [50, 40, 3, 2, 1])
    await settle_all(journal, 5)
    await keep(journal, "notes", **limits)
    await edit_sqlite(journal, "UPDATE envelope SET closed_at = '27.11.2026' WHERE position = ?", place)
    assert await journal.read(position_before, NOW - 30 * DAY) == 2
    assert await journal.read(position_before, NOW) == (4 if place == 5 else 5)
    await pruner(journal).prune_old()
    assert await left(journal) == sorted({place, 3, 4, 5})
    await pruner(journal, max_bytes=1).prune_for_space()
    assert place in await read_events(journal)


async def test_for_space_what_somebody_has_got_goes_before_what_nobody_takes(journal: Journal, scribe: Scribe) -> None:
    await put(journal, scribe, [1, 1], "secrets", "notes")
    await settle_all(journal, 4)
    await pruner(journal, max_bytes=300).prune_for_space()
    assert await read_events(journal) == {1, 3}
    await pruner(journal, max_bytes=1).prune_for_space()
    assert await read_events(journal) == set()


async def test_a_full_journal_names_who_keeps_it_full(journal: Journal, scribe: Scribe) -> None:
    await put(journal, scribe, [1], "notes")
    health = Health("front", Today())
    space = Space(journal, 50, health, 1.0)
    await space.refresh()
    await space.name_holders()
    assert "(store_1, store_2)" in health.problems[0].next_step
    await settle_all(journal, 1)
    await keep(journal, "notes", keep=FOR_EVER)
    await space.name_holders()
    assert health.problems[0].next_step == (
        "give types that are kept for ever a limit or an archive (notes); or raise [journal] max_bytes"
    )
