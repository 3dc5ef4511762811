"""Outputs of bulk workers, in the back over a journal in memory: asked for, waited for, and what becomes of them."""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa

from tests.support.attempts import read_attempt
from tests.support.back import Broker, running
from tests.support.journal import NOW, small_bus
from tests.support.recipients import BROKEN, NEW, REFUSED
from xbus import model
from xbus.broker.back.bulk.attempt import WantedOutput
from xbus.broker.back.progress.retry_policy import RetryPolicy
from xbus.broker.back.recipients.abilities import Abilities
from xbus.broker.journal.audit import RepairDecision
from xbus.broker.journal.bulk.outputs import read_totals
from xbus.broker.journal.configuration import RoleSpec, apply, make_plan, read_stored
from xbus.broker.journal.database.compression import DAMAGED
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.reading import read_log
from xbus.broker.journal.operations.corrections import add_correction
from xbus.broker.journal.retention.pruning import read_stored_bytes
from xbus.broker.journal.writes import PauseEntry, PauseKind, Write
from xbus.broker.journal.writes.bulk import BeginAttempt, EndAttempt
from xbus.errors import Failed, JournalError, Refused
from xbus.rpc.codec import pack_items
from xbus.states import AttemptState, DeliveryState

BULK = Abilities(batches=True, envelopes=2, bulk_items=3)

LARGE = (b"a", b"b", b"c")


async def begin(broker: Broker) -> None:
    """A bulk worker and a consumer come, and a large event for them."""
    await broker.register("names_1", BULK)
    await broker.register("store_1")
    await broker.put(*LARGE, type_name="flights")


def handovers(broker: Broker, worker: str = "names_1") -> list[dict[str, Any]]:
    """What a worker was asked for."""
    calls = [call for call in broker.script.calls if (call.whom, call.verb) == (worker, "xbus.take_output")]
    return [call.args[-1] for call in calls]


async def asked(broker: Broker, count: int = 1, worker: str = "names_1") -> str:
    """The id of the last attempt, once there are so many."""
    await broker.until(lambda: len(handovers(broker, worker)) == count)
    attempt_id: str = handovers(broker, worker)[-1]["attempt_id"]
    return attempt_id


async def write(
    broker: Broker, attempt_id: str, items: Sequence[bytes], sources: bytes | None = None
) -> dict[str, Any]:
    """Write an output of one segment; what is to be told of it."""
    data = pack_items(list(items))
    digest = hashlib.sha256(data).digest()
    row = {"part": 0, "number": 0, "items": len(items), "data": data, "hash": digest, "first_index": 0}

    def insert(connection: sa.Connection) -> None:
        connection.execute(sa.insert(model.bulk_segment), {**row, "attempt_id": UUID(attempt_id), "sources": sources})

    await broker.journal.run(insert)
    return {"items": len(items), "bytes": len(data), "hash": hashlib.sha256(digest).digest()}


def role_id(broker: Broker, worker: str = "names_1") -> int:
    return broker.scribe.role_id(worker)


async def ready(broker: Broker, attempt_id: str, items: Sequence[bytes], worker: str = "names_1") -> bool:
    told = await write(broker, attempt_id, items)
    return await broker.back.reports.ready(role_id(broker, worker), attempt_id, told)


async def failed(broker: Broker, attempt_id: str, kind: str, code: str = "no", errors: Any = ()) -> bool:
    told = {"class": kind, "code": code, "message": "it did not work", "errors": list(errors)}
    return await broker.back.reports.failed(role_id(broker), attempt_id, told)


async def test_consumers_are_started_when_the_output_is_there(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("names_1", BULK)
        await broker.register("store_1")
        receipt = await broker.put(*LARGE, type_name="flights")
        attempt_id = await asked(broker)
        assert handovers(broker)[0]["items"] == 3
        assert handovers(broker)[0]["input"] is None
        await broker.until_rows({"store_1": ("waiting", 0, "output_not_ready")})
        await broker.put(b"note")
        await broker.until(lambda: broker.items("store_1") == [b"note"])

        assert await ready(broker, attempt_id, [b"A", b"C"])
        await broker.until(lambda: broker.items("store_1") == [b"note", b"A", b"C"])
        await broker.until_rows({})
        # Who comes later gets the same, and nobody is asked again.
        await broker.leave("names_1")
        await broker.register("store_2")
        await broker.until(lambda: broker.items("store_2") == [b"A", b"C", b"note"])
    assert broker.script.verbs("names_1").count("xbus.take_output") == 1
    assert receipt.items == 3


async def test_an_output_of_an_item_as_it_was_sent_is_not_for_those_who_get_it_corrected(journal: Journal) -> None:
    async with running(journal) as broker:
        await begin(broker)
        assert await ready(broker, await asked(broker), [b"A", b"B", b"C"])
        await broker.until(lambda: broker.items("store_1") == [b"A", b"B", b"C"])
        (envelope,) = await journal.read(read_log, 0, 1)
        decision = RepairDecision("ada", "a name", NOW)
        item = (envelope.events[0].event_id, 1, b"b", b"better", decision)
        await journal.read(lambda connection: add_correction(connection, None, *item))
        await broker.back._assembly._log.refresh()
        await broker.leave("names_1")
        await broker.register("store_2")
        # The worker has to be asked again, item by item, though its output is there.
        await broker.until_rows({"store_2": ("waiting", 0, "worker_absent")})
        await broker.register("names_1", BULK)
        await broker.until(lambda: broker.items("store_2") == [b"a", b"better", b"c"])
    assert len(handovers(broker)) == 1


async def test_small_events_and_immediate_ones_are_sent(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("names_1", BULK)
        await broker.register("store_1")
        await broker.put(b"a", b"b", type_name="flights")
        await broker.put(*LARGE, type_name="wishes")
        await broker.until(lambda: broker.items("store_1") == [b"a", b"b", *LARGE])
    assert handovers(broker) == []


async def test_items_bear_the_indices_that_the_worker_names(journal: Journal) -> None:
    async with running(journal) as broker:
        await begin(broker)
        attempt_id = await asked(broker)
        sources = b"".join(index.to_bytes(8, "little", signed=True) for index in (2, -1))
        told = await write(broker, attempt_id, [b"C", b"sum"], sources)
        assert await broker.back.reports.ready(role_id(broker), attempt_id, told)
        await broker.until(lambda: broker.script.items("store_1") == [([2], b"C"), ([], b"sum")])


async def test_a_bulk_node_below_another_takes_its_output(journal: Journal) -> None:
    async with running(journal) as broker:
        for worker in ("names_1", "prices_1"):
            await broker.register(worker, BULK)
        await broker.register("store_1")
        await broker.put(*LARGE, type_name="fares")
        first = await asked(broker)
        assert handovers(broker, "prices_1") == []
        assert await ready(broker, first, [b"A", b"B"])
        second = await asked(broker, worker="prices_1")
        assert (handovers(broker, "prices_1")[0]["input"], handovers(broker, "prices_1")[0]["items"]) == (first, 2)
        assert await ready(broker, second, [b"AA"], "prices_1")
        await broker.until(lambda: broker.items("store_1") == [b"AA"])


async def test_what_a_node_above_has_lost_is_made_anew_first(journal: Journal) -> None:
    async with running(journal, retry=RetryPolicy(attempts=3, first_delay=1, jitter=0)) as broker:
        for worker in ("names_1", "prices_1"):
            await broker.register(worker, BULK)
        await broker.register("store_1")
        await broker.put(*LARGE, type_name="fares")
        assert await ready(broker, await asked(broker), [b"A", b"B"])
        second = await asked(broker, worker="prices_1")
        await journal.run(lambda connection: connection.execute(sa.delete(model.bulk_segment)))
        told = {"class": "transient", "code": "journal_error", "message": "segments are gone", "errors": []}
        assert await broker.back.reports.failed(role_id(broker, "prices_1"), second, told)

        await broker.until_rows({"store_1": ("retry", 1, "journal_error")})
        broker.pass_time(10)
        await broker.until_rows({"store_1": ("retry", 2, "output_lost")})
        broker.pass_time(10)
        assert await ready(broker, await asked(broker, 2), [b"A", b"B"])
        third = await asked(broker, 2, "prices_1")
        assert await ready(broker, third, [b"AA"], "prices_1")
        await broker.until(lambda: broker.items("store_1") == [b"AA"])


async def test_an_ordinary_worker_behind_a_bulk_node_gets_its_output(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("names_1", BULK)
        await broker.register("prices_1", NEW)
        await broker.register("store_1")
        await broker.put(*LARGE, type_name="fares")
        assert await ready(broker, await asked(broker), [b"A", b"B"])
        await broker.until(lambda: broker.items("store_1") == [b"A", b"B"])
        assert broker.items("prices_1") == [b"A", b"B"]


async def test_reports_may_be_repeated_and_get_the_same_answer(journal: Journal) -> None:
    async with running(journal) as broker:
        await begin(broker)
        attempt_id = await asked(broker)
        reports, role = broker.back.reports, role_id(broker)
        assert reports.renew(role, attempt_id, 0.5)
        assert not reports.renew(role_id(broker, "prices_1"), attempt_id, 0.5), "it is another's"
        told = await write(broker, attempt_id, [b"A"])
        assert await reports.ready(role, attempt_id, told)
        assert await reports.ready(role, attempt_id, told)
        assert not reports.renew(role, attempt_id, 1.0)
        assert not await failed(broker, attempt_id, "permanent"), "it was made"
        with pytest.raises(Refused, match="not a map"):
            await reports.ready(role, attempt_id, {"items": 1})
        with pytest.raises(Refused, match="no UUID"):
            reports.renew(role, "1", 0.5)
        unknown = str(UUID(int=7))
        assert not reports.renew(role, unknown, 0.5)
        assert not await reports.ready(role, unknown, told)


async def test_the_unsaid_counts_for_nothing(journal: Journal) -> None:
    retry = RetryPolicy(attempts=2, first_delay=1, jitter=0)
    async with running(journal, retry=retry) as broker:
        await begin(broker)
        attempt_id = await asked(broker)
        told = await write(broker, attempt_id, [b"A"])
        assert not await broker.back.reports.ready(role_id(broker), attempt_id, {**told, "items": 2})
        await broker.until_rows({"store_1": ("retry", 1, "output_mismatch")})
        broker.pass_time(1)
        assert await ready(broker, await asked(broker, 2), [b"B"])
        await broker.until(lambda: broker.items("store_1") == [b"B"])


@pytest.mark.parametrize("is_retried", [True, False])
async def test_what_was_lost_is_made_anew_at_once(journal: Journal, is_retried: bool) -> None:
    async with running(journal, retry=RetryPolicy(attempts=1 + is_retried, first_delay=1, jitter=0)) as broker:
        await begin(broker)
        first = await asked(broker)
        assert await ready(broker, first, [b"A", b"C"])
        await broker.until(lambda: broker.items("store_1") == [b"A", b"C"])
        await journal.run(lambda connection: connection.execute(sa.delete(model.bulk_segment)))
        stored = await journal.read(read_stored_bytes)

        await broker.register("store_2")
        state = ("retry", 1, "output_lost") if is_retried else ("parked", 1, "output_lost")
        await broker.until_rows({"store_2": state})
        if not is_retried:
            resumed = sa.update(model.delivery).values(state=DeliveryState.RETRY.value, attempts=0)
            await journal.run(lambda connection: connection.execute(resumed))
        broker.pass_time(10)
        assert await ready(broker, await asked(broker, 2), [b"A", b"C"])
        await broker.until(lambda: broker.items("store_2") == [b"A", b"C"])

        assert broker.items("store_1") == [b"A", b"C"]
        assert await journal.read(read_stored_bytes) == stored
        lost = await journal.read(read_attempt, UUID(first))
    assert lost is not None
    assert (lost.state, lost.code) == (AttemptState.ABANDONED, "output_lost")


async def test_a_refusal_parks_with_the_workers_words(journal: Journal) -> None:
    async with running(journal) as broker:
        await begin(broker)
        assert await failed(broker, await asked(broker), "permanent", "refused", [[[1], "too old"]])
        await broker.until_rows({"store_1": ("parked", 1, "refused")})


async def test_damage_that_a_worker_met_parks_by_its_code_and_is_told_to_health_once(journal: Journal) -> None:
    told: list[JournalError] = []
    journal.on_damage(told.append)
    async with running(journal) as broker:
        await begin(broker)
        attempt_id = await asked(broker)
        assert await failed(broker, attempt_id, "permanent", DAMAGED, [[[], "not as sent"]])
        await broker.until_rows({"store_1": ("parked", 1, DAMAGED)})
        assert not await failed(broker, attempt_id, "permanent", DAMAGED, [[[], "not as sent"]])
        attempt = await journal.read(read_attempt, UUID(attempt_id))
    assert attempt is not None
    (error,) = told
    assert (error.code, error.cause) == (DAMAGED, f"a worker met it in event {attempt.event_id}: not as sent")


async def test_what_may_go_well_later_is_tried_again_and_then_parked(journal: Journal) -> None:
    retry = RetryPolicy(attempts=2, first_delay=1, jitter=0)
    async with running(journal, retry=retry) as broker:
        await begin(broker)
        assert await failed(broker, await asked(broker), "transient", "cluster_away")
        await broker.until_rows({"store_1": ("retry", 1, "cluster_away")})
        broker.pass_time(1)
        assert await failed(broker, await asked(broker, 2), "transient", "cluster_away")
        await broker.until_rows({"store_1": ("parked", 2, "cluster_away")})


@pytest.mark.parametrize(
    ("answer", "expected"),
    [(BROKEN, ("parked", 1, "error_reply")), (REFUSED, ("parked", 1, "refused")), ("?", ("parked", 1, "nonsense"))],
)
async def test_a_worker_that_does_not_take_it(journal: Journal, answer: Any, expected: tuple[str, int, str]) -> None:
    async with running(journal) as broker:
        await broker.register("names_1", BULK, xbus_take_output=answer)
        await broker.register("store_1")
        await broker.put(*LARGE, type_name="flights")
        await broker.until_rows({"store_1": expected})
        await broker.until(lambda: "xbus.stop_output" in broker.script.verbs("names_1") or answer is not BROKEN)


async def test_one_that_is_about_to_stop_costs_no_attempt(journal: Journal) -> None:
    leaving = Failed("the recipient is about to stop", code="recipient_stopping")
    async with running(journal) as broker:
        await broker.register("names_1", BULK, xbus_take_output=leaving)
        await broker.register("store_1")
        await broker.put(*LARGE, type_name="flights")
        await broker.until_rows({"store_1": ("waiting", 1, "worker_absent")})
        await broker.register("names_1", BULK)
        assert await ready(broker, await asked(broker, 2), [b"A"])
        await broker.until(lambda: broker.items("store_1") == [b"A"])


async def test_a_lease_that_is_over_ends_the_attempt(journal: Journal) -> None:
    retry = RetryPolicy(attempts=2, first_delay=1, jitter=0)
    async with running(journal, retry=retry) as broker:
        await begin(broker)
        attempt_id = await asked(broker)
        for _ in range(3):
            broker.pass_time(20)
            assert broker.back.reports.renew(role_id(broker), attempt_id, 0.3)
        broker.pass_time(31)
        await broker.until_rows({"store_1": ("retry", 1, "lease_over")})
        assert not broker.back.reports.renew(role_id(broker), attempt_id, 0.3)
        assert not await ready(broker, attempt_id, [b"late"])
        broker.pass_time(1)
        assert await ready(broker, await asked(broker, 2), [b"A"])
        await broker.until(lambda: broker.items("store_1") == [b"A"])


@pytest.mark.parametrize("clean", [True, False])
async def test_a_restart_of_the_broker_does_not_touch_it(journal: Journal, clean: bool) -> None:
    async with running(journal, clean=clean) as broker:
        await begin(broker)
        attempt_id = await asked(broker)
        await broker.until_rows({"store_1": ("waiting", 0, "output_not_ready")})
    async with running(journal) as broker:
        # Nobody has come back yet.
        assert await ready(broker, attempt_id, [b"A"])
        await broker.register("store_1")
        await broker.until(lambda: broker.items("store_1") == [b"A"])
        await broker.until_rows({})
    assert handovers(broker) == []


async def test_a_worker_that_forgot_it_is_not_waited_for(journal: Journal) -> None:
    async with running(journal) as broker:
        await begin(broker)
        await asked(broker)
        await broker.until_rows({"store_1": ("waiting", 0, "output_not_ready")})
    told = Abilities(batches=True, envelopes=1, bulk_items=3, bulk_attempts=frozenset())
    retry = RetryPolicy(attempts=2, first_delay=0, jitter=0)
    async with running(journal, retry=retry) as broker:
        await broker.register("store_1")
        await broker.register("names_1", told)
        assert await ready(broker, await asked(broker), [b"A"])
        await broker.until(lambda: broker.items("store_1") == [b"A"])


async def test_what_nobody_waits_for_is_broken_off(journal: Journal) -> None:
    async with running(journal) as broker:
        await begin(broker)
        attempt_id = await asked(broker)
        await broker.until_rows({"store_1": ("waiting", 0, "output_not_ready")})
        broker.back._assembly._waiting.retain([])
        await broker.until(lambda: broker.back._assembly._leases._unwanted)
        broker.pass_time(4)
        await broker.until(lambda: "xbus.stop_output" in broker.script.verbs("names_1"))
        assert not broker.back.reports.renew(role_id(broker), attempt_id, 0.5)


async def test_who_comes_to_wait_while_it_is_broken_off_has_it_made_anew(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(journal) as broker:
        await begin(broker)
        await asked(broker)
        await broker.until_rows({"store_1": ("waiting", 0, "output_not_ready")})
    async with running(journal) as broker:
        await broker.register("names_1", BULK)
        await broker.register("store_1")
        awaiting, attempts = broker.back._assembly._waiting, broker.back.outputs._attempts
        waiting, write = dict(awaiting._waiting), attempts._write
        begun, may_end = asyncio.Event(), asyncio.Event()

        async def slow(what: Write[bool]) -> bool:
            if isinstance(what, EndAttempt):
                begun.set()
                await may_end.wait()
            return await write(what)

        monkeypatch.setattr(attempts, "_write", slow)
        awaiting.retain([])
        await broker.until(lambda: broker.back._assembly._leases._unwanted)
        broker.pass_time(4)
        await broker.until(begun.is_set)
        awaiting._waiting.update(waiting)
        may_end.set()
        assert await ready(broker, await asked(broker), [b"A"])
        await broker.until(lambda: broker.items("store_1") == [b"A"])


async def test_what_was_said_to_be_ready_is_not_lost_with_its_worker(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(journal) as broker:
        await begin(broker)
        attempt_id = await asked(broker)
        await broker.until_rows({"store_1": ("waiting", 0, "output_not_ready")})
        read = journal.read
        begun, may_check = asyncio.Event(), asyncio.Event()

        async def slow(statement: Any, *args: Any) -> Any:
            if statement is read_totals:
                begun.set()
                await may_check.wait()
            return await read(statement, *args)

        monkeypatch.setattr(journal, "read", slow)
        report = asyncio.create_task(ready(broker, attempt_id, [b"A"]))
        await begun.wait()
        await broker.leave("names_1")
        broker.pass_time(20)
        anew = Abilities(batches=True, envelopes=1, bulk_items=3, bulk_attempts=frozenset())
        await broker.register("names_1", anew)
        may_check.set()
        assert await report
        await broker.until(lambda: broker.items("store_1") == [b"A"])


async def test_what_is_left_of_an_output_does_not_pass_for_the_whole(journal: Journal) -> None:
    async with running(journal) as broker:
        await begin(broker)
        assert await ready(broker, await asked(broker), [b"A"])
        await broker.until(lambda: broker.items("store_1") == [b"A"])
        await broker.until_rows({})
        await journal.run(lambda connection: connection.execute(sa.delete(model.bulk_segment)) and None)
        await broker.register("store_2")
        await broker.until_rows({"store_2": ("parked", 1, "output_lost")})
    assert "end_envelope" not in broker.script.verbs("store_2")


async def test_a_worker_makes_as_much_at_once_as_it_has_slots(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("names_1", BULK)
        await broker.register("store_1")
        for _ in range(3):
            await broker.put(*LARGE, type_name="flights")
        await asked(broker, 2)
        await broker.put(b"note")
        await broker.until(lambda: broker.items("store_1") == [b"note"])
        assert len(handovers(broker)) == 2
        assert await ready(broker, handovers(broker)[0]["attempt_id"], [b"A"])
        await asked(broker, 3)


async def test_a_worker_that_is_resumed_makes_what_waits_for_another_one(journal: Journal) -> None:
    """The job of the other one may take hours."""
    await journal.run(add_worker)
    async with running(journal) as broker:
        for worker in ("names_1", "names_2"):
            await broker.register(worker, replace(BULK, envelopes=1))
        await broker.register("store_1")
        program = broker.back.registry.find(role_id(broker, "names_2"), b"names_2")
        assert program is not None
        entry = PauseEntry(PauseKind.ROLE, program.role.id, "names_2", "for a test", "ada", NOW, None)
        broker.back.registry.follow(replace(program.role, pause=entry))
        for _ in range(2):
            await broker.put(*LARGE, type_name="flights")
        await broker.until(lambda: len(broker.back.outputs.unfinished()) == 2)
        await asked(broker)
        broker.back.registry.follow(replace(program.role, pause=None))
        await asked(broker, worker="names_2")
        assert len(handovers(broker)) == 1


def add_worker(connection: sa.Connection) -> None:
    bus = small_bus()
    roles = {**bus.roles, "names_2": RoleSpec("names_2", "names")}
    apply(connection, make_plan(read_stored(connection), replace(bus, roles=roles)), NOW)


async def test_who_makes_an_output_takes_events_that_are_sent_all_the_same(journal: Journal) -> None:
    """Else a run that needs the worker would hold its consumers for as long as the job takes."""
    async with running(journal) as broker:
        await broker.register("names_1", replace(BULK, envelopes=1))
        await broker.register("store_1")
        await broker.put(*LARGE, type_name="flights")
        attempt_id = await asked(broker)
        await broker.put(b"a", b"b", type_name="flights")
        await broker.put(b"note")
        await broker.until(lambda: broker.items("store_1") == [b"a", b"b", b"note"])
        assert await ready(broker, attempt_id, [b"A"])
        await broker.until(lambda: broker.items("store_1") == [b"a", b"b", b"note", b"A"])


async def test_an_attempt_that_is_broken_off_as_it_is_written_keeps_no_other_one_from_being_begun(
    journal: Journal,
) -> None:
    """1. An attempt is on its way into the journal. 2. Nobody wants the output any more. 3. Somebody wants it."""
    async with running(journal) as broker:
        await broker.register("store_1")
        receipt = await broker.put(*LARGE, type_name="flights")
        (envelope,) = await journal.read(read_log, 0, 1)
        (event,) = envelope.events
        attempts, lost = broker.back.outputs._attempts, asyncio.get_running_loop().create_future()
        output = WantedOutput(event.event_id, event.graph_id, "names")
        under_way = asyncio.create_task(attempts.begin(output, receipt.envelope_id, role_id(broker), 3))
        written, submit = asyncio.Event(), journal.write

        def begin_late(write: Write[Any], **options: Any) -> "asyncio.Future[Any]":
            answer = submit(write, **options)
            if isinstance(write, BeginAttempt) and not written.is_set():
                written.set()
                return lost
            return answer

        journal.write = begin_late  # type: ignore[method-assign]
        await written.wait()
        under_way.cancel()
        await asyncio.wait([under_way])
        again = await attempts.begin(output, receipt.envelope_id, role_id(broker), 3)
    assert again is not None, "it would wait for the lease of an attempt that nobody makes"
