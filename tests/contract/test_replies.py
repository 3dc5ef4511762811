"""Immediate replies in the journal."""

import uuid
from datetime import timedelta

import pytest

from tests.support.journal import NOW, Scribe
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.replies import StoredReply, read_asks, read_cancelled, read_held_replies, read_replies
from xbus.broker.journal.writes import AskReply, CallOffAsks, Cancel, MoveReply
from xbus.errors import JournalError
from xbus.states import ReplyState

LATER = NOW + timedelta(seconds=30)


@pytest.fixture
async def asked(journal: Journal, scribe: Scribe) -> tuple[uuid.UUID, uuid.UUID]:
    """An envelope with an event of three items whose emitter waits: the ids of both."""
    envelope_id, _ = scribe.start_envelope()
    event_id, _ = scribe.start_event(envelope_id, type_name="wishes")
    scribe.append(envelope_id, event_id, 0, [b"1", b"2"])
    scribe.append(envelope_id, event_id, 2, [b"3"])
    await journal.write(AskReply(event_id, envelope_id, LATER))
    return envelope_id, event_id


async def reply_to(journal: Journal, event_id: uuid.UUID) -> StoredReply:
    return (await journal.read(read_replies, [event_id]))[event_id]


async def test_an_ask_is_found_with_what_the_event_holds(
    journal: Journal, scribe: Scribe, asked: tuple[uuid.UUID, uuid.UUID]
) -> None:
    envelope_id, event_id = asked
    (ask,) = await journal.read(read_asks)
    assert (ask.envelope_id, ask.event.event_id, ask.event.items) == (envelope_id, event_id, 3)
    assert (ask.event.type_name, ask.until, ask.cancelled) == ("wishes", LATER, False)

    await journal.write(Cancel(envelope_id, NOW, "its emitter gave up"))
    (ask,) = await journal.read(read_asks)
    assert ask.cancelled
    assert await journal.read(read_cancelled, [envelope_id, uuid.uuid4()]) == {envelope_id}


async def test_an_event_without_items_may_be_asked_about(journal: Journal, scribe: Scribe) -> None:
    envelope_id, _ = scribe.start_envelope()
    event_id, _ = scribe.start_event(envelope_id, type_name="wishes")
    await journal.write(AskReply(event_id, envelope_id, LATER))
    (ask,) = await journal.read(read_asks)
    assert ask.event.items == 0


async def test_a_reply_is_held_and_then_given(
    journal: Journal, scribe: Scribe, asked: tuple[uuid.UUID, uuid.UUID]
) -> None:
    envelope_id, event_id = asked
    await journal.write(MoveReply(event_id, envelope_id, ReplyState.HELD, scribe.role_id(), b"\x01"))
    assert await journal.read(read_asks) == []
    (held,) = await journal.read(read_held_replies)
    assert (held.event_id, held.envelope_id, held.role_id, held.data) == (
        event_id,
        envelope_id,
        scribe.role_id(),
        b"\x01",
    )
    await journal.write(MoveReply(event_id, envelope_id, ReplyState.GIVEN))
    assert await journal.read(read_held_replies) == []
    given = await reply_to(journal, event_id)
    assert (given.state, given.data, given.role_id) == (ReplyState.GIVEN, b"\x01", scribe.role_id())


async def test_after_a_failure_it_is_asked_again(journal: Journal, asked: tuple[uuid.UUID, uuid.UUID]) -> None:
    envelope_id, event_id = asked
    await journal.write(MoveReply(event_id, envelope_id, ReplyState.FAILED, code="reply_refused", cause="no"))
    failed = await reply_to(journal, event_id)
    assert (failed.state, failed.data, failed.code, failed.cause) == (ReplyState.FAILED, None, "reply_refused", "no")

    await journal.write(AskReply(event_id, envelope_id, LATER + timedelta(seconds=1)))
    again = await reply_to(journal, event_id)
    assert (again.state, again.code, again.cause) == (ReplyState.ASKED, None, None)
    assert again.until == LATER + timedelta(seconds=1)


@pytest.mark.parametrize("last", [ReplyState.HELD, ReplyState.GIVEN])
async def test_the_first_reply_stands(
    journal: Journal, scribe: Scribe, asked: tuple[uuid.UUID, uuid.UUID], last: ReplyState
) -> None:
    envelope_id, event_id = asked
    await journal.write(MoveReply(event_id, envelope_id, ReplyState.HELD, scribe.role_id(), b"\x01"))
    if last is ReplyState.GIVEN:
        await journal.write(MoveReply(event_id, envelope_id, ReplyState.GIVEN))
    for write in (
        AskReply(event_id, envelope_id, LATER),
        MoveReply(event_id, envelope_id, ReplyState.HELD, scribe.role_id(), b"\x02"),
        MoveReply(event_id, envelope_id, ReplyState.FAILED, code="reply_timed_out", cause="too late"),
    ):
        with pytest.raises(JournalError):
            await journal.write(write)
    assert (await reply_to(journal, event_id)).data == b"\x01"


async def test_asks_are_called_off_and_replies_are_not(
    journal: Journal, scribe: Scribe, asked: tuple[uuid.UUID, uuid.UUID]
) -> None:
    envelope_id, event_id = asked
    answered, _ = scribe.start_event(envelope_id, 2, type_name="wishes")
    await journal.write(AskReply(answered, envelope_id, LATER))
    await journal.write(MoveReply(answered, envelope_id, ReplyState.HELD, scribe.role_id(), b"\x01"))
    await journal.write(CallOffAsks("reply_failed", "nobody waits"))
    assert await journal.read(read_asks) == []
    called_off = await reply_to(journal, event_id)
    assert (called_off.state, called_off.code, called_off.cause) == (ReplyState.FAILED, "reply_failed", "nobody waits")
    assert (await reply_to(journal, answered)).state is ReplyState.HELD
