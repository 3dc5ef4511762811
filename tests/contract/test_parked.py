"""What is parked, and what a person does about it, on every database."""

import asyncio
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.journal import NOW, Scribe
from tests.support.parking import items_of, log, park, states
from xbus import model
from xbus.broker.journal.audit import RepairDecision
from xbus.broker.journal.database.engine import is_memory
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.deliveries import read_due_deliveries
from xbus.broker.journal.log.event_states import DROPPED
from xbus.broker.journal.log.overlays import OverlaidItem, list_overlaid
from xbus.broker.journal.log.reading import read_head
from xbus.broker.journal.operations.corrections import add_correction, read_corrections
from xbus.broker.journal.operations.envelopes.details import show_envelope
from xbus.broker.journal.operations.parked import (
    Filters,
    Parked,
    ResumedEvent,
    drop_delivery,
    drop_items,
    find_parked,
    hold_delivery,
    hold_item,
    list_parked,
    read_parked_page,
    read_parked_roles,
    resume_delivery,
    resume_items,
)
from xbus.broker.journal.retention.pruning import read_stored_bytes
from xbus.broker.journal.writes import SealReceipt
from xbus.errors import Refused
from xbus.rpc.codec import pack_items

DECISION = RepairDecision("ada", "no name", NOW + timedelta(hours=1))


class Repair:
    """Does what the commands do, each in a transaction of its own."""

    def __init__(self, engine: sa.Engine, scribe: Scribe) -> None:
        self._engine = engine
        self._scribe = scribe
        # A database in memory has one connection only.
        self._turn = asyncio.Semaphore(1 if is_memory(engine) else 2)

    async def do(self, work: Callable[..., Any], *args: Any) -> Any:
        def in_transaction() -> Any:
            with self._engine.begin() as connection:
                return work(connection, *args)

        async with self._turn:
            return await asyncio.to_thread(in_transaction)

    async def parked(self, receipt: SealReceipt, role: str | None = None) -> list[Parked]:
        _, found = await self.do(find_parked, receipt.envelope_id, role)
        return list(found)

    async def isolate(self, receipt: SealReceipt, *indices: int, role: str = "store_1", number: int = 1) -> None:
        """Park items alone."""

        def insert(connection: sa.Connection) -> None:
            wanted = sa.select(model.event.c.id).where(
                model.event.c.envelope_id == receipt.envelope_id, model.event.c.number == number
            )
            row = {
                "role_id": self._scribe.role_id(role),
                "event_id": connection.execute(wanted).scalar_one(),
                "envelope_id": receipt.envelope_id,
                "state": "parked",
                "code": "refused",
                "cause": "too old",
                "changed_at": NOW,
            }
            connection.execute(sa.insert(model.parked_item), [{**row, "item_index": index} for index in indices])

        await self.do(insert)

    async def resume_items(self, receipt: SealReceipt, runs: Sequence[Sequence[bytes]]) -> SealReceipt:
        """Resume all items of the first event that are parked alone."""

        def resume(connection: sa.Connection) -> SealReceipt:
            past, (parked,) = find_parked(connection, receipt.envelope_id, "store_1")
            stored = [(len(run), pack_items(list(run))) for run in runs]
            event = ResumedEvent(uuid.uuid4(), past.events[0].event_id, parked.items, stored)
            return resume_items(connection, uuid.uuid4(), past, parked, [event], DECISION)

        resumed: SealReceipt = await self.do(resume)
        return resumed


@pytest.fixture
def repair(engine: sa.Engine, scribe: Scribe) -> Repair:
    return Repair(engine, scribe)


async def test_what_is_parked_is_found(journal: Journal, scribe: Scribe, repair: Repair) -> None:
    first, second = await scribe.put([b"a"], [b"b"]), await scribe.put([b"c"] * 3)
    for login in ("store_2", "store_1"):
        await park(journal, first, scribe.role_id(login))
    await repair.isolate(second, 2, 0)
    listed = await repair.do(list_parked, Filters(), 10)
    assert {(summary.position, summary.role, summary.parked_items, summary.types) for summary in listed} == {
        (1, "store_1", None, ("notes",)),
        (1, "store_2", None, ("notes",)),
        (2, "store_1", 2, ("notes",)),
    }
    for filters, found in {
        Filters(role="store_1"): 2,
        Filters(service="store", event_type="notes", code="refused", until=NOW): 3,
        Filters(until=NOW - timedelta(seconds=1)): 0,
        Filters(event_type="flights"): 0,
        Filters(code="lost"): 0,
    }.items():
        assert len(await repair.do(list_parked, filters, 10)) == found, filters
    assert len(await repair.do(list_parked, Filters(), 1)) == 1
    assert await repair.do(read_parked_roles, Filters()) == [scribe.role_id("store_1"), scribe.role_id("store_2")]
    assert await repair.do(read_parked_roles, Filters(code="lost")) == []
    page = await repair.do(read_parked_page, scribe.role_id("store_1"), Filters(event_type="notes"), 0, 10)
    assert page == [(1, first.envelope_id)]
    assert await repair.do(read_parked_page, scribe.role_id("store_1"), Filters(), 1, 10) == []
    assert [(parked.role, parked.items) for parked in await repair.parked(first)] == [("store_1", ()), ("store_2", ())]
    (alone,) = await repair.parked(second)
    assert (alone.delivery, [(item.number, item.index) for item in alone.items]) == (None, [(1, 0), (1, 2)])


async def test_a_resumed_delivery_is_due_and_counted_anew(journal: Journal, scribe: Scribe, repair: Repair) -> None:
    first = await scribe.put([b"a"])
    role_id = scribe.role_id()
    await park(journal, first, role_id)
    await repair.do(hold_delivery, role_id, first.envelope_id)
    await repair.do(resume_delivery, role_id, first.envelope_id, DECISION)
    (row,) = await journal.read(read_due_deliveries, role_id, (), 10, NOW)
    assert (row.attempts, row.code) == (0, "resumed")
    for move in (resume_delivery, drop_delivery):
        with pytest.raises(Refused, match="is not parked: it is retry for store_1"):
            await repair.do(move, role_id, first.envelope_id, DECISION)
    with pytest.raises(Refused, match="not parked"):
        await repair.do(hold_delivery, role_id, first.envelope_id)


async def test_of_two_who_decide_at_once_one_is_refused(journal: Journal, scribe: Scribe, repair: Repair) -> None:
    first = await scribe.put([b"a"])
    await park(journal, first, scribe.role_id())
    both = [repair.do(move, scribe.role_id(), first.envelope_id, DECISION) for move in (resume_delivery, drop_delivery)]
    outcomes = await asyncio.gather(*both, return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["NoneType", "Refused"]


async def test_what_is_dropped_is_told_so(journal: Journal, scribe: Scribe, repair: Repair) -> None:
    first = await scribe.put([b"a"])
    await park(journal, first, scribe.role_id())
    await repair.do(drop_delivery, scribe.role_id(), first.envelope_id, DECISION)
    assert await states(journal) == []
    detail = await journal.read(show_envelope, first.envelope_id)
    assert detail is not None
    told = {role.role: (role.state, role.cause) for role in detail.summary.roles}
    assert told["store_1"] == (DROPPED, "ada: no name")


async def test_items_come_again_as_an_envelope_for_their_role(journal: Journal, scribe: Scribe, repair: Repair) -> None:
    first = await scribe.put([b"a", b"b", b"c"])
    await repair.isolate(first, 0, 2)
    before, stored = await journal.read(read_head), await journal.read(read_stored_bytes)
    resumed = await repair.resume_items(first, [[b"A"], [b"c"]])
    assert await journal.read(read_stored_bytes) == stored + resumed.data_bytes
    new = (await log(journal))[-1]
    assert (new.envelope_id, new.position, new.only_roles) == (
        resumed.envelope_id,
        before + 1,
        frozenset({scribe.role_id()}),
    )
    assert await items_of(journal, new) == [[b"A", b"c"]]
    # The log goes on behind it.
    assert (await scribe.put([b"d"])).position == before + 2
    detail = await journal.read(show_envelope, resumed.envelope_id)
    assert detail is not None
    assert (detail.summary.items, detail.summary.bytes, detail.hash) == (2, resumed.data_bytes, resumed.hash)
    with pytest.raises(Refused, match="is not parked"):
        await repair.resume_items(first, [[b"A"]])


async def test_positions_have_no_gap_where_seals_and_resumed_items_meet(
    journal: Journal, engine: sa.Engine, scribe: Scribe, repair: Repair
) -> None:
    if is_memory(engine):
        return  # One connection, which the journal writes with.
    parked = [await scribe.put([b"a"]) for _ in range(3)]
    for receipt in parked:
        await repair.isolate(receipt, 0)
    resumed = (repair.resume_items(receipt, [[b"A"]]) for receipt in parked)
    receipts = await asyncio.gather(*(scribe.put([b"x"]) for _ in range(5)), *resumed)
    assert sorted(receipt.position for receipt in receipts) == list(range(4, 12))
    assert await journal.read(read_head) == 11


async def test_an_item_that_was_moved_meanwhile_keeps_all_from_being_done(
    journal: Journal, scribe: Scribe, repair: Repair
) -> None:
    first = await scribe.put([b"a", b"b"])
    await repair.isolate(first, 0, 1)
    (parked,) = await repair.parked(first)
    past, _ = await repair.do(find_parked, first.envelope_id)
    await repair.do(hold_item, parked, parked.items[1])
    await repair.do(drop_items, parked, parked.items[1:], DECISION)
    before = await journal.read(read_head)
    event = ResumedEvent(uuid.uuid4(), past.events[0].event_id, parked.items, [(2, pack_items([b"a", b"b"]))])
    works: list[tuple[Any, ...]] = [
        (resume_items, uuid.uuid4(), past, parked, [event], DECISION),
        (drop_items, parked, parked.items, DECISION),
        (hold_item, parked, parked.items[1]),
    ]
    for work, *args in works:
        with pytest.raises(Refused, match="item 1 of event 1 is no longer parked for role store_1"):
            await repair.do(work, *args)
    assert await journal.read(read_head) == before
    (still,) = await repair.parked(first)
    assert [item.index for item in still.items] == [0]


async def test_items_of_a_type_that_leads_elsewhere_now_are_not_resumed(
    journal: Journal, scribe: Scribe, repair: Repair
) -> None:
    first = await scribe.put([b"a"])
    await repair.isolate(first, 0)
    past, (parked,) = await repair.do(find_parked, first.envelope_id)
    secret = scribe.catalog.event_types["secrets"]
    past = replace(past, events=(replace(past.events[0], type_name="secrets", event_type_id=secret.id),))
    event = ResumedEvent(uuid.uuid4(), past.events[0].event_id, parked.items, [(1, pack_items([b"a"]))])
    with pytest.raises(Refused, match='events of type "secrets" no longer lead to role store_1'):
        await repair.do(resume_items, uuid.uuid4(), past, parked, [event], DECISION)


async def test_a_correction_is_kept_with_what_was_before(journal: Journal, scribe: Scribe, repair: Repair) -> None:
    first = await scribe.put([b"a", b"b"])
    await repair.isolate(first, 1)
    (envelope,) = await log(journal)
    event_id = envelope.events[0].event_id
    await repair.do(add_correction, scribe.role_id(), event_id, 1, b"b", b"B", DECISION)
    (kept,) = await repair.do(read_corrections, first.envelope_id)
    assert (kept.role, kept.event_id, kept.index, kept.before, kept.after, kept.reason, kept.at) == (
        *("store_1", event_id, 1, b"b", b"B"),
        "ada: no name",
        DECISION.at,
    )
    assert await repair.do(list_overlaid, first.envelope_id, 10) == [
        OverlaidItem("store_1", 1, 1, "parked", NOW, "too old"),
        OverlaidItem("store_1", 1, 1, "corrected", DECISION.at, "ada: no name"),
    ]
