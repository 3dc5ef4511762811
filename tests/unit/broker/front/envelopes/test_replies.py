"""Immediate replies as the front awaits them; the back is played by the test."""

import asyncio
import uuid
from typing import Any

import pytest

from tests.support.journal import Scribe
from tests.unit.broker.front.conftest import Desk, Rings
from xbus.broker.front.envelopes.checks import NewEvent
from xbus.broker.front.envelopes.replies import ReplyRequests
from xbus.broker.front.envelopes.state import EndedEvent
from xbus.broker.front.front import Front
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.replies import read_asks
from xbus.broker.journal.writes import MoveReply
from xbus.errors import Failed, Refused
from xbus.rpc.codec import pack, pack_items
from xbus.rpc.deferred import awaited
from xbus.states import EnvelopeState, ReplyState


class Back:
    """Answers what is asked for."""

    def __init__(self, journal: Journal, rings: Rings, role_id: int) -> None:
        self._journal = journal
        self._rings = rings
        self._role_id = role_id

    async def asked(self, *event_ids: uuid.UUID) -> None:
        """Wait until these events are asked about, and no others."""
        while {ask.event.event_id for ask in await self._journal.read(read_asks)} != set(event_ids):
            await asyncio.sleep(0)

    async def reply(self, envelope_id: uuid.UUID, event_id: uuid.UUID, value: Any) -> None:
        await self._move(MoveReply(event_id, envelope_id, ReplyState.HELD, self._role_id, pack(value)))

    async def fail(self, envelope_id: uuid.UUID, event_id: uuid.UUID, code: str) -> None:
        await self._move(MoveReply(event_id, envelope_id, ReplyState.FAILED, code=code, cause="because"))

    async def _move(self, move: MoveReply) -> None:
        await self.asked(move.event_id)
        await self._journal.write(move)
        self._rings.back.set()


@pytest.fixture
async def back(journal: Journal, rings: Rings) -> Back:
    return Back(journal, rings, (await Scribe.of(journal)).role_id())


async def wish(north: Desk, *items: bytes) -> tuple[uuid.UUID, uuid.UUID]:
    envelope_id = await north.start_envelope()
    event_id = await north.start_event(envelope_id, type_name="wishes")
    if items:
        await north.append(envelope_id, event_id, 0, items)
    return envelope_id, event_id


def end_soon(north: Desk, envelope_id: uuid.UUID, event_id: uuid.UUID) -> "asyncio.Future[EndedEvent]":
    async def answer() -> EndedEvent:
        return await awaited(north.front.end_event(north.emitter_id, envelope_id, event_id, None))

    return asyncio.ensure_future(answer())


async def test_the_end_of_the_event_waits_for_the_reply(north: Desk, back: Back, rings: Rings) -> None:
    envelope_id, event_id = await wish(north, b"a", b"b")
    ending = end_soon(north, envelope_id, event_id)
    await back.asked(event_id)
    assert not ending.done()
    assert rings.count == 1
    await back.reply(envelope_id, event_id, {"granted": True})
    assert await ending == EndedEvent(2, pack({"granted": True}))
    assert await end_soon(north, envelope_id, event_id) == EndedEvent(2, pack({"granted": True}))
    await north.seal(envelope_id)
    assert await end_soon(north, envelope_id, event_id) == EndedEvent(2, pack({"granted": True}))


async def test_a_repeat_waits_for_the_same_reply(north: Desk, back: Back) -> None:
    envelope_id, event_id = await wish(north)
    endings = [end_soon(north, envelope_id, event_id) for _ in range(3)]
    await back.reply(envelope_id, event_id, 1)
    assert await asyncio.gather(*endings) == [EndedEvent(0, pack(1))] * 3


async def test_no_items_while_it_waits(north: Desk, back: Back) -> None:
    envelope_id, event_id = await wish(north, b"a")
    ending = end_soon(north, envelope_id, event_id)
    await back.asked(event_id)
    with pytest.raises(Refused) as caught:
        await north.append(envelope_id, event_id, 1, [b"b"])
    assert caught.value.code == "event_closed"
    await back.reply(envelope_id, event_id, None)
    assert await ending == EndedEvent(1, pack(None))


async def test_a_seal_sent_ahead_waits_behind(north: Desk, back: Back) -> None:
    envelope_id, event_id = await wish(north)
    ending = end_soon(north, envelope_id, event_id)
    await back.asked(event_id)
    sealing = asyncio.ensure_future(north.seal(envelope_id, 1))
    await asyncio.sleep(0)
    assert not sealing.done()
    await back.reply(envelope_id, event_id, "yes")
    await ending
    assert (await sealing).events == 1


async def test_without_a_reply_there_is_no_seal(north: Desk, back: Back) -> None:
    envelope_id, event_id = await wish(north)
    ending = end_soon(north, envelope_id, event_id)
    await back.asked(event_id)
    sealing = asyncio.ensure_future(north.seal(envelope_id))
    await back.fail(envelope_id, event_id, "reply_refused")
    with pytest.raises(Refused):
        await ending
    with pytest.raises(Refused) as caught:
        await sealing
    assert caught.value.code == "event_open"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("reply_ambiguous", Refused),
        ("reply_unsupported", Refused),
        ("reply_refused", Refused),
        ("reply_failed", Failed),
        ("reply_timed_out", Failed),
    ],
)
async def test_a_failure_has_its_code_and_may_be_asked_again(
    north: Desk, back: Back, code: str, kind: type[Refused | Failed]
) -> None:
    envelope_id, event_id = await wish(north)
    ending = end_soon(north, envelope_id, event_id)
    await back.fail(envelope_id, event_id, code)
    with pytest.raises(kind) as caught:
        await ending
    assert (caught.value.code, caught.value.cause) == (code, "because")
    assert caught.value.next_step
    await north.append(envelope_id, event_id, 0, [b"one more"])
    ending = end_soon(north, envelope_id, event_id)
    await back.reply(envelope_id, event_id, "better")
    assert await ending == EndedEvent(1, pack("better"))


async def test_a_back_that_is_away_is_not_waited_for_for_ever(north: Desk, replies: ReplyRequests) -> None:
    replies._seconds = -1
    envelope_id, event_id = await wish(north)
    with pytest.raises(Failed) as caught:
        await end_soon(north, envelope_id, event_id)
    assert caught.value.code == "reply_timed_out"


async def test_who_waits_is_told_when_the_broker_stops(north: Desk, back: Back, replies: ReplyRequests) -> None:
    envelope_id, event_id = await wish(north)
    ending = end_soon(north, envelope_id, event_id)
    await back.asked(event_id)
    replies.give_up()
    with pytest.raises(Failed) as caught:
        await ending
    assert caught.value.code == "call_cancelled"


async def test_a_cancel_while_it_waits(north: Desk, back: Back) -> None:
    envelope_id, event_id = await wish(north)
    ending = end_soon(north, envelope_id, event_id)
    await back.asked(event_id)
    assert await north.cancel(envelope_id)
    await back.reply(envelope_id, event_id, "too late")
    with pytest.raises(Refused) as caught:
        await ending
    assert caught.value.code == "envelope_closed"
    stored = await north.stored(envelope_id)
    assert stored is not None
    assert stored.state is EnvelopeState.CANCELLED


async def test_a_reply_from_before_a_restart_is_found(north: Desk, back: Back, front: Front) -> None:
    envelope_id, event_id = await wish(north)
    ending = end_soon(north, envelope_id, event_id)
    await back.reply(envelope_id, event_id, "kept")
    await ending
    front._envelopes._open.clear()
    assert await end_soon(north, envelope_id, event_id) == EndedEvent(0, pack("kept"))
    await north.seal(envelope_id)


async def test_other_types_wait_for_nobody(north: Desk, rings: Rings) -> None:
    envelope_id = await north.start_envelope()
    event_id = await north.start_event(envelope_id)
    assert await end_soon(north, envelope_id, event_id) == EndedEvent(0)
    assert await end_soon(north, envelope_id, event_id) == EndedEvent(0)
    assert rings.count == 0


async def test_a_whole_envelope_in_one_call_can_not_be_answered(north: Desk) -> None:
    envelope_id = uuid.uuid4()
    event = NewEvent(uuid.uuid4(), "wishes", 1, pack_items([b"a"]))
    with pytest.raises(Refused) as caught:
        await north.put(envelope_id, event)
    assert caught.value.code == "reply_wanted"
    assert await north.stored(envelope_id) is None
