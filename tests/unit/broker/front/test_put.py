"""Whole envelopes in one call, and the same again."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import cast

import pytest

from tests.support.clock import StandingClock
from tests.support.faults import Faults
from tests.support.groups import LIMITS
from tests.support.journal import Scribe
from tests.unit.broker.front.conftest import Desk, Rings
from xbus.broker.configuration import Configuration
from xbus.broker.front.envelopes.checks import Checks, NewEvent
from xbus.broker.front.envelopes.replies import ReplyRequests
from xbus.broker.front.front import Front
from xbus.broker.housekeeping.space import Space
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.emitters import EmitterEntry
from xbus.broker.journal.writes import SendingLimits
from xbus.errors import Failed, JournalError, JournalUnavailable, Refused
from xbus.rpc.codec import Value, pack_items
from xbus.supervision.health import Health


def event(*items: bytes, type_name: str = "notes") -> NewEvent:
    return NewEvent(uuid.uuid4(), type_name, len(items), pack_items(items) if items else b"")


async def test_it_comes_in_and_is_sealed(north: Desk, rings: Rings) -> None:
    envelope_id = uuid.uuid4()
    receipt = await north.put(envelope_id, event(b"a", b"b"), event(type_name="flights"))
    assert (receipt.envelope_id, receipt.position, receipt.events, receipt.items) == (envelope_id, 1, 2, 2)
    assert rings.count == 1
    assert not north.front.has_open_envelope(north.emitter_id)


async def test_a_repeat_gets_its_receipt(north: Desk) -> None:
    envelope_id, events = uuid.uuid4(), [event(b"a", b"b"), event()]
    receipt = await north.put(envelope_id, *events)
    assert await north.put(envelope_id, *events) == receipt


async def test_an_id_that_is_new_is_not_looked_up(
    north: Desk, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[object] = []
    whole, envelope_id = event(b"a"), uuid.uuid4()
    monkeypatch.setattr(journal, "read", lambda statement, *args: read.append(statement))
    await north.put(envelope_id, whole)
    assert read == []


async def test_a_repeat_gets_its_receipt_whatever_is_allowed_by_now(
    north: Desk, journal: Journal, configuration: Configuration, replies: ReplyRequests
) -> None:
    whole, envelope_id = event(b"abc"), uuid.uuid4()
    receipt = await north.put(envelope_id, whole)
    strict = Checks(configuration, replace(LIMITS, item_bytes=1), StandingClock())
    async with asyncio.TaskGroup() as tasks:
        space = Space(journal, 0, Health("front", StandingClock()))
        front = Front(journal, strict, StandingClock(), replies, lambda: None, tasks, space)
        again = Desk(front, journal, north.emitter_id)
        assert await again.put(envelope_id, whole) == receipt
        with pytest.raises(Refused) as refusal:
            await again.put(uuid.uuid4(), whole)
        assert refusal.value.code == "item_too_large"


async def test_a_repeat_while_the_first_is_under_way(north: Desk) -> None:
    envelope_id, events = uuid.uuid4(), [event(b"a", b"b"), event()]
    answers = [north.put_soon(envelope_id, events) for _ in range(3)]
    receipts = [await answer for answer in answers]
    assert receipts[0] == receipts[1] == receipts[2]
    assert receipts[0].position == 1


async def test_other_content_under_the_same_id_is_refused(north: Desk) -> None:
    envelope_id, first = uuid.uuid4(), event(b"a")
    await north.put(envelope_id, first)
    with pytest.raises(Refused) as caught:
        await north.put(envelope_id, NewEvent(first.event_id, "notes", 1, pack_items([b"b"])))
    assert caught.value.code == "content_differs"


async def test_what_was_begun_by_single_calls_is_finished(north: Desk) -> None:
    """As after a restart of the broker in the midst of it."""
    envelope_id, whole = uuid.uuid4(), event(b"a", b"b")
    await north.start_envelope(envelope_id)
    await north.start_event(envelope_id, whole.event_id)
    await north.append(envelope_id, whole.event_id, 0, [b"a", b"b"])
    assert (await north.put(envelope_id, whole)).items == 2


async def test_anothers_id_is_as_good_as_unknown(north: Desk, south: Desk) -> None:
    envelope_id, whole = uuid.uuid4(), event(b"a")
    await north.put(envelope_id, whole)
    with pytest.raises(Refused) as caught:
        await south.put(envelope_id, whole)
    assert caught.value.code == "envelope_unknown"


DOUBLE = event(b"a")

REFUSALS = [
    ("unknown_type", [event(b"a", type_name="nonsense")]),
    ("type_not_allowed", [event(b"a", type_name="secrets")]),
    ("bad_items", [NewEvent(uuid.uuid4(), "notes", 2, pack_items([b"a"]))]),
    ("bad_items", [NewEvent(uuid.uuid4(), "notes", 0, pack_items([b"a"]))]),
    ("item_too_large", [event(bytes(LIMITS.item_bytes + 1))]),
    ("envelope_too_large", [event(*[b"x"] * 60), event(*[b"x"] * 60)]),
    ("wrong_arguments", [DOUBLE, DOUBLE]),
]


@pytest.mark.parametrize(("code", "events"), REFUSALS)
async def test_a_refusal_keeps_nothing_and_stays_the_same(
    front: Front, north: Desk, code: str, events: list[NewEvent]
) -> None:
    envelope_id = uuid.uuid4()
    for _ in range(2):
        with pytest.raises(Refused) as caught:
            await north.put(envelope_id, event(b"good"), *events)
        assert caught.value.code == code
        assert await north.stored(envelope_id) is None
        assert not front.has_open_envelope(north.emitter_id)


async def test_an_outage_keeps_nothing_and_the_same_call_goes_well_later(north: Desk, faults: Faults) -> None:
    envelope_id, whole = uuid.uuid4(), event(b"a", b"b")
    with faults.before_commit():
        with pytest.raises(JournalUnavailable):
            await north.put(envelope_id, whole)
    assert await north.stored(envelope_id) is None
    assert (await north.put(envelope_id, whole)).items == 2


async def test_events_that_are_anothers_do_not_get_in(north: Desk, south: Desk) -> None:
    """An id of an event that was used before: the envelope is not sealed without it, nor is the other one touched."""
    first, second, whole = uuid.uuid4(), uuid.uuid4(), event(b"a")
    await north.put(first, whole)
    with pytest.raises(JournalError):
        await south.put(second, whole)
    stored = await north.stored(first)
    assert stored is not None
    assert [(each.event_id, each.items) for each in stored.events] == [(whole.event_id, 1)]
    assert not south.front.has_open_envelope(south.emitter_id)


async def put_alone(north: Desk) -> None:
    await north.put(uuid.uuid4(), event(b"a" * 20))


async def put_in_a_group(north: Desk) -> None:
    data = pack_items([b"a" * 20])
    await north.front.put_group(
        [north.emitter_id], [[uuid.uuid4().bytes, uuid.uuid4().bytes, "notes", 1, data, None, None]]
    )


async def put_in_parts(north: Desk) -> None:
    envelope_id = await north.start_envelope()
    event_id = await north.start_event(envelope_id)
    await north.journal.run(lambda _: None)  # what waits for its commit takes space, too
    await north.append(envelope_id, event_id, 0, [b"a" * 20])


@asynccontextmanager
async def nearly_full(
    journal: Journal, configuration: Configuration, replies: ReplyRequests, first: NewEvent
) -> AsyncIterator[Desk]:
    """An emitter whose first envelope, with the id of its event, takes nearly all of the journal's space."""
    health, clock = Health("front", StandingClock()), StandingClock()
    emitter_id = (await Scribe.of(journal)).emitter_id("north")
    async with asyncio.TaskGroup() as tasks:
        space = Space(journal, 1_000, health)
        front = Front(journal, Checks(configuration, LIMITS, clock), clock, replies, lambda: None, tasks, space)
        north = Desk(front, journal, emitter_id)
        await north.put(first.event_id, first)
        yield north
        assert health.healthy


@pytest.mark.parametrize("put", [put_alone, put_in_a_group, put_in_parts])
async def test_items_that_are_refused_take_no_space(
    journal: Journal, configuration: Configuration, replies: ReplyRequests, put: Callable[[Desk], Awaitable[None]]
) -> None:
    """An emitter that is told to slow down sends the same items again and again."""
    async with nearly_full(journal, configuration, replies, event(b"x" * 950)) as north:
        emitters = cast("dict[int, EmitterEntry]", configuration.catalog.emitters)
        emitters[north.emitter_id] = replace(emitters[north.emitter_id], limits=SendingLimits(items_per_second=1))
        for listener in configuration._listeners:
            listener()
        await put(north)
        for _ in range(10):
            with pytest.raises(Failed) as caught:
                await put(north)
            assert caught.value.code == "slow_down"


FULL = event(b"x" * 950)
"""Its id is that of its envelope, too."""


async def append_to_nothing(north: Desk) -> object:
    return await north.append(uuid.uuid4(), uuid.uuid4(), 0, [b"a" * 20])


async def put_a_taken_event(north: Desk) -> object:
    return await north.put(uuid.uuid4(), event(b"a" * 20)._replace(event_id=FULL.event_id))


async def put_a_taken_envelope(north: Desk) -> object:
    return await north.put(FULL.event_id, event(b"a" * 20))


async def put_a_taken_envelope_in_a_group(north: Desk) -> object:
    data = pack_items([b"a" * 20])
    entry: Value = [FULL.event_id.bytes, uuid.uuid4().bytes, "notes", 1, data, None, None]
    return await north.front.put_group([north.emitter_id], [entry])


async def put_nothing_that_lasts(north: Desk) -> object:
    with Faults(north.journal._engine).before_commit():
        return await north.put(uuid.uuid4(), event(b"a" * 20))


@pytest.mark.parametrize(
    "send",
    [
        append_to_nothing,
        put_a_taken_event,
        put_a_taken_envelope,
        put_a_taken_envelope_in_a_group,
        put_nothing_that_lasts,
    ],
)
async def test_items_that_are_not_stored_take_no_space(
    journal: Journal, configuration: Configuration, replies: ReplyRequests, send: Callable[[Desk], Awaitable[object]]
) -> None:
    """Only the journal can tell that they can't be stored, or it fails."""
    async with nearly_full(journal, configuration, replies, FULL) as north:
        for _ in range(10):
            with suppress(Refused, JournalError):
                await send(north)
        await put_alone(north)
