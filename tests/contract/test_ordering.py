"""What is kept of roles that want order: rows with their keys, and how they are found."""

from collections.abc import Sequence

import sqlalchemy as sa

from tests.support.journal import NOW, Scribe
from xbus import model
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.reading import (
    HeldKey,
    read_at,
    read_free_keys,
    read_held_keys,
    read_key_rows,
    read_log,
    read_states,
)
from xbus.broker.journal.writes import DeliveryMove, DeliveryRow, FollowOrder, ProgressUpdate, SealReceipt
from xbus.states import DeliveryState

HELD, RETRY, PARKED = DeliveryState.HELD, DeliveryState.RETRY, DeliveryState.PARKED


async def put(scribe: Scribe, *keys: str | None) -> list[SealReceipt]:
    """An envelope with each of these ordering keys."""
    return [await scribe.put([b"item"], ordering_key=key) for key in keys]


def row(
    scribe: Scribe, receipt: SealReceipt, key: str | None, state: DeliveryState, role: str = "store_1"
) -> DeliveryRow:
    role_id = scribe.role_id(role)
    return DeliveryRow(role_id, receipt.envelope_id, receipt.position, state, 0, "held", "held up", ordering_key=key)


async def note(journal: Journal, *rows: DeliveryRow) -> None:
    await journal.write(ProgressUpdate(NOW, deliveries=[DeliveryMove(None, row) for row in rows]))


async def rows_of(journal: Journal, role_id: int) -> Sequence[tuple[int, str, str | None]]:
    def read(connection: sa.Connection) -> Sequence[tuple[int, str, str | None]]:
        delivery = model.delivery.c
        wanted = sa.select(delivery.position, delivery.state, delivery.ordering_key).where(delivery.role_id == role_id)
        return [(position, state, key) for position, state, key in connection.execute(wanted.order_by("position"))]

    return await journal.read(read)


async def test_the_log_tells_ordering_keys(journal: Journal, scribe: Scribe) -> None:
    first, _ = await put(scribe, "invoice 7", None)
    assert [envelope.head.ordering_key for envelope in await journal.read(read_log, 0, 10)] == ["invoice 7", None]
    assert [envelope.head.ordering_key for envelope in await journal.read(read_at, [first.position])] == ["invoice 7"]


async def test_rows_are_found_by_their_keys_in_order(journal: Journal, scribe: Scribe) -> None:
    receipts = await put(scribe, "a", "b", "a", None, "a")
    keys = ["a", "b", "a", "", "a"]
    rows = [row(scribe, receipt, key, HELD) for receipt, key in zip(receipts, keys, strict=True)]
    await note(journal, *reversed(rows))
    role_id = scribe.role_id()
    assert await journal.read(read_key_rows, role_id, "a", 2) == [rows[0], rows[2]]
    assert await journal.read(read_key_rows, role_id, "", 2) == [rows[3]]
    assert await journal.read(read_key_rows, role_id, "c", 2) == []
    assert sorted(await journal.read(read_held_keys, [role_id]), key=lambda key: key.lowest) == [
        HeldKey(role_id, "a", rows[0].position, rows[4].position),
        HeldKey(role_id, "b", rows[1].position, rows[1].position),
        HeldKey(role_id, "", rows[3].position, rows[3].position),
    ]
    assert await journal.read(read_held_keys, [scribe.role_id("store_2")]) == []


async def test_a_key_whose_lowest_row_is_held_is_free(journal: Journal, scribe: Scribe) -> None:
    free, behind, parked, held = await put(scribe, "a", "a", "b", "b")
    await note(journal, row(scribe, free, "a", HELD), row(scribe, behind, "a", HELD))
    await note(journal, row(scribe, parked, "b", PARKED), row(scribe, held, "b", HELD))
    role_id = scribe.role_id()
    assert await journal.read(read_free_keys, [role_id]) == [HeldKey(role_id, "a", free.position, behind.position)]


async def test_states_are_told_by_position(journal: Journal, scribe: Scribe) -> None:
    first, second, third = await put(scribe, "a", "a", "a")
    await note(journal, row(scribe, first, "a", PARKED), row(scribe, second, "a", HELD))
    positions = [first.position, second.position, third.position]
    found = await journal.read(read_states, scribe.role_id(), positions)
    assert found == {first.position: PARKED, second.position: HELD}


async def test_rows_get_keys_when_their_role_wants_order_and_lose_them_when_it_wants_none(
    journal: Journal, scribe: Scribe
) -> None:
    first, second = await put(scribe, "a", None)
    await note(journal, row(scribe, first, None, PARKED), row(scribe, second, None, RETRY))
    others = row(scribe, first, None, PARKED, role="store_2")
    await note(journal, others)
    store = scribe.role_id()
    await journal.write(FollowOrder([store]))
    assert await rows_of(journal, store) == [(first.position, PARKED, "a"), (second.position, RETRY, "")]
    assert await rows_of(journal, others.role_id) == [(first.position, PARKED, None)]

    (third,) = await put(scribe, "a")
    await note(journal, row(scribe, third, "a", HELD))
    await journal.write(FollowOrder([]))
    assert await rows_of(journal, store) == [
        (first.position, PARKED, None),
        (second.position, RETRY, None),
        (third.position, RETRY, None),
    ]
