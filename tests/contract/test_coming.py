"""The list of what is still to come by itself: a bus for tests is quiet when it is empty."""

from uuid import UUID

import sqlalchemy as sa

from tests.support.journal import NOW, Scribe, settle_all
from xbus import model
from xbus.broker.journal.operations.coming import ComingDelivery, list_coming


async def test_an_envelope_comes_until_its_role_is_done_with_it(scribe: Scribe) -> None:
    assert await scribe.journal.read(list_coming) == []
    for _ in range(2):
        await scribe.put([b"item"])

    # The first ahead of each cursor is enough.
    assert await scribe.journal.read(list_coming) == [ComingDelivery("store_1", 1), ComingDelivery("store_2", 1)]

    await settle_all(scribe.journal, 2)
    assert await scribe.journal.read(list_coming) == []


async def test_rows_come_unless_they_wait_for_a_person(scribe: Scribe) -> None:
    states = [("parked", "ada"), ("held", "ada"), ("held", "grace"), ("retry", None), ("waiting", None)]
    receipts = [await scribe.put([b"item"]) for _ in states]
    await settle_all(scribe.journal, len(receipts))

    def add_rows(connection: sa.Connection) -> None:
        names = connection.execute(sa.select(model.service.c.id).where(model.service.c.name == "names")).scalar_one()
        for (state, key), receipt in zip(states, receipts, strict=True):
            add_row(connection, scribe.role_id("store_1"), receipt.envelope_id, receipt.position, state, key, names)

    await scribe.journal.run(add_rows)

    assert await scribe.journal.read(list_coming) == [
        ComingDelivery("store_1", 3, "held"),
        ComingDelivery("store_1", 4, "retry"),
        ComingDelivery("store_1", 5, "waiting", "names"),
    ]


def add_row(
    connection: sa.Connection,
    role_id: int,
    envelope_id: UUID,
    position: int,
    state: str,
    key: str | None,
    service_id: int,
) -> None:
    row = {
        "role_id": role_id,
        "envelope_id": envelope_id,
        "position": position,
        "state": state,
        "service_id": service_id if state == "waiting" else None,
        "attempts": 1,
        "code": "test",
        "cause": state,
        "changed_at": NOW,
        "ordering_key": key,
    }
    connection.execute(sa.insert(model.delivery).values(row))
