"""Where the log stands, and how it is shared out; on every database."""

from datetime import timedelta

import sqlalchemy as sa

from tests.support.journal import NOW, Scribe, remove_segments
from xbus import model
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.planning import (
    LogRange,
    count_missing,
    cut_log,
    position_before,
    read_end,
    read_first,
    read_type_id,
)


def type_id(scribe: Scribe, name: str = "notes") -> int:
    return scribe.catalog.event_types[name].id


async def put(scribe: Scribe, *sizes: int, type_name: str = "notes") -> int:
    """An envelope with events of so many items; its position."""
    return (await scribe.put(*([b"x"] * size for size in sizes), type_name=type_name)).position


async def prune(journal: Journal, *positions: int) -> None:
    statement = sa.update(model.envelope).where(model.envelope.c.position.in_(positions)).values(pruned_at=NOW)
    await journal.run(lambda connection: connection.execute(statement))


async def close_at(journal: Journal, position: int, seconds: float) -> None:
    moment = NOW + timedelta(seconds=seconds)
    statement = sa.update(model.envelope).where(model.envelope.c.position == position).values(closed_at=moment)
    await journal.run(lambda connection: connection.execute(statement))


async def test_types_are_found_by_name(journal: Journal, scribe: Scribe) -> None:
    assert await journal.read(read_type_id, "notes") == type_id(scribe)
    assert await journal.read(read_type_id, "nothing") is None


async def test_what_is_removed_is_missing(journal: Journal, scribe: Scribe) -> None:
    assert await journal.read(read_first) is None
    assert await journal.read(count_missing, 0, 9) == 0
    for _ in range(4):
        await put(scribe, 1)
    assert await journal.read(read_first) == 1
    await prune(journal, 1, 3)
    assert await journal.read(read_first) == 2
    assert await journal.read(count_missing, 0, 4) == 2
    assert await journal.read(count_missing, 1, 2) == 0
    assert await journal.read(count_missing, 2, 100) == 1


async def test_a_moment_is_found(journal: Journal, scribe: Scribe) -> None:
    assert await journal.read(position_before, NOW) == 0
    for second in range(9):
        await close_at(journal, await put(scribe, 1), second)
    await journal.run(remove_segments)
    for seconds, expected in ((-1, 0), (0, 0), (0.5, 1), (1, 1), (4.5, 5), (8, 8), (8.5, 9), (100, 9)):
        assert await journal.read(position_before, NOW + timedelta(seconds=seconds)) == expected
    await prune(journal, 1, 2, 3, 6)
    assert await journal.read(position_before, NOW + timedelta(seconds=4.5)) == 5


async def test_it_is_read_for_so_many_items(journal: Journal, scribe: Scribe) -> None:
    notes = type_id(scribe)
    for sizes in ((3,), (0,), (2, 2), (5,), (1,)):
        await put(scribe, *sizes)
    await put(scribe, 4, type_name="flights")
    for after, most, expected in (
        *((0, 1, 1), (0, 3, 2), (0, 6, 2), (0, 7, 3), (0, 12, 4), (0, 13, 6), (0, 100, 6)),
        *((1, 1, 3), (2, 3, 3), (3, 5, 4), (3, 6, 6), (5, 1, 6), (6, 1, 6)),
    ):
        assert await journal.read(read_end, notes, after, 6, most, 2) == expected, (after, most)
    assert await journal.read(read_end, notes, 0, 3, 100, 2) == 3


async def test_small_envelopes_are_shared_out_whole(journal: Journal, scribe: Scribe) -> None:
    notes = type_id(scribe)
    for sizes in ((3,), (0,), (2, 2), (1,), (1,)):
        await put(scribe, *sizes)
        await put(scribe, 9, type_name="flights")
    found = await journal.read(cut_log, notes, 0, 10, 2, 4)
    assert found == [LogRange(notes, 0, 3, 3), LogRange(notes, 4, 9, 6)]
    assert await journal.read(cut_log, notes, 0, 10, 1, 4) == [LogRange(notes, 0, 9, 9)]
    assert await journal.read(cut_log, notes, 9, 10, 3, 4) == []
    assert await journal.read(cut_log, notes, 0, 0, 3, 4) == []


async def test_a_large_envelope_is_cut_between_segments(journal: Journal, scribe: Scribe) -> None:
    flights = type_id(scribe, "flights")
    envelope_id, started = scribe.start_envelope()
    await started
    for number in (1, 2):
        event_id, started = scribe.start_event(envelope_id, number, "flights")
        await started
        for index in range(0, 20, 5):
            await scribe.append(envelope_id, event_id, index, [b"x"] * 5)
        await scribe.end_event(envelope_id, event_id, 20)
    await put(scribe, 3, type_name="flights")
    await scribe.seal(envelope_id, 2, 40)
    found = await journal.read(cut_log, flights, 0, 2, 4, 10)
    assert found == [
        LogRange(flights, 0, 1, 3),
        *(LogRange(flights, 1, 2, 10, number, first, first + 10) for number in (1, 2) for first in (0, 10)),
    ]
    assert await journal.read(cut_log, flights, 0, 2, 1, 10) == [LogRange(flights, 0, 2, 43)]
