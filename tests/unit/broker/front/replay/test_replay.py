"""Envelopes that come again because their emitter asks for it."""

import asyncio
import dataclasses
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.clock import StandingClock
from tests.support.groups import LIMITS
from tests.support.journal import NOW, Scribe, small_bus
from tests.unit.broker.front.conftest import Desk, Rings
from xbus import model
from xbus.broker.configuration import Configuration
from xbus.broker.front.envelopes.checks import Checks, NewEvent
from xbus.broker.front.replay.archive_restore import ArchiveRestore
from xbus.broker.front.replay.replay import ATTEMPTS, Replay
from xbus.broker.front.verbs.repeats import RepeatBatchVerbs, RepeatVerbs
from xbus.broker.housekeeping.space import Space
from xbus.broker.journal.configuration import (
    BusSpec,
    EventTypeSpec,
    NodeSpec,
    ProfileSpec,
    ServiceSpec,
    apply,
    make_plan,
    read_stored,
)
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.deliveries import read_cursors
from xbus.broker.journal.log.reading import LogEnvelope, read_log
from xbus.broker.journal.log.role_progress import count_owed
from xbus.broker.journal.operations.envelopes.details import EnvelopeDetail, show_envelope
from xbus.broker.journal.writes import Cancel, DeliveryMove, DeliveryRow, ProgressUpdate, Register, SealReceipt, Write
from xbus.broker.sessions import Sessions
from xbus.errors import Failed, JournalError, Refused
from xbus.ids import Ids
from xbus.rpc.codec import pack_items
from xbus.states import DeliveryState
from xbus.supervision.health import Health

METADATA = {"name": "store", "version": 1.5}
FEATURES = {"clearing": [True, "postgresql://store:5ecret@here/store"], "immediate_reply": [True, ["wishes"]]}


@pytest.fixture
def shelf(journal: Journal) -> "Shelf":
    return Shelf(journal)


@pytest.fixture
def repeating(journal: Journal, configuration: Configuration, rings: Rings, shelf: "Shelf") -> Replay:
    clock = StandingClock()
    checks = Checks(configuration, LIMITS, clock)
    return Replay(journal, checks, clock, Ids(clock), rings.ring, configuration.refresh, shelf)


@pytest.fixture
async def scribe(journal: Journal) -> Scribe:
    return await Scribe.of(journal)


class Bench:
    """An envelope of two events that was sealed, and what may become of it."""

    def __init__(self, journal: Journal, scribe: Scribe, receipt: SealReceipt) -> None:
        self.journal = journal
        self.scribe = scribe
        self.receipt = receipt
        self.emitter_id = scribe.emitter_id()

    async def log(self) -> list[LogEnvelope]:
        return await self.journal.read(read_log, 0, 100)

    async def event_ids(self, position: int = 1) -> list[uuid.UUID]:
        return [event.event_id for event in (await self.log())[position - 1].events]

    async def park(self, *logins: str, position: int = 1) -> None:
        envelope_id = (await self.log())[position - 1].envelope_id
        for login in logins:
            role_id = self.scribe.role_id(login)
            row = DeliveryRow(role_id, envelope_id, position, DeliveryState.PARKED, 1, "refused", "too old")
            cursor = (await self.journal.read(read_cursors))[role_id]
            cursor.settle(position)
            await self.journal.write(ProgressUpdate(NOW, [cursor], [DeliveryMove(None, row)]))

    async def change(self, bus: BusSpec, *, prune: bool = False) -> None:
        def change(connection: sa.Connection) -> None:
            plan = make_plan(read_stored(connection), bus, prune=prune)
            assert not plan.problems
            apply(connection, plan, NOW)

        await self.journal.read(change)

    async def show(self, envelope_id: uuid.UUID) -> EnvelopeDetail:
        detail = await self.journal.read(show_envelope, envelope_id)
        assert detail is not None
        return detail


@pytest.fixture
async def bench(journal: Journal, scribe: Scribe) -> Bench:
    return Bench(journal, scribe, await scribe.put([b"a", b"b"], [b"c"]))


async def code_of(call: Any) -> str:
    with pytest.raises(Refused) as caught:
        await call
    return caught.value.code


def without(bus: BusSpec, **sections: Any) -> BusSpec:
    return dataclasses.replace(bus, **sections)


# -- retries ---------------------------------------------------------------------------------------------------------


async def test_a_retry_is_for_those_that_the_envelope_is_parked_for(
    repeating: Replay, bench: Bench, rings: Rings
) -> None:
    await bench.park("store_2")
    first, second = await bench.event_ids()
    answer = await repeating.retry(bench.emitter_id, second)
    _, again = await bench.log()
    assert again.only_roles == frozenset({bench.scribe.role_id("store_2")})
    assert [event.segments_id for event in again.events] == [first, second]
    assert answer == again.events[1].event_id
    assert rings.count == 1
    assert await repeating.retry(bench.emitter_id, first) == again.events[0].event_id
    assert len(await bench.log()) == 2


async def test_a_retry_that_is_parked_too_is_retried_in_its_turn(repeating: Replay, bench: Bench) -> None:
    await bench.park("store_1")
    (first, _) = await bench.event_ids()
    second = await repeating.retry(bench.emitter_id, first)
    await bench.park("store_1", position=2)
    third = await repeating.retry(bench.emitter_id, second)
    assert third == (await bench.event_ids(3))[0]
    assert (await bench.log())[2].events[0].segments_id == first
    assert [await repeating.retry(bench.emitter_id, event_id) for event_id in (first, second)] == [second, third]


async def test_what_is_parked_for_one_more_later_comes_again_for_that_one(repeating: Replay, bench: Bench) -> None:
    (first, _) = await bench.event_ids()
    for position, login in enumerate(("store_1", "store_2"), start=2):
        await bench.park(login)
        answer = await repeating.retry(bench.emitter_id, first)
        assert answer == (await bench.event_ids(position))[0]
        assert (await bench.log())[-1].only_roles == frozenset({bench.scribe.role_id(login)})
    assert await repeating.retry(bench.emitter_id, first) == answer


async def test_the_same_retry_at_once_is_one(repeating: Replay, bench: Bench) -> None:
    await bench.park("store_1", "store_2")
    first, second = await bench.event_ids()
    calls = [repeating.retry(bench.emitter_id, event_id) for event_id in (first, second, first, second)]
    answers = await asyncio.gather(*calls)
    assert answers == (await bench.event_ids(2)) * 2
    assert len(await bench.log()) == 2


async def test_others_are_told_nothing_of_an_event(repeating: Replay, bench: Bench) -> None:
    await bench.park("store_1")
    (first, _) = await bench.event_ids()
    assert await code_of(repeating.retry(bench.scribe.emitter_id("south"), first)) == "event_unknown"
    assert await code_of(repeating.retry(bench.emitter_id, uuid.uuid4())) == "event_unknown"
    assert len(await bench.log()) == 1


@pytest.mark.parametrize("state", [None, DeliveryState.RETRY, DeliveryState.WAITING])
async def test_what_comes_by_itself_is_not_retried(
    repeating: Replay, bench: Bench, state: DeliveryState | None
) -> None:
    if state is not None:
        row = DeliveryRow(bench.scribe.role_id(), bench.receipt.envelope_id, 1, state, 1, "absent", "nobody is there")
        await bench.journal.write(ProgressUpdate(NOW, deliveries=[DeliveryMove(None, row)]))
    (first, _) = await bench.event_ids()
    assert await code_of(repeating.retry(bench.emitter_id, first)) == "nothing_to_retry"


async def test_a_replay_is_no_retry(repeating: Replay, bench: Bench) -> None:
    (first, _) = await bench.event_ids()
    await repeating.replay(bench.emitter_id, bench.receipt.envelope_id)
    assert await code_of(repeating.retry(bench.emitter_id, first)) == "nothing_to_retry"


async def test_a_role_that_the_graph_no_longer_leads_to_keeps_what_is_parked(repeating: Replay, bench: Bench) -> None:
    await bench.park("store_1")
    (first, _) = await bench.event_ids()
    elsewhere = {"other": NodeSpec("other", "other")}
    await bench.change(
        BusSpec(
            event_types={"notes": EventTypeSpec("notes", False, elsewhere)},
            services={"other": ServiceSpec("other", "consumer")},
        )
    )
    assert await code_of(repeating.retry(bench.emitter_id, first)) == "role_not_reached"
    assert [role.state for role in (await bench.show(bench.receipt.envelope_id)).summary.roles] == ["parked", "owed"]
    await bench.change(small_bus())
    assert await repeating.retry(bench.emitter_id, first) == (await bench.event_ids(2))[0]


async def test_a_role_that_was_removed_keeps_what_is_parked(repeating: Replay, bench: Bench) -> None:
    await bench.park("store_1")
    (first, _) = await bench.event_ids()
    bus = small_bus()
    roles = {login: role for login, role in bus.roles.items() if login != "store_1"}
    await bench.change(without(bus, roles=roles), prune=True)
    assert await code_of(repeating.retry(bench.emitter_id, first)) == "role_not_reached"


async def test_a_new_way_to_the_same_role_is_taken(repeating: Replay, bench: Bench) -> None:
    await bench.park("store_1")
    (first, _) = await bench.event_ids()
    longer = {"names": NodeSpec("names", "names", ("store",)), "store": NodeSpec("store", "store")}
    await bench.change(BusSpec(event_types={"notes": EventTypeSpec("notes", False, longer)}))
    await repeating.retry(bench.emitter_id, first)
    old, new = await bench.log()
    assert {event.graph_id for event in old.events}.isdisjoint({event.graph_id for event in new.events})


async def test_a_write_that_fails_again_and_again_is_told(
    repeating: Replay, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.park("store_1")
    (first, _) = await bench.event_ids()
    tried: list[Write[SealReceipt]] = []

    def refuse(write: Write[SealReceipt]) -> "asyncio.Future[SealReceipt]":
        tried.append(write)
        answer: asyncio.Future[SealReceipt] = asyncio.get_running_loop().create_future()
        answer.set_exception(JournalError("the database does not like it"))
        return answer

    monkeypatch.setattr(bench.journal, "write", refuse)
    with pytest.raises(JournalError):
        await repeating.retry(bench.emitter_id, first)
    assert len(tried) == ATTEMPTS


# -- replays ---------------------------------------------------------------------------------------------------------


async def test_a_replay_is_for_everybody(repeating: Replay, bench: Bench, rings: Rings) -> None:
    new_id = await repeating.replay(bench.emitter_id, bench.receipt.envelope_id)
    first, again = await bench.log()
    assert (again.envelope_id, again.only_roles) == (new_id, None)
    assert [event.origin for event in again.events] == [event.id for event in first.events]
    assert rings.count == 1
    assert await repeating.replay(bench.emitter_id, bench.receipt.envelope_id) not in (new_id, first.envelope_id)
    assert len(await bench.log()) == 3


async def test_a_replay_whose_id_its_caller_made_may_be_repeated(repeating: Replay, bench: Bench) -> None:
    new_id, envelope_id = uuid.uuid4(), bench.receipt.envelope_id
    calls = [repeating.replay(bench.emitter_id, envelope_id, new_id) for _ in range(3)]
    assert await asyncio.gather(*calls) == [new_id] * 3
    assert await repeating.replay(bench.emitter_id, envelope_id, new_id) == new_id
    assert len(await bench.log()) == 2
    assert await code_of(repeating.replay(bench.emitter_id, new_id, envelope_id)) == "content_differs"
    assert await code_of(repeating.replay(bench.emitter_id, new_id, new_id)) == "content_differs"


async def test_an_id_that_is_taken_is_not_replayed_under(repeating: Replay, bench: Bench) -> None:
    other = await bench.scribe.put([b"x"])
    call = repeating.replay(bench.emitter_id, bench.receipt.envelope_id, other.envelope_id)
    assert await code_of(call) == "content_differs"


async def test_only_what_is_sealed_is_replayed(repeating: Replay, bench: Bench) -> None:
    envelope_id, started = bench.scribe.start_envelope()
    await started
    assert await code_of(repeating.replay(bench.emitter_id, envelope_id)) == "envelope_open"
    await bench.journal.write(Cancel(envelope_id, NOW, "not wanted"))
    assert await code_of(repeating.replay(bench.emitter_id, envelope_id)) == "envelope_open"
    assert await code_of(repeating.replay(bench.emitter_id, uuid.uuid4())) == "envelope_unknown"
    south = bench.scribe.emitter_id("south")
    assert await code_of(repeating.replay(south, bench.receipt.envelope_id)) == "envelope_unknown"
    assert len(await bench.log()) == 1


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"profiles": {"all": ProfileSpec("all", frozenset({"flights"}))}}, "type_not_allowed"),
        (
            {"event_types": {"notes": EventTypeSpec("notes", True, {"store": NodeSpec("store", "store")})}},
            "reply_wanted",
        ),
    ],
)
async def test_what_may_not_be_sent_now_does_not_come_again(
    repeating: Replay, bench: Bench, change: dict[str, Any], code: str
) -> None:
    await bench.park("store_1")
    (first, _) = await bench.event_ids()
    await bench.change(BusSpec(**change))
    assert await code_of(repeating.replay(bench.emitter_id, bench.receipt.envelope_id)) == code
    assert await code_of(repeating.retry(bench.emitter_id, first)) == code
    assert len(await bench.log()) == 1


async def test_a_type_that_was_removed_does_not_come_again(repeating: Replay, bench: Bench) -> None:
    bus = small_bus()
    types = {name: event_type for name, event_type in bus.event_types.items() if name != "notes"}
    profiles = {"all": ProfileSpec("all", frozenset({"flights"})), "notes only": ProfileSpec("notes only", frozenset())}
    await bench.change(without(bus, event_types=types, profiles=profiles), prune=True)
    assert await code_of(repeating.replay(bench.emitter_id, bench.receipt.envelope_id)) == "unknown_type"


async def test_an_envelope_without_events_may_be_replayed(repeating: Replay, scribe: Scribe, journal: Journal) -> None:
    receipt = await scribe.put()
    await repeating.replay(scribe.emitter_id(), receipt.envelope_id)
    assert [envelope.events for envelope in await journal.read(read_log, 0, 10)] == [(), ()]


# -- repeats of calls on what came again -----------------------------------------------------------------------------


async def test_calls_on_what_came_again_are_answered_as_on_the_first(
    repeating: Replay, bench: Bench, north: Desk
) -> None:
    new_id = await repeating.replay(bench.emitter_id, bench.receipt.envelope_id)
    first, second = await bench.event_ids(2)
    assert await north.append(new_id, first, 0, [b"a", b"b"]) == 2
    with pytest.raises(Refused) as caught:
        await north.append(new_id, first, 0, [b"a", b"x"])
    assert caught.value.code == "content_differs"
    assert await north.end_event(new_id, second, 1) == 1
    again = await north.seal(new_id, 2)
    assert (again.hash, again.items) == (bench.receipt.hash, bench.receipt.items)
    events = [
        NewEvent(first, "notes", 2, pack_items([b"a", b"b"])),
        NewEvent(second, "notes", 1, pack_items([b"c"])),
    ]
    assert await north.put(new_id, *events) == again


# -- what is shown ---------------------------------------------------------------------------------------------------


async def test_what_came_again_says_where_from_and_for_whom(repeating: Replay, bench: Bench) -> None:
    await bench.park("store_1", "store_2")
    (first, _) = await bench.event_ids()
    await repeating.retry(bench.emitter_id, first)
    old, new = await bench.log()
    shown = (await bench.show(new.envelope_id)).summary
    assert (shown.origin, shown.only_roles) == (old.envelope_id, ("store_1", "store_2"))
    assert [(role.role, role.state) for role in shown.roles] == [("store_1", "owed"), ("store_2", "owed")]
    before = (await bench.show(old.envelope_id)).summary
    assert (before.origin, before.only_roles) == (None, None)
    assert {(role.state, role.cause) for role in before.roles} == {
        ("retried", f"comes again as envelope {new.envelope_id}")
    }


async def test_a_retry_is_owed_to_its_roles_only(repeating: Replay, bench: Bench) -> None:
    async def owed() -> list[int]:
        return [await bench.journal.read(count_owed, login) for login in ("store_1", "store_2")]

    await bench.park("store_1")
    (first, _) = await bench.event_ids()
    assert await owed() == [1, 1]
    await repeating.retry(bench.emitter_id, first)
    assert await owed() == [1, 1]
    shown = (await bench.show((await bench.log())[1].envelope_id)).summary
    assert [(role.role, role.state) for role in shown.roles] == [("store_1", "owed")]
    await repeating.replay(bench.emitter_id, bench.receipt.envelope_id)
    assert await owed() == [2, 2]


# -- the verbs -------------------------------------------------------------------------------------------------------


class OneOwner(Sessions):
    """Sessions in which the token ``"token"`` is one emitter's."""

    def __init__(self, owner_id: int) -> None:
        self._owner_id = owner_id

    def owner(self, token: str) -> int:
        if token != "token":
            raise Refused("the session is unknown", "log in", code="session_unknown")
        return self._owner_id


@pytest.fixture
def old(repeating: Replay, scribe: Scribe) -> RepeatVerbs:
    return RepeatVerbs(repeating, OneOwner(scribe.emitter_id()))


@pytest.fixture
def coded(repeating: Replay, scribe: Scribe) -> RepeatBatchVerbs:
    return RepeatBatchVerbs(repeating, OneOwner(scribe.emitter_id()))


async def test_in_old_words(old: RepeatVerbs, bench: Bench) -> None:
    await bench.park("store_1")
    (first, _) = await bench.event_ids()
    assert await old.retry_event("token", str(first)) == str((await bench.event_ids(2))[0])
    assert await old.replay_envelope("token", str(bench.receipt.envelope_id)) == str((await bench.log())[2].envelope_id)


@pytest.mark.parametrize(
    ("token", "text"), [("token", "nonsense"), ("token", "5504e1d4-2c7f-4f1f-8aea-8bc710264672"), ("another", "")]
)
async def test_refusals_in_old_words(old: RepeatVerbs, token: str, text: str) -> None:
    assert await old.retry_event(token, text) == ""
    assert await old.replay_envelope(token, text) == ""


async def test_with_a_code(coded: RepeatBatchVerbs, bench: Bench) -> None:
    await bench.park("store_1")
    (first, _) = await bench.event_ids()
    envelope_id, new_id = str(bench.receipt.envelope_id), str(uuid.uuid4())
    assert await coded.retry_event("token", str(first)) == str((await bench.event_ids(2))[0])
    assert await coded.replay_envelope("token", envelope_id, new_id) == new_id
    assert await coded.replay_envelope("token", envelope_id) not in ("", new_id)


@pytest.mark.parametrize("text", ["", "nonsense", "0" * 1000])
async def test_what_is_no_id_is_refused_with_a_code(coded: RepeatBatchVerbs, text: str) -> None:
    assert await code_of(coded.retry_event("token", text)) == "event_unknown"
    assert await code_of(coded.replay_envelope("token", text)) == "envelope_unknown"
    assert await code_of(coded.replay_envelope("token", str(uuid.uuid4()), text)) == "wrong_arguments"
    assert await code_of(coded.retry_event("another", text)) == "session_unknown"


async def test_who_consumes(old: RepeatVerbs, coded: RepeatBatchVerbs, journal: Journal, scribe: Scribe) -> None:
    assert (await old.get_consumers("token"), await coded.get_consumers("token")) == ([], [])
    await journal.write(Register(scribe.role_id(), b"h" * 32, "tcp://here:1", "here", NOW, METADATA, FEATURES))
    shown = {"clearing": [True, "postgresql://store@here/store"], "immediate_reply": [True, ["wishes"]]}
    assert await old.get_consumers("token") == await coded.get_consumers("token") == [(METADATA, shown)]
    assert await old.get_consumers("another") == []
    assert await code_of(coded.get_consumers("another")) == "session_unknown"


# -- archives --------------------------------------------------------------------------------------------------------


class Shelf(ArchiveRestore):
    """An archive in memory, of which nothing is lost; ``stuck`` leaves it closed, and ``meanwhile`` happens with it."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal, Space(journal, 0, Health("front", StandingClock())), ())
        self.shelved = journal
        self.asked: list[uuid.UUID] = []
        self.stuck = False
        self.meanwhile: Callable[[], Awaitable[None]] | None = None

    async def put_away(self, envelope_id: uuid.UUID) -> None:
        def archive(connection: sa.Connection) -> None:
            connection.execute(
                sa.update(model.envelope).where(model.envelope.c.id == envelope_id).values(pruned_at=NOW)
            )
            row = {"envelope_id": envelope_id, "archived_at": NOW}
            connection.execute(sa.insert(model.archived_envelope), row)

        await self.shelved.run(archive)

    async def bring_back(self, envelope_id: uuid.UUID) -> None:
        self.asked.append(envelope_id)
        if not self.stuck:
            wanted = sa.update(model.envelope).where(model.envelope.c.id == envelope_id)
            await self.shelved.run(lambda connection: connection.execute(wanted.values(pruned_at=None)))
        await super().bring_back(envelope_id)
        if self.meanwhile is not None:
            await self.meanwhile()


async def test_what_is_archived_is_put_back_and_comes_again(repeating: Replay, bench: Bench, shelf: Shelf) -> None:
    await shelf.put_away(bench.receipt.envelope_id)

    again = await repeating.replay(bench.emitter_id, bench.receipt.envelope_id)

    assert [envelope.envelope_id for envelope in await bench.log()] == [bench.receipt.envelope_id, again]
    assert shelf.asked == [bench.receipt.envelope_id]


async def test_what_its_types_may_is_asked_again_when_it_is_back(repeating: Replay, bench: Bench, shelf: Shelf) -> None:
    await shelf.put_away(bench.receipt.envelope_id)
    forbidden = without(small_bus(), profiles={"all": ProfileSpec("all", frozenset({"flights"}))})
    shelf.meanwhile = lambda: bench.change(forbidden)

    assert await code_of(repeating.replay(bench.emitter_id, bench.receipt.envelope_id)) == "type_not_allowed"


async def test_what_can_not_be_put_back_does_not_come_again(repeating: Replay, bench: Bench, shelf: Shelf) -> None:
    await shelf.put_away(bench.receipt.envelope_id)
    shelf.stuck = True

    with pytest.raises(Failed) as caught:
        await repeating.replay(bench.emitter_id, bench.receipt.envelope_id)
    assert caught.value.code == "envelope_archived"


async def test_nothing_is_put_back_for_a_call_that_is_refused(
    repeating: Replay, bench: Bench, shelf: Shelf, scribe: Scribe
) -> None:
    await shelf.put_away(bench.receipt.envelope_id)
    assert await code_of(repeating.replay(scribe.emitter_id("south"), bench.receipt.envelope_id)) == "envelope_unknown"
    profiles = {"all": ProfileSpec("all", frozenset({"flights"}))}
    await bench.change(without(small_bus(), profiles=profiles))

    assert await code_of(repeating.replay(bench.emitter_id, bench.receipt.envelope_id)) == "type_not_allowed"
    assert shelf.asked == []


async def test_a_replay_whose_envelope_is_archived_by_now_is_not_made_again(
    repeating: Replay, bench: Bench, shelf: Shelf
) -> None:
    new_id = uuid.uuid4()
    await repeating.replay(bench.emitter_id, bench.receipt.envelope_id, new_id)
    await shelf.put_away(new_id)

    assert await repeating.replay(bench.emitter_id, bench.receipt.envelope_id, new_id) == new_id
    assert len(await bench.log()) == 2
    assert shelf.asked == []


async def test_of_what_is_archived_nothing_is_to_retry(repeating: Replay, bench: Bench, shelf: Shelf) -> None:
    first, _ = await bench.event_ids()
    await shelf.put_away(bench.receipt.envelope_id)

    assert await code_of(repeating.retry(bench.emitter_id, first)) == "nothing_to_retry"


@pytest.mark.parametrize("replies", [[False, None], [True, ["secrets", "unknown"]], [True, []]])
async def test_who_may_send_no_request_sees_no_clearing_database(
    coded: RepeatBatchVerbs, journal: Journal, scribe: Scribe, replies: list[object]
) -> None:
    features = {**FEATURES, "immediate_reply": replies}
    await journal.write(Register(scribe.role_id(), b"h" * 32, "tcp://here:1", "here", NOW, METADATA, features))
    assert await coded.get_consumers("token") == [(METADATA, {"clearing": [False, None], "immediate_reply": replies})]


async def test_another_profile_sees_no_clearing_database(repeating: Replay, journal: Journal, scribe: Scribe) -> None:
    await journal.write(Register(scribe.role_id(), b"h" * 32, "tcp://here:1", "here", NOW, METADATA, FEATURES))
    (consumer,) = await repeating.consumers(scribe.emitter_id("south"))
    assert consumer.features["clearing"] == [False, None]
