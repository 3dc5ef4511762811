"""What health asks the journal: the oldest of what does not get on, and how much there is, each bounded."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

import sqlalchemy as sa

from tests.support.journal import NOW, Scribe, settle_all
from xbus import model
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.deliveries import read_cursors
from xbus.broker.journal.log.reading import read_log
from xbus.broker.journal.operations.stalled import (
    Outline,
    Stalled,
    count_open,
    count_owed_rows,
    count_parked,
    count_parked_items,
    count_waiting,
    find_owed_ahead,
    read_outline,
)
from xbus.broker.journal.writes import (
    DeliveryMove,
    DeliveryRow,
    IsolatedItem,
    NotePresence,
    PresenceRow,
    ProgressUpdate,
    SealReceipt,
)
from xbus.broker.journal.writes.cursor import Cursor
from xbus.states import DeliveryState, PresenceState

LATER = NOW + timedelta(minutes=5)


def row(role_id: int, receipt: SealReceipt, state: DeliveryState, service: str | None = None) -> DeliveryRow:
    return DeliveryRow(role_id, receipt.envelope_id, receipt.position, state, 1, "why", "a reason", service)


async def add(journal: Journal, rows: Sequence[DeliveryRow], at: datetime = NOW) -> None:
    """Give deliveries rows of their own."""
    await journal.write(ProgressUpdate(at, deliveries=[DeliveryMove(None, row) for row in rows]))


async def outline(journal: Journal) -> Outline:
    return await journal.read(read_outline)


async def cursor_of(journal: Journal, role_id: int) -> Cursor:
    return (await journal.read(read_cursors))[role_id]


async def service_id(journal: Journal, name: str) -> int:
    wanted = sa.select(model.service.c.id).where(model.service.c.name == name)
    return await journal.read(lambda connection: int(connection.execute(wanted).scalar_one()))


async def test_nothing_is_told_of_a_new_bus(journal: Journal, scribe: Scribe) -> None:
    found = await outline(journal)
    role = found.roles[scribe.role_id()]
    assert (role.absent_since, role.was_seen, role.parked_since, role.items_since) == (None, False, None, None)
    assert role.cursor is not None
    assert found.roles[scribe.role_id("names_1")].cursor is None
    assert (found.waiting, found.head) == ({}, 0)
    for count in (count_parked, count_parked_items, count_owed_rows):
        assert await journal.read(count, scribe.role_id()) is None
    assert await journal.read(count_waiting, "names") is None
    assert await journal.read(count_open, LATER) == {}


async def test_since_when_a_role_is_absent(journal: Journal, scribe: Scribe) -> None:
    role_id = scribe.role_id()
    for state, absent_since in ((PresenceState.PRESENT, None), (PresenceState.ABSENT, NOW)):
        await journal.write(NotePresence([PresenceRow(role_id, state, NOW, NOW)], LATER))
        role = (await outline(journal)).roles[role_id]
        assert (role.absent_since, role.was_seen) == (absent_since, True)


async def test_roles_off_the_bus_are_left_out(journal: Journal, scribe: Scribe) -> None:
    def leave(connection: sa.Connection) -> None:
        for login, column in (("store_1", "detached_at"), ("store_2", "removed_at")):
            of_role = model.role.c.login == login
            connection.execute(sa.update(model.role).where(of_role).values({column: NOW}))

    await journal.run(leave)
    assert set((await outline(journal)).roles) == {scribe.role_id("names_1"), scribe.role_id("prices_1")}


async def test_what_is_parked(journal: Journal, scribe: Scribe) -> None:
    role_id, other = scribe.role_id(), scribe.role_id("store_2")
    receipts = [await scribe.put([b"a", b"b"]) for _ in range(3)]
    await add(journal, [row(role_id, receipts[0], DeliveryState.PARKED)], LATER)
    await add(journal, [row(role_id, receipts[1], DeliveryState.PARKED)], NOW)
    await add(journal, [row(other, receipts[0], DeliveryState.RETRY)], NOW)
    (log,) = (await journal.read(read_log, 2, 1))[:1]
    events = [event.event_id for event in log.events]
    isolated = [IsolatedItem(events[0], index, "refused", "bad") for index in (0, 1)]
    again = row(role_id, receipts[2], DeliveryState.RETRY)
    await journal.write(ProgressUpdate(LATER, deliveries=[DeliveryMove(None, again, isolated=isolated)]))
    role = (await outline(journal)).roles[role_id]
    assert (role.parked_since, role.items_since) == (NOW, LATER)
    assert await journal.read(count_parked, role_id) == Stalled(2, NOW)
    assert await journal.read(count_parked_items, role_id) == Stalled(2, LATER)
    assert (await outline(journal)).roles[other].parked_since is None
    assert await journal.read(count_parked, other) is None
    assert await journal.read(count_owed_rows, role_id) == Stalled(1, LATER)
    assert await journal.read(count_owed_rows, other) == Stalled(1, NOW)


async def test_what_waits_for_a_worker(journal: Journal, scribe: Scribe) -> None:
    receipts = [await scribe.put([b"a"], type_name="flights") for _ in range(2)]
    roles = [scribe.role_id(), scribe.role_id("store_2")]
    await add(journal, [row(role_id, receipts[0], DeliveryState.WAITING, "names") for role_id in roles], LATER)
    await add(journal, [row(roles[0], receipts[1], DeliveryState.WAITING, "names")], NOW)
    assert (await outline(journal)).waiting == {"names": NOW}
    # An envelope that waits for two roles is one envelope.
    assert await journal.read(count_waiting, "names") == Stalled(2, NOW)
    assert await journal.read(count_waiting, "prices") is None


async def test_counting_ends_at_a_limit(journal: Journal, scribe: Scribe) -> None:
    role_id, other = scribe.role_id(), scribe.role_id("store_2")
    receipts = [await scribe.put([b"a"], type_name="flights") for _ in range(6)]
    await add(journal, [row(role_id, receipt, DeliveryState.PARKED) for receipt in receipts])
    await add(journal, [row(other, receipt, DeliveryState.WAITING, "names") for receipt in receipts])
    opened = [scribe.start_envelope() for _ in range(3)]
    await asyncio.gather(*(started for _, started in opened))
    assert await journal.read(count_parked, role_id, most=2) == Stalled(2, NOW, at_least=True)
    assert await journal.read(count_waiting, "names", most=2) == Stalled(2, NOW, at_least=True)
    assert await journal.read(count_owed_rows, other, most=2, most_rows=4) == Stalled(2, NOW, at_least=True)
    assert await journal.read(count_owed_rows, role_id, most=2, most_rows=4) is None
    assert await journal.read(count_open, NOW, most=2) == {"north": Stalled(2, NOW, at_least=True)}
    ahead, _ = await journal.read(
        find_owed_ahead, await cursor_of(journal, role_id), await service_id(journal, "store"), 0, most=2
    )
    assert ahead == Stalled(2, NOW, at_least=True)


async def test_what_is_open_by_its_emitter(journal: Journal, scribe: Scribe) -> None:
    envelope_id, started = scribe.start_envelope()
    await started
    await scribe.put([b"a"])
    assert await journal.read(count_open, NOW - timedelta(seconds=1)) == {}
    assert await journal.read(count_open, NOW) == {"north": Stalled(1, NOW)}
    await scribe.seal(envelope_id, 0, 0)
    assert await journal.read(count_open, NOW) == {}


async def test_what_is_owed_ahead_in_the_log(journal: Journal, scribe: Scribe) -> None:
    page = 3
    role_id, store, prices = scribe.role_id(), await service_id(journal, "store"), await service_id(journal, "prices")
    for _ in range(5):
        await scribe.put([b"a"])
    cursor = await cursor_of(journal, role_id)
    assert await journal.read(find_owed_ahead, cursor, store, 0, page) == (Stalled(3, NOW, at_least=True), 0)
    assert await journal.read(find_owed_ahead, cursor, store, 2, page) == (Stalled(3, NOW), 2)
    # No graph of them leads to this service: the next look begins behind them.
    assert await journal.read(find_owed_ahead, cursor, prices, 0, page) == (None, 3)
    assert await journal.read(find_owed_ahead, cursor, prices, 3, page) == (None, 5)
    cursor.settle_range(2, 4)
    assert await journal.read(find_owed_ahead, cursor, store, 1, page) == (None, 4)
    assert await journal.read(find_owed_ahead, cursor, store, 4, page) == (Stalled(1, NOW), 4)
    cursor.until_position = 5
    assert await journal.read(find_owed_ahead, cursor, store, 4, page) == (None, 5)


async def test_who_has_got_all_is_owed_nothing(journal: Journal, scribe: Scribe) -> None:
    receipt = await scribe.put([b"a"])
    await settle_all(journal, receipt.position)
    found = await outline(journal)
    cursor = found.roles[scribe.role_id()].cursor
    assert cursor is not None
    assert cursor.position == found.head == 1
