"""An item that was corrected for all: whoever has not had its envelope gets it so, and nobody pays for what is not."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.back import Broker, running
from tests.support.journal import NOW
from tests.support.recipients import NEW, OLD, REFUSED
from xbus import model
from xbus.broker.back.recipients.abilities import Abilities
from xbus.broker.journal.audit import RepairDecision
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.overlays import read_overlays
from xbus.broker.journal.log.reading import LogEnvelope, read_log
from xbus.broker.journal.operations.corrections import add_correction, read_corrected_events
from xbus.broker.journal.operations.parked import resume_delivery
from xbus.broker.journal.writes import SealReceipt

DECISION = RepairDecision("ada", "it has a name now", NOW)
BULK = Abilities(batches=True, envelopes=2, bulk_items=3)


async def envelope_of(journal: Journal, receipt: SealReceipt) -> LogEnvelope:
    (envelope,) = await journal.read(read_log, receipt.position - 1, 1)
    return envelope


async def correct(
    broker: Broker, receipt: SealReceipt, index: int, after: bytes = b"GOOD", resume: Sequence[str] = ()
) -> None:
    """Correct an item of the first event for all, have roles for which it is parked get it, and have it noticed."""
    envelope = await envelope_of(broker.journal, receipt)
    segments_id = envelope.events[0].segments_id

    def work(connection: sa.Connection) -> None:
        add_correction(connection, None, segments_id, index, b"", after, DECISION)
        for login in resume:
            resume_delivery(connection, broker.scribe.role_id(login), receipt.envelope_id, DECISION)

    await broker.journal.read(work)
    await broker.back._assembly._log.refresh()
    broker.pass_time(10)


async def states(journal: Journal) -> list[str]:
    """Of the rows of deliveries, in position order."""
    row = model.delivery.c
    return await journal.read(
        lambda connection: [*connection.execute(sa.select(row.state).order_by(row.position)).scalars()]
    )


@pytest.mark.parametrize("kind", [OLD, NEW])
async def test_who_lacks_it_gets_it_and_who_has_it_is_left_alone(journal: Journal, kind: Abilities) -> None:
    async with running(journal) as broker:
        refuses = await broker.register("store_1", kind, send_item=REFUSED, xbus_take_event=REFUSED)
        receipt = await broker.put(b"a", b"bad", b"c")
        await broker.until_rows({"store_1": ("parked", 1, "refused")})
        had = await broker.put(b"d")
        refuses.answers.clear()
        await broker.until_rows({"store_1": ("parked", 1, "refused")})
        await correct(broker, receipt, 1, resume=["store_1"])
        await broker.until(lambda: b"GOOD" in broker.items("store_1"))
        await broker.until_rows({})
        calls = len(broker.script.calls)
        await correct(broker, receipt, 0, b"BETTER")
        # Who comes later gets it in its turn, corrected.
        await broker.register("store_2", kind)
        await broker.until(lambda: broker.items("store_2") == [b"BETTER", b"GOOD", b"c", b"d"])
        assert {call.whom for call in broker.script.calls[calls:]} == {"store_2"}
        assert had.position == 2


async def test_workers_get_it_corrected_too(journal: Journal) -> None:
    async with running(journal) as broker:
        receipt = await broker.put(b"a", b"bad", type_name="flights")
        await correct(broker, receipt, 1)
        await broker.register("names_1")
        await broker.register("store_1")
        await broker.until(lambda: broker.items("store_1") == [b"a", b"GOOD"])
        assert broker.items("names_1") == [b"a", b"GOOD"]


async def test_a_repeat_carries_it(journal: Journal) -> None:
    async with running(journal) as broker:
        receipt = await broker.put(b"a", b"bad")
        await broker.register("store_1")
        await broker.until(lambda: broker.items("store_1") == [b"a", b"bad"])
        await correct(broker, receipt, 1)
        await broker.write(await broker.scribe.again(receipt.envelope_id))
        await broker.until(lambda: broker.items("store_1") == [b"a", b"bad", b"a", b"GOOD"])


async def test_what_waited_for_its_turn_is_brought_corrected(journal: Journal) -> None:
    ordered = sa.update(model.role).where(model.role.c.login == "store_1").values(ordered=True)
    await journal.read(lambda connection: connection.execute(ordered).rowcount)
    async with running(journal) as broker:
        refuses = await broker.register("store_1", xbus_take_event=REFUSED)
        first = await broker.put(b"bad", ordering_key="k")
        second = await broker.put(b"worse", ordering_key="k")
        while await states(journal) != ["parked", "held"]:
            await asyncio.sleep(0)
        refuses.answers.clear()
        broker.script.calls.clear()
        await correct(broker, second, 0)
        await correct(broker, first, 0, b"WELL", resume=["store_1"])
        await broker.until(lambda: broker.items("store_1") == [b"WELL", b"GOOD"])


async def test_a_broker_that_starts_knows_what_was_corrected_before(journal: Journal) -> None:
    async with running(journal) as broker:
        receipt = await broker.put(b"bad")
        await correct(broker, receipt, 0)
    async with running(journal) as broker:
        await broker.register("store_1")
        await broker.until(lambda: broker.items("store_1") == [b"GOOD"])


async def test_it_is_not_made_as_a_whole_by_a_bulk_worker(journal: Journal) -> None:
    async with running(journal) as broker:
        receipt = await broker.put(b"a", b"bad", b"c", type_name="flights")
        await correct(broker, receipt, 1)
        await broker.register("names_1", BULK)
        await broker.register("store_1")
        await broker.until(lambda: broker.items("store_1") == [b"a", b"GOOD", b"c"])
        assert "xbus.take_output" not in {call.verb for call in broker.script.calls}


async def test_a_correction_during_a_run_is_for_the_next_one(journal: Journal) -> None:
    answer = asyncio.get_running_loop().create_future()
    async with running(journal) as broker:
        recipient = await broker.register("store_1", xbus_take_event=answer)
        receipt = await broker.put(b"bad")
        await broker.until(lambda: broker.items("store_1"))
        await correct(broker, receipt, 0)
        answer.set_result(REFUSED)
        await broker.until_rows({"store_1": ("parked", 1, "refused")})
        recipient.answers.clear()
        await correct(broker, receipt, 0, b"BETTER", resume=["store_1"])
        await broker.until_rows({})
        assert broker.items("store_1")[-1:] == [b"BETTER"]


async def test_an_ordinary_envelope_costs_no_read_more(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Callable[..., Any]] = []
    read = journal.read

    async def counted(statement: Callable[..., Any], *args: Any) -> Any:
        reads.append(statement)
        return await read(statement, *args)

    monkeypatch.setattr(journal, "read", counted)
    async with running(journal) as broker:
        await broker.register("store_1")
        bad = await broker.put(b"bad")
        await broker.until(lambda: broker.items("store_1") == [b"bad"])
        await correct(broker, bad, 0)
        reads.clear()
        for number in range(5):
            await broker.put(b"%d" % number)
        await broker.until(lambda: len(broker.items("store_1")) == 6)
        assert not {read_overlays, read_corrected_events} & {*reads}
