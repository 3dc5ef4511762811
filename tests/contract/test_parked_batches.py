"""Batches that a subscriber does not take: tried again as the policy says, parked, resumed or dropped by a person."""

import uuid
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any, cast
from uuid import UUID

import pytest
import sqlalchemy as sa

from tests.support.clock import StandingClock
from tests.support.journal import Scribe
from xbus import model
from xbus.broker.back.log import LogReader, LogSlices
from xbus.broker.back.readers import FailingBatches, ReaderDesk, ReadingProgram, Settlement
from xbus.broker.back.readers.calls import BatchCall, FailedCall
from xbus.broker.back.readers.subscriptions import Subscriptions
from xbus.broker.journal.audit import RepairDecision
from xbus.broker.journal.configuration import BusSpec, SubscriptionSpec, apply, make_plan, read_stored
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.catalog import RetrySettings
from xbus.broker.journal.log.slices.values import Place
from xbus.broker.journal.readers import people
from xbus.broker.journal.readers.parked import (
    BatchFailure,
    ParkedBatch,
    drop_batch,
    find_parked_batch,
    list_parked_batches,
    resume_batch,
)
from xbus.broker.journal.readers.ranges import read_ranges
from xbus.broker.journal.readers.settings import read_readers
from xbus.broker.journal.readers.subscriptions import list_subscriptions
from xbus.broker.journal.retention.needed import Candidate, settled_among
from xbus.config import BackSettings
from xbus.errors import Refused
from xbus.rpc.bell import Bell
from xbus.supervision.health import Health

REFUSED = BatchFailure("callback_refused", "the subscriber answered 500")
AWAY = BatchFailure("callback_unreachable", "no connection")
SETTINGS = BackSettings(
    attempts=2, first_delay=10.0, longest_delay=60.0, jitter=0.0, trouble_after=4, probe_interval=30
)


class Gateway:
    """One gateway that calls the subscriber of ``shop``, with a batch of two events each."""

    def __init__(self, journal: Journal, desk: ReaderDesk, clock: StandingClock) -> None:
        self.journal = journal
        self.desk = desk
        self.clock = clock
        self.program = ReadingProgram(uuid.uuid4(), None, "gateway_1", desk.entry.key)

    async def read(self, done: Any = None) -> Any:
        settled = None if done is None else Settlement(done["range"], done["counter"], Place(*done["to"]))
        return (await self.desk.read(self.program, BatchCall(0.0, None, None, settled), lambda: False))["batch"]

    async def fail(self, batch: Any, failure: BatchFailure = REFUSED) -> Any:
        settled = Settlement(batch["range"], batch["counter"], Place(*batch["to"]))
        decided = await self.desk.fail(self.program, settled, failure)
        assert decided is not None
        return decided

    async def fail_until_parked(self, batch: Any) -> None:
        while (await self.fail(batch)).retry_at is not None:
            self.clock.go_on(60)
            batch = await self.read()

    async def parked(self) -> list[ParkedBatch]:
        return await self.journal.read(list_parked_batches)

    async def decide(self, act: Any, found: ParkedBatch) -> None:
        await self.journal.run(act, found, RepairDecision("ada", "it was mended", self.clock.now()))
        await self.desk.follow()


def configure(connection: sa.Connection, retry: RetrySettings) -> None:
    stored = read_stored(connection)
    shop = SubscriptionSpec("shop", frozenset({"notes"}), "https://shop.example/hook", max=2, timeout=0, retry=retry)
    wanted = BusSpec(
        event_types={"notes": stored.in_use.event_types["notes"]}, subscriptions={"shop": shop},
    )  # fmt: skip
    plan = make_plan(stored, wanted)
    assert not plan.problems, plan.problems
    apply(connection, plan, StandingClock().now())
    assert read_stored(connection).in_use.subscriptions["shop"] == shop


def change(connection: sa.Connection, changed: Mapping[str, Any]) -> None:
    in_use = read_stored(connection).in_use
    shop = replace(in_use.subscriptions["shop"], **changed)
    plan = make_plan(read_stored(connection), BusSpec(event_types=in_use.event_types, subscriptions={"shop": shop}))
    assert not plan.problems, plan.problems
    apply(connection, plan, StandingClock().now())


async def gateway(journal: Journal, scribe: Scribe, retry: RetrySettings = RetrySettings(), events: int = 6) -> Gateway:  # noqa: B008
    await journal.run(configure, retry)
    for number in range(events):
        await scribe.put([b"%d" % number], type_name="notes")
    log = LogReader(journal, cast(Bell, None))
    await log.refresh()
    (entry,) = [each for each in await journal.read(read_readers) if each.is_called]
    clock = StandingClock()
    desk = ReaderDesk(entry, journal, LogSlices(log), clock, FailingBatches(SETTINGS, clock, Random(1)))
    await desk.follow()
    return Gateway(journal, desk, clock)


def positions(batch: Any) -> list[int]:
    return [event["position"] for event in batch["events"]]


async def test_a_batch_is_tried_as_the_policy_says_then_parked_and_the_range_goes_on(
    journal: Journal, scribe: Scribe
) -> None:
    shop = await gateway(journal, scribe)
    first = await shop.read()
    decided = await shop.fail(first)
    assert decided.retry_at == shop.clock.now() + timedelta(seconds=10)
    assert await shop.read() is None, "nothing passes a batch that is tried again"
    shop.clock.go_on(10)
    again = await shop.read()
    assert (again["id"], again["events"], again["repeated"]) == (first["id"], first["events"], True)
    assert (await shop.fail(again)).retry_at is None
    (parked,) = await shop.parked()
    assert (parked.id, parked.subscription, parked.attempts) == (first["id"], "shop", 2)
    assert (parked.code, parked.cause) == (REFUSED.code, REFUSED.cause)
    second = await shop.read()
    assert positions(second) == [3, 4]
    # Its range is one batch and not more, also for people.
    assert len(await journal.read(read_ranges, [shop.desk.entry.id])) == 1
    assert positions(await shop.read(second)) == [5, 6]


async def test_a_resumed_batch_comes_with_its_id_and_ends(journal: Journal, scribe: Scribe) -> None:
    shop = await gateway(journal, scribe)
    first = await shop.read()
    await shop.fail_until_parked(first)
    (parked,) = await shop.parked()
    assert (await journal.read(find_parked_batch, first["id"][:12])).range == parked.range
    await shop.decide(resume_batch, parked)
    assert await shop.parked() == []
    batch = await shop.read()
    assert (batch["id"], batch["events"]) == (first["id"], first["events"])
    # It is refused once more: it is parked under its id again.
    await shop.fail_until_parked(batch)
    (again,) = await shop.parked()
    assert (again.id, again.attempts) == (first["id"], 2)
    await shop.decide(resume_batch, again)
    with pytest.raises(Refused, match="not parked any more"):
        await journal.run(resume_batch, parked, RepairDecision("ada", "", shop.clock.now()))
    came = []
    batch = await shop.read()
    while batch is not None:
        came.append(positions(batch))
        batch = await shop.read(batch) or await shop.read()
    assert sorted(came) == [[1, 2], [3, 4], [5, 6]]
    assert await shop.read() is None


async def test_the_end_of_a_resumed_batch_is_no_move_of_the_reader(journal: Journal, scribe: Scribe) -> None:
    """An undo of it would have the reader go back to the batch, and get all again that came behind it."""
    shop = await gateway(journal, scribe)
    await shop.fail_until_parked(await shop.read())
    (parked,) = await shop.parked()
    second = await shop.read()
    third = await shop.read(second)
    await shop.decide(resume_batch, parked)
    resumed = await shop.read(third)
    assert positions(resumed) == [1, 2]
    assert await shop.read(resumed) is None
    _, (moved,) = await journal.read(people.plan_undo, shop.desk.entry.name)
    assert (moved.before.place, moved.after.place) == (Place(7), Place(5))


async def test_a_dropped_batch_is_gone_for_good(journal: Journal, scribe: Scribe) -> None:
    shop = await gateway(journal, scribe)
    await shop.fail_until_parked(await shop.read())
    (parked,) = await shop.parked()
    await shop.decide(drop_batch, parked)
    assert await shop.parked() == []
    with pytest.raises(Refused, match="no batch"):
        await journal.read(find_parked_batch, parked.id)
    assert positions(await shop.read()) == [3, 4]


async def test_who_is_not_reached_is_absent(journal: Journal, scribe: Scribe) -> None:
    """Ten calls that reach nobody count as none: a shop that is back has all, and no person is needed."""
    shop = await gateway(journal, scribe)
    delays = []
    for _ in range(10):
        batch = await shop.read()
        decided = await shop.fail(batch, AWAY)
        delays.append((decided.retry_at - shop.clock.now()).total_seconds())
        shop.clock.go_on(60)
    assert delays == [10, 20, 40, *[60] * 7]
    assert await shop.parked() == []


async def test_a_subscriber_that_takes_nothing_is_probed_and_no_more_is_parked(
    journal: Journal, scribe: Scribe
) -> None:
    shop = await gateway(journal, scribe, RetrySettings(attempts=1), events=12)
    for _ in range(3):
        assert (await shop.fail(await shop.read())).retry_at is None
    for _ in range(5):
        batch = await shop.read()
        assert positions(batch) == [7, 8]
        assert (await shop.fail(batch)).retry_at == shop.clock.now() + timedelta(seconds=30)
        shop.clock.go_on(30)
    batch = await shop.read()
    assert len(await shop.parked()) == 3
    following = await shop.read(batch)
    assert (await shop.fail(following)).retry_at is None, "a batch was taken, so the next one is to blame itself"


async def test_a_late_failure_changes_nothing(journal: Journal, scribe: Scribe) -> None:
    shop = await gateway(journal, scribe)
    batch = await shop.read()
    await shop.read(batch)
    settled = Settlement(batch["range"], batch["counter"], Place(*batch["to"]))
    assert await shop.desk.fail(shop.program, settled, REFUSED) is None
    with pytest.raises(Refused, match="read by another program"):
        await shop.fail({**batch, "counter": batch["counter"] + 5})


CHANGES: list[dict[str, Any]] = [
    {"url": "https://shop.example/other"},
    {"verify": False},
    {"format": "cloudevents"},
    {"secret": "whsec_" + "QUJD" * 8},
]


@pytest.mark.parametrize("changed", CHANGES, ids=[next(iter(each)) for each in CHANGES])
@pytest.mark.parametrize("attempts", [2, 1], ids=["it would be tried again", "it would be parked"])
async def test_a_call_with_settings_no_longer_in_force_delays_nothing(
    journal: Journal, scribe: Scribe, changed: dict[str, Any], attempts: int
) -> None:
    """An operator mends the settings while a gateway calls. Its call fails behind that, and says nothing of these."""
    shop = await gateway(journal, scribe, RetrySettings(attempts=attempts))
    subscriptions = Subscriptions(journal, Health("broker", shop.clock), shop.clock, {})
    (before,) = await subscriptions.of_gateways()
    first = await shop.read()
    await journal.run(change, changed)
    late = replace(REFUSED, settings=before["settings"])
    with pytest.raises(Refused) as refusal:
        await shop.fail(first, late)
    assert refusal.value.code == "settings_changed"
    for failed in (FailedCall(shop.program.id, late, None, is_end=True), None):
        with pytest.raises(Refused) as refusal:
            await subscriptions.note(shop.program.reader, failed, before["settings"], None)
        assert refusal.value.code == "settings_changed"
    (state,) = await journal.read(list_subscriptions)
    assert (state.failures, state.retry_at, state.ended_at) == (0, None, None)
    again = await shop.read()
    assert (await shop.parked(), again["id"]) == ([], first["id"]), "it is handed out at once"

    (after,) = await subscriptions.of_gateways()
    known = replace(REFUSED, settings=after["settings"])
    decided = await shop.fail(again, known)
    await subscriptions.note(
        shop.program.reader, FailedCall(shop.program.id, known, None, is_end=False), after["settings"], decided.retry_at
    )
    (state,) = await journal.read(list_subscriptions)
    assert (state.failures, state.retry_at) == (1, decided.retry_at)


async def test_retention_keeps_what_is_parked_and_nothing_behind_it(journal: Journal, scribe: Scribe) -> None:
    shop = await gateway(journal, scribe)
    await shop.fail_until_parked(await shop.read())
    await shop.read(await shop.read())

    def unneeded(connection: sa.Connection) -> set[int]:
        rows = connection.execute(
            sa.select(model.envelope.c.id, model.envelope.c.position, model.envelope.c.closed_at)
        ).all()
        found = [Candidate(UUID(str(row.id)), row.position, row.closed_at, 0, False) for row in rows]
        return {each.position for each in settled_among(connection, found)}

    needed = {1, 2, 3, 4, 5, 6} - await journal.read(unneeded)
    assert {1, 2, 5, 6} <= needed
    before_that = needed
    (parked,) = await shop.parked()
    await shop.decide(drop_batch, parked)
    assert {1, 2, 3, 4, 5, 6} - await journal.read(unneeded) <= before_that


async def test_a_move_of_the_reader_leaves_what_is_parked(journal: Journal, scribe: Scribe) -> None:
    shop = await gateway(journal, scribe)
    await shop.fail_until_parked(await shop.read())
    decision = RepairDecision("ada", "again", shop.clock.now())
    await journal.run(people.move, shop.desk.entry.name, Place(5), decision)
    await shop.desk.follow()
    assert len(await shop.parked()) == 1
    assert positions(await shop.read()) == [5, 6]


async def test_a_limit_of_the_lag_takes_the_batch_of_a_dead_subscriber_and_leaves_what_a_person_resumed(
    journal: Journal, scribe: Scribe
) -> None:
    shop = await gateway(journal, scribe)
    first = await shop.read()
    assert await shop.desk.pass_to(Place(5), "it lags") == 0, "the subscriber is being called"
    await shop.fail(first, AWAY)
    assert await shop.desk.pass_to(Place(5), "it lags") == 1
    batch = await shop.read()
    assert positions(batch) == [5, 6], "it goes on at once, with what is within the limit"
    with pytest.raises(Refused) as refusal:
        await shop.read(first)
    assert refusal.value.code == "lease_lost"
    assert (await shop.fail(batch)).attempts == 1, "the attempts of the batch before count no more"
    shop.clock.go_on(60)
    await shop.fail_until_parked(await shop.read())
    (parked,) = await shop.parked()
    await shop.decide(resume_batch, parked)
    await shop.desk.pass_to(Place(7), "it lags")
    assert positions(await shop.read()) == [5, 6]
