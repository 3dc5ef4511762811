"""What a person resumed, as recipients get it: corrected, without the items that were parked alone."""

import pytest
import sqlalchemy as sa

from tests.support.back import Broker, running
from tests.support.journal import NOW
from tests.support.recipients import NEW, OLD, REFUSED
from xbus import model
from xbus.broker.back.recipients.abilities import Abilities
from xbus.broker.journal.audit import RepairDecision
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.reading import read_log
from xbus.broker.journal.operations.corrections import add_correction
from xbus.broker.journal.operations.parked import resume_delivery
from xbus.broker.journal.writes import SealReceipt

DECISION = RepairDecision("ada", "it has a name now", NOW)


async def repair(broker: Broker, engine: sa.Engine, receipt: SealReceipt, corrected: int, alone: int) -> None:
    """Have ``store_1`` get an item otherwise and another not at all, and resume its envelope."""
    role_id = broker.scribe.role_id("store_1")
    (envelope,) = await broker.journal.read(read_log, receipt.position - 1, 1)
    (event,) = envelope.events
    item = {"role_id": role_id, "event_id": event.event_id, "item_index": alone, "envelope_id": receipt.envelope_id}
    told = {"state": "parked", "code": "refused", "cause": "no name", "changed_at": NOW}
    with engine.begin() as connection:
        connection.execute(sa.insert(model.parked_item).values(**item, **told))
        add_correction(connection, role_id, event.event_id, corrected, b"", b"GOOD", DECISION)
        resume_delivery(connection, role_id, receipt.envelope_id, DECISION)
    broker.pass_time(0)


@pytest.mark.parametrize("kind", [OLD, NEW])
async def test_a_role_gets_an_envelope_as_it_was_repaired_and_forgets_it_first(
    journal: Journal, engine: sa.Engine, kind: Abilities
) -> None:
    async with running(journal) as broker:
        client = await broker.register("store_1", kind, send_item=REFUSED, xbus_take_event=REFUSED)
        receipt = await broker.put(b"a", b"bad", b"c", b"d")
        await broker.until_rows({"store_1": ("parked", 1, "refused")})
        client.answers.clear()
        broker.script.calls.clear()
        await repair(broker, engine, receipt, corrected=1, alone=2)
        await broker.until_rows({})
        assert broker.script.items("store_1") == [([0], b"a"), ([1], b"GOOD"), ([3], b"d")]
        assert broker.script.verbs("store_1")[0] == "stop_envelope"
        # Who gets it in its turn gets it as it was sent.
        await broker.register("store_2", kind)
        await broker.until(lambda: broker.items("store_2") == [b"a", b"bad", b"c", b"d"])


async def test_workers_see_it_as_it_is_for_that_role_and_indices_stay(journal: Journal, engine: sa.Engine) -> None:
    async with running(journal) as broker:
        worker = await broker.register("names_1", xbus_take_event=REFUSED)
        await broker.register("store_1")
        receipt = await broker.put(b"bad", b"b", b"c", type_name="flights")
        await broker.until_rows({"store_1": ("parked", 1, "refused")})
        worker.answers.clear()
        broker.script.calls.clear()
        await repair(broker, engine, receipt, corrected=2, alone=0)
        await broker.until_rows({})
        expected = [([1], b"b"), ([2], b"GOOD")]
        assert (broker.script.items("names_1"), broker.script.items("store_1")) == (expected, expected)
