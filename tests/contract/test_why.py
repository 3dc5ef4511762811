"""``xbus why`` reads the same facts on every database, and each of its codes is reached here or by a real broker."""

import uuid
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from datetime import timedelta

import sqlalchemy as sa

from tests.support.journal import NOW, Scribe, small_bus
from tests.support.why import LATER, Questions, codes
from xbus import model
from xbus.admin.why.findings import Code, Finding
from xbus.broker.journal.configuration import (
    BotSpec,
    ReaderSpec,
    RoleSpec,
    ServiceSpec,
    SubscriptionSpec,
    apply,
    make_plan,
    read_stored,
)
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.operations.bots import find_bot
from xbus.broker.journal.operations.envelopes.details import MOST_EVENTS
from xbus.broker.journal.writes import Cancel, DeliveryMove, DeliveryRow, IsolatedItem, ProgressUpdate
from xbus.ids import keyed_envelope_id
from xbus.rpc.messages import RefusedCall
from xbus.states import DeliveryState

REACHED: set[Code] = set()
"""The codes that the tests of this module reach."""

Story = Callable[[Questions], Awaitable[None]]


def reaches(*wanted: Code) -> Callable[[Story], Callable[[Journal, Scribe], Awaitable[None]]]:
    """Make a test of a story, and check that its questions get all these codes."""
    REACHED.update(wanted)

    def of_story(story: Story) -> Callable[[Journal, Scribe], Awaitable[None]]:
        async def test(journal: Journal, scribe: Scribe) -> None:
            questions = Questions(journal, scribe)
            await story(questions)
            assert set(wanted) <= questions.seen

        test.__doc__ = story.__doc__
        return test

    return of_story


def test_every_code_is_reached() -> None:
    assert set(Code) - REACHED == set()


# -- envelopes that are not delivered at all ---------------------------------------------------------------------------


@reaches(Code.UNKNOWN_ID, Code.OPEN, Code.CANCELLED, Code.PRUNED, Code.NO_CONSUMER, Code.ARCHIVED)
async def test_an_envelope_that_nobody_is_to_get(bus: Questions) -> None:
    (unknown,) = await bus.why(uuid.uuid4())
    assert unknown.code is Code.UNKNOWN_ID
    assert unknown.proof.since is None
    assert codes(await bus.ask(lambda inquiry: inquiry.by_id("abcd"))) == [Code.UNKNOWN_ID]

    open_id, begun = bus.scribe.start_envelope()
    await begun
    await bus.scribe.start_event(open_id)[1]
    (found,) = await bus.why(open_id)
    assert found.code is Code.OPEN
    assert "1 event, 0 of them ended" in found.cause
    assert (found.proof.since, found.next_step) == (NOW, "xbus why --emitter north")
    assert codes(await bus.ask(lambda inquiry: inquiry.by_id(open_id.hex[:12]))) == [Code.OPEN]

    await bus.journal.write(Cancel(open_id, NOW, "the emitter gave up"))
    (found,) = await bus.why(open_id)
    assert found.code is Code.CANCELLED
    assert found.cause.endswith("the emitter gave up")

    empty, secret = await bus.scribe.put(), await bus.scribe.put([b"x"], type_name="secrets")
    assert await bus.code(empty, "") is Code.UNKNOWN_ROLE
    (found,) = await bus.why(empty.envelope_id)
    assert found.code is Code.NO_CONSUMER
    assert "no events" in found.cause
    (found,) = await bus.why(secret.envelope_id)
    assert found.code is Code.NO_CONSUMER
    assert "secrets" in found.cause

    archived, pruned = await bus.scribe.put([b"x"]), await bus.scribe.put([b"x"])
    for login in ("store_1", "store_2"):
        await bus.settle(login, archived.position, pruned.position)
    for receipt in (archived, secret):
        archive = sa.insert(model.archived_envelope).values(envelope_id=receipt.envelope_id, archived_at=NOW)
        await bus.change(archive, _prune(receipt.envelope_id))
    assert codes(await bus.why(archived.envelope_id)) == [Code.DELIVERED, Code.DELIVERED, Code.ARCHIVED]
    assert codes(await bus.why(archived.envelope_id, "names_1")) == [Code.NOT_OWED, Code.ARCHIVED]
    assert codes(await bus.why(secret.envelope_id)) == [Code.NO_CONSUMER, Code.ARCHIVED]
    of_pruned = sa.delete(model.event).where(_of(pruned.envelope_id))
    await bus.change(_prune(pruned.envelope_id), sa.delete(model.segment), of_pruned)
    (found,) = await bus.why(pruned.envelope_id)
    assert (found.code, found.proof.since) == (Code.PRUNED, LATER)


def _prune(envelope_id: uuid.UUID) -> sa.Update:
    """Let go of the segments, as removing and archiving both do."""
    return sa.update(model.envelope).where(model.envelope.c.id == envelope_id).values(pruned_at=LATER)


def _of(envelope_id: uuid.UUID) -> sa.ColumnElement[bool]:
    return model.event.c.envelope_id == envelope_id


@reaches(Code.UNKNOWN_KEY, Code.UNKNOWN_EMITTER, Code.REFUSED)
async def test_a_key(bus: Questions) -> None:
    """Also one whose first envelope was cancelled: then the next one counts."""

    async def by_key(key: str, emitter: str = "north") -> Code:
        return (await bus.ask(lambda inquiry: inquiry.by_key(emitter, key)))[0].code

    assert await by_key("order 1") is Code.UNKNOWN_KEY
    assert await by_key("order 1", "nobody") is Code.UNKNOWN_EMITTER
    north = bus.scribe.emitter_id()
    first, second = (keyed_envelope_id(north, "order 1", generation) for generation in (0, 1))
    bus.broker.refusals[first] = {"verb": "xbus.put_envelope", "code": "type_not_allowed", "at": NOW.isoformat()}
    found = await bus.ask(lambda inquiry: inquiry.by_key("north", "order 1"))
    assert codes(found) == [Code.REFUSED, Code.UNKNOWN_KEY]
    assert (found[0].proof.since, found[0].proof.verb) == (NOW, "xbus.put_envelope")
    assert codes(await bus.why(first)) == [Code.REFUSED, Code.UNKNOWN_ID]
    rows = {"emitter_id": north, "opened_at": NOW, "idempotency_key": "order 1"}
    await bus.change(sa.insert(model.envelope).values(id=first, state="cancelled", closed_at=NOW, **rows))
    assert await by_key("order 1") is Code.CANCELLED
    await bus.change(sa.insert(model.envelope).values(id=second, state="open", **rows))
    assert await by_key("order 1") is Code.OPEN
    cancelled = sa.update(model.envelope).where(model.envelope.c.id == second)
    await bus.change(cancelled.values(state="cancelled", closed_at=NOW))
    found = await bus.ask(lambda inquiry: inquiry.by_key("north", "order 1"))
    assert codes(found) == [Code.CANCELLED, Code.REFUSED]
    late: RefusedCall = {"verb": "xbus.send_items", "code": "envelope_closed", "at": LATER.isoformat()}
    bus.broker.refusals |= {first: late, second: late}
    assert codes(await bus.ask(lambda inquiry: inquiry.by_key("north", "order 1"))) == [Code.CANCELLED]
    assert await by_key("order 1", "south") is Code.UNKNOWN_KEY


# -- deliveries that are over, or up to a person -----------------------------------------------------------------------


@reaches(Code.DELIVERED, Code.ITEMS_PARKED, Code.PARKED, Code.RESENT, Code.DROPPED, Code.REROUTED, Code.NOT_OWED)
async def test_a_delivery_that_does_not_arrive_by_itself(bus: Questions) -> None:
    bus.broker.is_there = False
    receipts = [await bus.scribe.put([b"a", b"b"]) for _ in range(5)]
    await bus.settle("store_1", *(receipt.position for receipt in receipts))
    done, parked, again, dropped, rerouted = receipts
    assert await bus.code(done) is Code.DELIVERED

    await bus.fail(parked)
    await bus.row(parked, DeliveryState.PARKED, cause="too old")
    (found,) = await bus.why(parked.envelope_id, "store_1")
    assert found.code is Code.PARKED
    assert "after 2 attempts: too old" in found.cause
    assert found.proof.failure is not None
    assert found.proof.failure.verb == "send_item"
    assert f"xbus parked show {parked.envelope_id} --role store_1" in found.next_step

    await bus.row(again, DeliveryState.PARKED)
    repeat = await bus.scribe.again(again.envelope_id, [bus.scribe.role_id()])
    await bus.journal.write(repeat)
    (found,) = await bus.why(again.envelope_id, "store_1")
    assert (found.code, found.proof.other_id) == (Code.RESENT, repeat.envelope_id)
    (found,) = await bus.why(repeat.envelope_id, "store_2")
    assert found.code is Code.NOT_OWED
    assert "sent to store_1 alone" in found.cause

    for receipt, move in ((dropped, "dropped"), (rerouted, "rerouted")):
        subject = {"subject": "delivery", "subject_id": f"{bus.scribe.role_id()} {receipt.envelope_id}"}
        await bus.change(sa.insert(model.history).values(at=NOW, move=move, reason="ada: too late", **subject))
    assert await bus.code(dropped) is Code.DROPPED
    assert await bus.code(rerouted) is Code.REROUTED

    event_id = await _event_of(bus, done.envelope_id)
    cursor = DeliveryRow(bus.scribe.role_id(), done.envelope_id, done.position, DeliveryState.RETRY, 1, "isolated", "")
    isolated = [IsolatedItem(event_id, 1, "refused", "no name")]
    settled = DeliveryRow(bus.scribe.role_id(), done.envelope_id, done.position, DeliveryState.SETTLED, 1, "", "")
    moves = [DeliveryMove(None, cursor, isolated), DeliveryMove(DeliveryState.RETRY, settled)]
    await bus.journal.write(ProgressUpdate(NOW, deliveries=moves))
    (found,) = await bus.why(done.envelope_id, "store_1")
    assert (found.code, found.proof.items) == (Code.ITEMS_PARKED, 1)


@reaches(Code.ARCHIVE_AWAITED)
async def test_what_waits_until_an_archive_is_back(bus: Questions) -> None:
    await bus.journal.run(add_readers)
    receipt = await bus.scribe.put([b"x"])
    later = await bus.scribe.put([b"y"])
    archive = sa.insert(model.archived_envelope).values(envelope_id=receipt.envelope_id, archived_at=NOW)
    await bus.change(archive, _prune(receipt.envelope_id))
    (found, beside) = await bus.why(receipt.envelope_id, "store_1")
    assert (found.code, beside.code) == (Code.ARCHIVE_AWAITED, Code.ARCHIVED)
    assert f"xbus restore {receipt.envelope_id}" in found.next_step
    assert (await bus.why(later.envelope_id, "store_1"))[0].code is Code.IN_LINE
    (of_role,) = await bus.ask(lambda inquiry: inquiry.role("store_1"))
    assert (of_role.code, "only an archive has its items" in of_role.cause) == (Code.ROLE_BEHIND, True)
    # A reader that comes to it waits, too.
    lease = {"owner": uuid.uuid4(), "role_id": await _role(bus, "billing_1"), "expires_at": LATER}
    await bus.change(sa.update(model.reader_range).values(lease))
    (of_reader,) = await bus.ask(lambda inquiry: inquiry.role("billing"))
    assert (of_reader.code, of_reader.proof.other_id) == (Code.ARCHIVE_AWAITED, receipt.envelope_id)
    back = sa.update(model.envelope).where(model.envelope.c.id == receipt.envelope_id).values(pruned_at=None)
    await bus.change(back, sa.update(model.archived_envelope).values(restored_at=LATER))
    assert (await bus.why(receipt.envelope_id, "store_1"))[0].code is not Code.ARCHIVE_AWAITED
    assert codes(await bus.ask(lambda inquiry: inquiry.role("billing"))) == [Code.READER_BEHIND]


async def _event_of(bus: Questions, envelope_id: uuid.UUID) -> uuid.UUID:
    wanted = sa.select(model.event.c.id).where(_of(envelope_id))
    return await bus.journal.read(lambda connection: connection.execute(wanted).scalar_one())


@reaches(Code.NOT_OWED, Code.UNKNOWN_ROLE)
async def test_a_role_that_is_never_owed_it(bus: Questions) -> None:
    receipt = await bus.scribe.put([b"x"])
    store_2 = model.cursor.c.role_id == bus.scribe.role_id("store_2")
    for login, statement, cause in (
        ("names_1", None, "names_1 is a worker"),
        ("store_2", sa.update(model.cursor).where(store_2).values(from_position=2, position=1), "from position 2 on"),
        ("store_2", sa.update(model.cursor).where(store_2).values(from_position=1, until_position=1), "at position 1"),
    ):
        await bus.change(*([] if statement is None else [statement]))
        (found,) = await bus.why(receipt.envelope_id, login)
        assert found.code is Code.NOT_OWED
        assert cause in found.cause
    secret = await bus.scribe.put([b"x"], type_name="secrets")
    (found,) = await bus.why(secret.envelope_id, "store_1")
    assert found.code is Code.NOT_OWED
    assert "(secrets) led to the service store" in found.cause
    assert await bus.code(receipt, "nobody") is Code.UNKNOWN_ROLE


@reaches(Code.NOT_OWED, Code.NO_CONSUMER, Code.DELIVERED)
async def test_an_event_of_several_and_the_roles_that_began_too_late(bus: Questions) -> None:
    envelope_id, _ = bus.scribe.start_envelope()
    for number, type_name in ((1, "notes"), (2, "secrets")):
        event_id, _ = bus.scribe.start_event(envelope_id, number, type_name)
        bus.scribe.end_event(envelope_id, event_id, 0)
    receipt = await bus.scribe.seal(envelope_id, 2, 0)
    (found,) = await bus.why(envelope_id, event=2)
    assert (found.code, "graph of secrets led" in found.cause) == (Code.NO_CONSUMER, True)
    (found,) = await bus.why(envelope_id, "store_1", event=2)
    assert (found.code, "(secrets) led" in found.cause) == (Code.NOT_OWED, True)

    await bus.settle("store_1", receipt.position)
    late = sa.update(model.cursor).values(from_position=receipt.position + 1, position=receipt.position)
    await bus.change(late.where(model.cursor.c.role_id == bus.scribe.role_id("store_2")))
    assert codes(await bus.why(envelope_id)) == [Code.DELIVERED]
    await bus.change(late)
    for first, second in (await bus.why(envelope_id), await bus.why(envelope_id, event=1)):
        assert (first.code, first.role, second.role) == (Code.NOT_OWED, "store_1", "store_2")
        assert f"from position {receipt.position + 1} on" in first.cause


@reaches(Code.OPEN, Code.UNKNOWN_EVENT)
async def test_an_envelope_with_more_events_than_are_listed(bus: Questions) -> None:
    number = MOST_EVENTS + 1
    envelope_id, _ = bus.scribe.start_envelope()
    begun = [bus.scribe.start_event(envelope_id, each) for each in range(1, number + 1)]
    await begun[-1][1]
    (found,) = await bus.why(envelope_id)
    assert (found.code, "at least 100 events, 0 of the first 100 ended" in found.cause) == (Code.OPEN, True)
    for event_id, _ in begun:
        bus.scribe.end_event(envelope_id, event_id, 0)
    await bus.scribe.seal(envelope_id, number, 0)
    (found,) = await bus.why(envelope_id, event=number + 1)
    assert (found.code, "has 101 events" in found.cause) == (Code.UNKNOWN_EVENT, True)


# -- events and items --------------------------------------------------------------------------------------------------


@reaches(
    Code.UNKNOWN_EVENT,
    Code.UNKNOWN_ITEM,
    Code.ITEM_PARKED,
    Code.ITEM_DROPPED,
    Code.ITEM_RESUMED,
    Code.ITEM_CORRECTED,
)
async def test_an_event_and_its_items(bus: Questions) -> None:
    receipt = await bus.scribe.put([b"a", b"b", b"c", b"d"])
    await bus.settle("store_1", receipt.position)
    event_id = await _event_of(bus, receipt.envelope_id)
    assert codes(await bus.ask(lambda inquiry: inquiry.by_id(event_id.hex))) == [Code.IN_LINE, Code.DELIVERED]
    assert codes(await bus.why(receipt.envelope_id, event=2)) == [Code.UNKNOWN_EVENT]
    assert codes(await bus.why(receipt.envelope_id, event=1, item=4)) == [Code.UNKNOWN_ITEM]
    assert codes(await bus.why(receipt.envelope_id, "store_1", event=1, item=0)) == [Code.DELIVERED]

    states = ((1, "parked", Code.ITEM_PARKED), (2, "dropped", Code.ITEM_DROPPED), (3, "resumed", Code.ITEM_RESUMED))
    for index, state, code in states:
        item = {"role_id": bus.scribe.role_id(), "event_id": event_id, "item_index": index, "state": state}
        more = {"envelope_id": receipt.envelope_id, "code": "refused", "cause": "no name", "changed_at": NOW}
        more |= {"resumed_as": uuid.uuid4() if state == "resumed" else None}
        await bus.change(sa.insert(model.parked_item).values(**item, **more))
        assert codes(await bus.why(receipt.envelope_id, "store_1", event=1, item=index)) == [code]
        found = await bus.why(receipt.envelope_id, event=1, item=index)
        assert set(codes(found)) == {code, Code.IN_LINE}

    corrected = {"event_id": event_id, "item_index": 0, "before": b"a", "after": b"z", "at": NOW, "reason": "ada: z"}
    await bus.change(sa.insert(model.correction).values(**corrected))
    found = await bus.why(receipt.envelope_id, event=1, item=0)
    assert set(codes(found)) == {Code.ITEM_CORRECTED, Code.IN_LINE, Code.DELIVERED}


# -- deliveries that arrive by themselves ------------------------------------------------------------------------------


@reaches(
    Code.IN_LINE,
    Code.UNDER_WAY,
    Code.SLOTS_TAKEN,
    Code.HELD_UP,
    Code.WORKER_GRACE,
    Code.WORKER_BUSY,
    Code.KEY_IN_HAND,
    Code.UNWRITTEN,
    Code.BACK_UNREACHABLE,
)
async def test_a_delivery_in_its_turn(bus: Questions) -> None:
    """The back says what the journal can't know."""
    first = await bus.scribe.put([b"x"], type_name="flights", ordering_key="ada")
    second = await bus.scribe.put([b"x"], type_name="flights", ordering_key="ada")
    (found,) = await bus.why(second.envelope_id, "store_1")
    assert (found.code, found.proof.envelopes) == (Code.IN_LINE, 1)
    assert "after 1 envelope" in found.cause
    (found,) = await bus.why(first.envelope_id, "store_1")
    assert (found.code, found.proof.envelopes) == (Code.IN_LINE, 0)

    tell, back = bus.broker.tell, bus.broker.insight_of_all
    tell("store_1", in_flight=[1], is_free=False)
    assert await bus.code(first) is Code.UNDER_WAY
    assert await bus.code(second) is Code.SLOTS_TAKEN
    tell("store_1", in_flight=[1, 2], is_free=False)
    assert await bus.code(second) is Code.SLOTS_TAKEN
    back["busy"] = ["names", "prices"]
    (found,) = await bus.why(second.envelope_id, "store_1")
    assert (found.code, found.proof.service) == (Code.WORKER_BUSY, "names")
    back["in_hand"] = [
        {"role": bus.scribe.role_id(login), "verb": "end_event", "since": NOW.isoformat()}
        for login in ("store_2", "names_1")
    ]
    (found,) = await bus.why(first.envelope_id, "store_1")
    assert (found.code, found.proof.place, found.proof.verb) == (Code.UNDER_WAY, "names_1", "end_event")
    back["in_hand"], back["busy"] = [], []

    tell("store_1", held_up_by=[bus.scribe.role_id(login) for login in ("store_2", "prices_1")])
    (found,) = await bus.why(first.envelope_id, "store_1")
    assert (found.code, found.proof.place) == (Code.HELD_UP, "store_2")
    back["graces"] = [{"service": "prices", "seconds": 2.0}, {"service": "names", "seconds": 1.0}]
    (found,) = await bus.why(first.envelope_id, "store_1")
    assert (found.code, found.proof.service) == (Code.WORKER_GRACE, "names")
    assert found.proof.until_at == LATER + timedelta(seconds=1)

    await bus.change(sa.update(model.role).values(ordered=True))
    tell("store_1", in_flight=[1])
    (found,) = await bus.why(second.envelope_id, "store_1")
    assert (found.code, found.proof.other_id) == (Code.KEY_IN_HAND, first.envelope_id)

    tell("store_1", is_settled=True)
    assert await bus.code(first) is Code.UNWRITTEN
    bus.broker.is_there = False
    assert await bus.code(first) is Code.BACK_UNREACHABLE


@reaches(Code.WORKER_BUSY, Code.WORKER_GRACE)
async def test_a_worker_service_has_its_present_name(bus: Questions) -> None:
    """The back knows services by their keys, which a renaming leaves as they were."""
    receipt = await bus.scribe.put([b"x"], type_name="flights")
    await bus.change(sa.update(model.service).where(model.service.c.key == "names").values(name="labels"))
    bus.broker.insight_of_all["graces"] = [{"service": "names", "seconds": 1.0}]
    (found,) = await bus.why(receipt.envelope_id, "store_1")
    assert (found.code, found.proof.service) == (Code.WORKER_GRACE, "labels")
    bus.broker.tell("store_1", in_flight=[receipt.position])
    bus.broker.insight_of_all["busy"] = ["names"]
    (found,) = await bus.why(receipt.envelope_id, "store_1")
    assert (found.code, found.proof.service) == (Code.WORKER_BUSY, "labels")


@reaches(
    Code.RETRY_DUE,
    Code.BEHIND_KEY,
    Code.BEHIND_ROW,
    Code.WORKER_ABSENT,
    Code.WORKER_PAUSED,
    Code.WORKER_TRIPPED,
    Code.OUTPUT_NOT_READY,
)
async def test_a_delivery_with_a_row(bus: Questions) -> None:
    receipts = [await bus.scribe.put([b"x"], type_name="flights") for _ in range(5)]
    late, due, waiting, output, held = receipts
    await bus.fail(late, "store_2")
    await bus.fail(late, "names_1")
    await bus.row(late, DeliveryState.RETRY, due_at=LATER + timedelta(minutes=1))
    (found,) = await bus.why(late.envelope_id, "store_1")
    assert (found.code, found.proof.until_at) == (Code.RETRY_DUE, LATER + timedelta(minutes=1))
    assert found.proof.failure is not None
    assert found.proof.failure.role == "names_1"
    await bus.row(due, DeliveryState.RETRY, due_at=NOW)
    (found,) = await bus.why(due.envelope_id, "store_1")
    assert found.code is Code.RETRY_DUE
    assert "again now" in found.cause
    bus.broker.tell("store_1", is_free=False, in_flight=[9])
    assert await bus.code(due) is Code.SLOTS_TAKEN
    await bus.change(sa.update(model.role).values(ordered=True))
    bus.broker.tell("store_1", in_flight=[held.position])
    (found,) = await bus.why(due.envelope_id, "store_1")
    assert (found.code, found.proof.other_id) == (Code.BEHIND_ROW, held.envelope_id)
    bus.broker.tell("store_1")

    await bus.row(waiting, DeliveryState.WAITING, "worker_absent", service="names")
    bus.broker.tell("names_1", programs=0, state="absent")
    (found,) = await bus.why(waiting.envelope_id, "store_1")
    assert found.code is Code.WORKER_ABSENT
    assert "names_1 was never seen" in found.cause
    bus.broker.tell("names_1", state="tripped", trouble_since=NOW.isoformat(), probe_seconds=9.0)
    (found,) = await bus.why(waiting.envelope_id, "store_1")
    assert (found.code, found.proof.since) == (Code.WORKER_TRIPPED, NOW)
    bus.broker.tell("names_1")
    assert await bus.code(waiting) is Code.IN_LINE
    await _pause(bus, "role", bus.scribe.role_id("names_1"))
    (found,) = await bus.why(waiting.envelope_id, "store_1")
    assert found.code is Code.WORKER_PAUSED
    assert found.proof.pause is not None

    await bus.row(output, DeliveryState.WAITING, "output_not_ready", cause='the output of node "names" is not made yet')
    assert await bus.code(output) is Code.OUTPUT_NOT_READY

    await bus.row(held, DeliveryState.HELD, "held", ordering_key="")
    assert await bus.code(held) is Code.IN_LINE
    await bus.row(held, DeliveryState.HELD, "held", "store_2", ordering_key="ada")
    await bus.row(late, DeliveryState.PARKED, "refused", "store_2", ordering_key="ada")
    (found,) = await bus.why(held.envelope_id, "store_2")
    assert (found.code, found.proof.other_id) == (Code.BEHIND_KEY, late.envelope_id)
    assert "which is parked: no answer" in found.cause


@reaches(Code.WORKER_ABSENT)
async def test_a_paused_worker_beside_an_absent_one(bus: Questions) -> None:
    receipt = await bus.scribe.put([b"x"], type_name="flights")
    await bus.row(receipt, DeliveryState.WAITING, "worker_absent", service="names")
    role = model.role.c
    second = sa.update(model.role).where(role.login == "prices_1").values(service_id=await _service(bus, "names"))
    await bus.change(second)
    await _pause(bus, "role", bus.scribe.role_id("names_1"))
    bus.broker.tell("names_1", state="paused")
    bus.broker.tell("prices_1", state="absent", programs=0)
    (found,) = await bus.why(receipt.envelope_id, "store_1")
    assert (found.code, found.proof.place) == (Code.WORKER_ABSENT, "prices_1")
    assert 'prices_1 was never seen, the role "names_1" is paused' in found.cause
    assert found.next_step == "start a worker for prices_1, or xbus resume role names_1 --reason …"


async def _pause(bus: Questions, kind: str, subject_id: int) -> None:
    values = {"kind": kind, "subject_id": subject_id, "reason": "moving", "paused_by": "ada", "since": NOW}
    await bus.change(sa.insert(model.pause).values(**values))


# -- roles -------------------------------------------------------------------------------------------------------------


@reaches(
    Code.ROLE_ABSENT,
    Code.ROLE_TRIPPED,
    Code.ROLE_LEAVING,
    Code.ROLE_PAUSED,
    Code.ROLE_REMOVED,
    Code.NO_ROLE,
)
async def test_a_delivery_to_a_role_that_gets_nothing(bus: Questions) -> None:
    receipt = await bus.scribe.put([b"x"])
    await bus.change(
        sa.insert(model.presence).values(
            role_id=bus.scribe.role_id(), state="absent", since=NOW, seen_at=NOW, noted_at=NOW
        )
    )
    bus.broker.tell("store_1", state="absent", programs=0)
    for state, word in (("present", "was last seen at 2020-02-29"), ("absent", "is absent since 2020-02-29")):
        await bus.change(sa.update(model.presence).values(state=state))
        (found,) = await bus.why(receipt.envelope_id, "store_1")
        assert (found.code, word in found.cause) == (Code.ROLE_ABSENT, True)
    for state, code, since in (
        ("absent", Code.ROLE_ABSENT, NOW),
        ("tripped", Code.ROLE_TRIPPED, LATER),
        ("leaving", Code.ROLE_LEAVING, None),
        ("paused", Code.ROLE_PAUSED, None),
    ):
        bus.broker.tell("store_1", state=state, trouble_since=LATER.isoformat(), probe_seconds=7.0)
        (found,) = await bus.why(receipt.envelope_id, "store_1")
        assert (found.code, found.proof.since) == (code, since)
        (found,) = await bus.ask(lambda inquiry: inquiry.role("store_1"))
        assert found.code is code
        assert "lacks 1 envelope, the oldest since 2020-02-29" in found.cause

    await _pause(bus, "service", (await _service(bus, "store")))
    (found,) = await bus.why(receipt.envelope_id, "store_1")
    assert found.code is Code.ROLE_PAUSED
    assert found.next_step.startswith("xbus resume service store")
    await bus.change(sa.update(model.role).where(model.role.c.login == "store_1").values(removed_at=NOW))
    (found,) = await bus.why(receipt.envelope_id, "store_1")
    assert (found.code, found.proof.since) == (Code.ROLE_REMOVED, NOW)
    assert "keeps what it lacks in case it comes back" in found.cause
    assert found.next_step == "name store_1 in the bus file again, then xbus apply"

    graph_id = bus.scribe.catalog.event_types["notes"].graph_id
    await bus.change(sa.insert(model.service).values(name="vault", key="vault", kind="consumer", failures="shared"))
    vault = await _service(bus, "vault")
    await bus.change(sa.insert(model.node).values(graph_id=graph_id, name="vault", service_id=vault))
    assert Code.NO_ROLE in codes(await bus.why(receipt.envelope_id))


@reaches(Code.NO_ROLE)
async def test_a_repeat_for_a_role_that_has_left_its_service(bus: Questions) -> None:
    first, repeat = await bus.scribe.put([b"x"]), await bus.scribe.put([b"x"])
    only = sa.insert(model.envelope_role).values(envelope_id=repeat.envelope_id, role_id=bus.scribe.role_id())
    origin = sa.update(model.envelope).where(model.envelope.c.id == repeat.envelope_id)
    await bus.change(origin.values(origin_id=first.envelope_id), only)
    vault = {"name": "vault", "key": "vault", "kind": "consumer", "failures": "shared"}
    await bus.change(sa.insert(model.service).values(vault))
    store = model.role.c.login.in_(["store_1", "store_2"])
    await bus.change(sa.update(model.role).where(store).values(service_id=await _service(bus, "vault")))
    (found,) = await bus.why(repeat.envelope_id)
    assert (found.code, found.proof.other_id, found.proof.place) == (Code.NO_ROLE, first.envelope_id, "store_1")


async def _service(bus: Questions, name: str) -> int:
    wanted = sa.select(model.service.c.id).where(model.service.c.name == name)
    return await bus.journal.read(lambda connection: int(connection.execute(wanted).scalar_one()))


@reaches(
    *(Code.READER_ABSENT, Code.READER_BEHIND, Code.READER_DETACHED, Code.READER_PAUSED, Code.READER_WELL),
    *(Code.SUBSCRIPTION_ENDED, Code.SUBSCRIPTION_FAILING, Code.BATCHES_PARKED),
)
async def test_a_reader_and_a_subscription(bus: Questions) -> None:
    await bus.journal.run(add_readers)

    async def of(name: str) -> list[Finding]:
        return await bus.ask(lambda inquiry: inquiry.role(name))

    assert codes(await of("billing")) == codes(await of("billing_1")) == codes(await of("shop")) == [Code.READER_ABSENT]
    await bus.scribe.put([b"x"])
    (found,) = await of("billing")
    assert "1 event from 1 on wait, the oldest since 2020-02-29" in found.cause
    assert (found.next_step, found.proof.since) == ("start a program that reads billing", NOW)
    billing = await _service(bus, "billing")
    ranges = sa.update(model.reader_range).where(model.reader_range.c.service_id == billing)
    lease = {"owner": uuid.uuid4(), "role_id": await _role(bus, "billing_1"), "expires_at": LATER}
    await bus.change(ranges.values(lease))
    assert codes(await of("billing")) == [Code.READER_BEHIND]
    settings = sa.update(model.reader).where(model.reader.c.service_id == billing)
    await bus.change(settings.values(detached_at=NOW))
    assert codes(await of("billing")) == [Code.READER_DETACHED, Code.READER_BEHIND]
    of_billing = sa.select(model.reader_range.c.id).where(model.reader_range.c.service_id == billing)
    stretch = sa.update(model.reader_stretch).where(model.reader_stretch.c.range_id.in_(of_billing))
    await bus.change(settings.values(detached_at=None), stretch.values(position=2))
    assert codes(await of("billing")) == [Code.READER_WELL]
    await _pause(bus, "service", billing)
    (found,) = await of("billing")
    assert (found.code, found.next_step.startswith("xbus resume service billing")) == (Code.READER_PAUSED, True)

    failing = sa.update(model.subscription_state)
    await bus.change(failing.values(failures=3, failing_since=NOW, retry_at=LATER, code="refused", error="HTTP 503"))
    (found,) = await of("shop")
    assert (found.code, found.proof.since, found.proof.until_at) == (Code.SUBSCRIPTION_FAILING, NOW, LATER)
    assert "the last with refused: HTTP 503, and 1 event from 1 on wait" in found.cause
    parked = sa.update(model.reader_range).where(
        model.reader_range.c.service_id == await _service(bus, "subscription/shop")
    )
    await bus.change(parked.values(parked_at=NOW))
    found, behind = await of("shop")
    assert (found.code, behind.code) == (Code.BATCHES_PARKED, Code.SUBSCRIPTION_FAILING)
    assert (found.cause.split(",")[0], found.next_step) == (
        "its subscriber took 1 batch of shop at no attempt",
        "xbus parked batch list --subscription shop",
    )
    await bus.change(parked.values(parked_at=None))
    await bus.change(failing.values(ended_at=LATER))
    (found,) = await of("shop")
    assert (found.code, found.next_step) == (Code.SUBSCRIPTION_ENDED, "xbus subscription resume shop --reason …")


def add_readers(connection: sa.Connection) -> None:
    """Add a reader and a subscription of notes beside the small bus."""
    bus = small_bus()
    readers = {"billing": ReaderSpec("billing", frozenset({"notes"}), ranges=1, start="oldest")}
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    shop = SubscriptionSpec("shop", frozenset({"notes"}), "https://shop.example/hook", secret=secret, start="oldest")
    roles = {**bus.roles, "billing_1": RoleSpec("billing_1", "billing")}
    plan = make_plan(read_stored(connection), replace(bus, readers=readers, subscriptions={"shop": shop}, roles=roles))
    assert not plan.problems, plan.problems
    apply(connection, plan, NOW)


@reaches(
    *(Code.UNKNOWN_BOT, Code.BOT_PAUSED, Code.BOT_SLOWED, Code.BOT_RUNNING, Code.BOT_RETRIES, Code.BOT_BEHIND),
    *(Code.BOT_FAILED, Code.BOT_IDLE, Code.RUNNER_PAUSED, Code.RUNNER_ABSENT, Code.RUNNER_IDLE),
)
async def test_a_bot_and_its_runner(bus: Questions) -> None:
    async def of(name: str) -> Finding:
        (found,) = await bus.ask(lambda inquiry: inquiry.bot(name))
        return found

    async def of_runner() -> list[Code]:
        return codes(await bus.ask(lambda inquiry: inquiry.role("runner_1")))

    await bus.journal.run(add_bots, ())
    assert await of_runner() == [Code.RUNNER_IDLE]
    await bus.journal.run(add_bots, ("nightly", "counting"))
    assert (await of("nobody")).code is Code.UNKNOWN_BOT
    idle = await of("nightly")
    assert (idle.code, idle.proof.until_at) == (Code.BOT_IDLE, NOW.replace(day=1, month=3, hour=3))
    assert "its next slot is 2020-03-01 03:00:00Z" in idle.cause
    # Its events wait, and no broker has its ranges yet.
    await bus.scribe.put([b"x"])
    found = await of("counting")
    assert (found.code, found.proof.since) == (Code.BOT_BEHIND, NOW)
    assert "1 event from 1 on wait for counting" in found.cause
    assert "nobody has 1 of its 1 range" in found.cause
    await bus.change(sa.update(model.reader_range).values(owner=uuid.uuid4(), expires_at=LATER))
    assert "held by a broker" in (await of("counting")).cause

    # A run: it waits, is taken, fails, is tried again, and has failed.
    bot_id = await bus.journal.read(lambda connection: find_bot(connection, "nightly"))
    runner = await _role(bus, "runner_1")
    due = {"bot_id": bot_id, "slot": NOW, "state": "due", "due_at": NOW, "attempts": 0}
    await bus.change(sa.insert(model.bot_run).values(due))
    found = await of("nightly")
    assert (found.code, found.proof.since) == (Code.RUNNER_ABSENT, NOW)
    assert "no program of runner_1 has taken it" in found.cause
    assert await of_runner() == [Code.BOT_BEHIND, Code.RUNNER_ABSENT]
    await _pause(bus, "role", runner)
    assert (await of("nightly")).code is Code.RUNNER_PAUSED
    await bus.change(sa.delete(model.pause))
    run = sa.update(model.bot_run)
    await bus.change(run.values(state="running", role_id=runner, started_at=NOW, attempts=1, lease_until=LATER))
    found = await of("nightly")
    assert (found.code, found.proof.place, found.proof.since) == (Code.BOT_RUNNING, "runner_1", NOW)
    again = LATER + timedelta(minutes=1)
    await bus.change(run.values(state="due", due_at=again, code="failed", error="no paper"))
    found = await of("nightly")
    assert (found.code, found.proof.until_at, "no paper" in found.cause) == (Code.BOT_RETRIES, again, True)
    await bus.change(run.values(state="failed", ended_at=LATER))
    found = await of("nightly")
    assert (found.code, found.proof.since, found.proof.attempts) == (Code.BOT_FAILED, LATER, 1)
    of_nightly = sa.update(model.bot_state).where(model.bot_state.c.bot_id == bot_id)
    await bus.change(of_nightly.values(failures=7, failed_at=LATER, slowed_until=again))
    found = await of("nightly")
    assert (found.code, found.proof.until_at, found.proof.attempts) == (Code.BOT_SLOWED, again, 7)
    await _pause(bus, "bot", bot_id)
    assert (await of("nightly")).code is Code.BOT_PAUSED


def add_bots(connection: sa.Connection, names: Collection[str]) -> None:
    """Add a runner beside the small bus, and bots of these names: one for a cron, one that reads notes."""
    bus = small_bus()
    bots = {
        "nightly": BotSpec("nightly", call="reports:nightly", cron="0 3 * * *"),
        "counting": BotSpec("counting", call="reports:count", reads=frozenset({"notes"})),
    }
    services = {**bus.services, "runners": ServiceSpec("runners", kind="runner")}
    roles = {**bus.roles, "runner_1": RoleSpec("runner_1", "runners")}
    wanted = replace(bus, services=services, roles=roles, bots={name: bots[name] for name in names})
    plan = make_plan(read_stored(connection), wanted)
    assert not plan.problems, plan.problems
    apply(connection, plan, NOW)


async def _role(bus: Questions, login: str) -> int:
    wanted = sa.select(model.role.c.id).where(model.role.c.login == login)
    return await bus.journal.read(lambda connection: int(connection.execute(wanted).scalar_one()))


@reaches(Code.BACK_UNAWARE)
async def test_a_role_that_the_back_does_not_know_yet(bus: Questions) -> None:
    receipt = await bus.scribe.put([b"x"])
    bus.broker.unaware_of.add("store_1")
    assert await bus.code(receipt) is Code.BACK_UNAWARE
    (found,) = await bus.ask(lambda inquiry: inquiry.role("store_1"))
    assert found.code is Code.BACK_UNAWARE
    assert found.next_step == "ask again; if this remains, see xbus health"


@reaches(Code.ROLE_WELL, Code.ROLE_BEHIND, Code.PARKED, Code.ROLE_DETACHED, Code.ROLE_REMOVED, Code.BACK_UNREACHABLE)
async def test_a_role(bus: Questions) -> None:
    async def of_role(login: str = "store_1") -> list[Code]:
        return codes(await bus.ask(lambda inquiry: inquiry.role(login)))

    assert await of_role("nobody") == [Code.UNKNOWN_ROLE]
    assert await of_role() == await of_role("names_1") == [Code.ROLE_WELL]
    receipts = [await bus.scribe.put([b"x"], type_name="flights") for _ in range(3)]
    bus.broker.tell("store_1", is_free=False, in_flight=[9])
    (found,) = await bus.ask(lambda inquiry: inquiry.role("store_1"))
    assert (found.code, found.proof.envelopes, found.proof.other_id) == (Code.ROLE_BEHIND, 3, receipts[0].envelope_id)
    assert "can take no more" in found.cause

    await bus.settle("store_1", receipts[0].position, receipts[1].position)
    await bus.row(receipts[0], DeliveryState.PARKED)
    await bus.row(receipts[1], DeliveryState.WAITING, "worker_absent", service="names")
    assert await of_role() == [Code.PARKED, Code.ROLE_BEHIND]
    bus.broker.tell("names_1", state="absent", programs=0)
    (found,) = await bus.ask(lambda inquiry: inquiry.role("names_1"))
    assert found.code is Code.ROLE_ABSENT
    assert "1 envelope waited for a worker of names" in found.cause
    bus.broker.is_there = False
    assert await of_role() == [Code.PARKED, Code.BACK_UNREACHABLE]
    for column, code in (("detached_at", Code.ROLE_DETACHED), ("removed_at", Code.ROLE_REMOVED)):
        await bus.change(sa.update(model.role).where(model.role.c.login == "store_1").values({column: NOW}))
        assert code in await of_role()


# -- emitters ----------------------------------------------------------------------------------------------------------


@reaches(
    Code.UNKNOWN_EMITTER,
    Code.EMITTER_QUIET,
    Code.EMITTER_SENDING,
    Code.EMITTER_PAUSED,
    Code.TYPE_PAUSED,
    Code.EMITTER_LOCKED,
    Code.EMITTER_REMOVED,
    Code.FRONT_TROUBLED,
    Code.FRONT_UNREACHABLE,
)
async def test_an_emitter(bus: Questions) -> None:
    async def of_emitter(login: str = "north") -> list[Code]:
        return codes(await bus.ask(lambda inquiry: inquiry.emitter(login)))

    assert await of_emitter("nobody") == [Code.UNKNOWN_EMITTER]
    assert await of_emitter() == [Code.EMITTER_LOCKED, Code.EMITTER_QUIET]
    await bus.change(sa.update(model.emitter).values(password_hash="hash"))
    (found,) = await bus.ask(lambda inquiry: inquiry.emitter("north"))
    assert found.proof.envelope_id is None
    assert "may send fares, flights, notes, wishes" in found.cause
    receipt = await bus.scribe.put([b"x"])
    (found,) = await bus.ask(lambda inquiry: inquiry.emitter("north"))
    assert (found.code, found.proof.envelope_id) == (Code.EMITTER_QUIET, receipt.envelope_id)
    envelope_id, begun = bus.scribe.start_envelope()
    await begun
    (found,) = await bus.ask(lambda inquiry: inquiry.emitter("north"))
    assert (found.code, found.proof.other_id) == (Code.EMITTER_SENDING, envelope_id)
    assert await of_emitter("south") == [Code.EMITTER_QUIET]

    await _pause(bus, "emitter", bus.scribe.emitter_id())
    await _pause(bus, "type", bus.scribe.catalog.event_types["notes"].id)
    assert await of_emitter() == [Code.EMITTER_PAUSED, Code.TYPE_PAUSED, Code.EMITTER_SENDING]
    bus.broker.problems = ["journal_full", "parked"]
    assert await of_emitter("south") == [Code.FRONT_TROUBLED, Code.TYPE_PAUSED, Code.EMITTER_QUIET]
    bus.broker.is_there = False
    await bus.change(sa.update(model.emitter).values(removed_at=NOW))
    assert set(await of_emitter("south")) == {
        *(Code.EMITTER_REMOVED, Code.FRONT_UNREACHABLE, Code.TYPE_PAUSED, Code.EMITTER_QUIET)
    }


@reaches(Code.SLOW_DOWN)
async def test_an_emitter_that_its_limits_hold(bus: Questions) -> None:
    bus.broker.slowed_emitters[bus.scribe.emitter_id()] = {
        "cause": "the emitter sends more than 5 items a second",
        "verb": "xbus.put_envelope",
        "since": NOW.isoformat(),
        "at": LATER.isoformat(),
        "calls": 12,
    }
    await bus.change(sa.update(model.emitter).values(password_hash="hash"))
    found = await bus.ask(lambda inquiry: inquiry.emitter("north"))
    assert codes(found) == [Code.SLOW_DOWN, Code.EMITTER_QUIET]
    assert "more than 5 items a second; since 2020-02-29 12:00:00Z the front has told 12 calls" in found[0].cause
    assert (found[0].proof.since, found[0].proof.verb, found[0].proof.place) == (NOW, "xbus.put_envelope", "north")
    assert codes(await bus.ask(lambda inquiry: inquiry.emitter("south"))) == [Code.EMITTER_QUIET]
    assert codes(await bus.ask(lambda inquiry: inquiry.by_key("north", "order 1"))) == [
        *(Code.SLOW_DOWN, Code.UNKNOWN_KEY)
    ]
    envelope_id, begun = bus.scribe.start_envelope()
    await begun
    assert codes(await bus.why(envelope_id)) == [Code.SLOW_DOWN, Code.OPEN]
    receipt = await bus.scribe.put([b"x"])
    assert Code.SLOW_DOWN not in codes(await bus.why(receipt.envelope_id))
