"""The emitter's core against a front double over real sockets: what is sent, repeated, refused and given up."""

import asyncio
import logging
import uuid
from typing import Any

import pytest

from tests.integration.emitter.front_double import SILENCE, FrontDouble, retried_id
from tests.support.waiting import eventually
from xbus.clock import SystemClock
from xbus.emitter import AsyncEmitter, AsyncEvent
from xbus.errors import CallError, ConnectionLost, Failed, Refused, TimedOut
from xbus.ids import keyed_envelope_id, numbered_event_id
from xbus.rpc.codec import pack, unpack


def emitter(front: FrontDouble, **options: Any) -> AsyncEmitter:
    return AsyncEmitter(front.address, "test_emitter", "password", **options)


SLOW_DOWN = Failed("too fast", code="slow_down", details={"seconds": 0.01})


class HurriedClock(SystemClock):
    """Has the time pass fast in which calls are made again, and not that in which they are answered."""

    def monotonic(self) -> float:
        return 100 * super().monotonic()


def items_of(front: FrontDouble) -> list[bytes]:
    (event,) = front.only().events.values()
    return event.items


async def send(front: FrontDouble, *items: object, **options: Any) -> Any:
    async with emitter(front, **options) as sender:
        async with sender.envelope() as envelope, envelope.event("test_event") as event:
            for item in items:
                await event.send(item)
        return envelope.receipt


async def test_many_items_arrive_as_sent(front: FrontDouble) -> None:
    items = [b"%d" % number for number in range(2500)]
    async with emitter(front) as sender:
        async with sender.envelope() as envelope, envelope.event("test_event") as event:
            await event.send_all(items)
    assert items_of(front) == items


async def send_for_ever(event: AsyncEvent) -> None:
    while True:
        await event.send(b"x")
        await asyncio.sleep(0)


async def test_an_envelope_arrives_as_sent_and_is_receipted(front: FrontDouble) -> None:
    receipt = await send(front, b"raw", {"client": 1}, "text", [1, 2], bytearray(b"array"))
    raw, client, text, numbers, array = items_of(front)
    assert (raw, array) == (b"raw", b"array")
    assert [unpack(item) for item in (client, text, numbers)] == [{"client": 1}, "text", [1, 2]]
    assert (receipt.envelope_id, receipt.position, receipt.events, receipt.items, receipt.hash) == (
        *front.envelopes,
        1,
        1,
        5,
        b"hash",
    )
    assert front.calls[-1] == "logout"
    assert not front.tokens


async def test_batches_go_when_full_by_items_or_by_bytes(front: FrontDouble) -> None:
    await send(front, *[b"x"] * 7, batch_items=3, linger_seconds=60)
    await send(front, *[b"x" * 400] * 5, batch_bytes=1000, linger_seconds=60)
    assert front.batches == [3, 3, 1, 3, 2]


async def test_a_batch_is_never_larger_than_the_front_takes(front: FrontDouble) -> None:
    await send(front, *[b"x" * 900] * 12, batch_bytes=1_000_000, linger_seconds=60)
    assert front.batches == [5, 5, 2]


async def test_a_waiting_item_goes_when_its_time_is_over(front: FrontDouble) -> None:
    async with emitter(front, linger_seconds=0.01) as sender, sender.envelope() as envelope:
        async with envelope.event("test_event") as event:
            await event.send(b"alone")
            await eventually(lambda: front.batches == [1], "the item arrives while the event is open")
            await event.send(b"another")
            await eventually(lambda: front.batches == [1, 1], "so does the next")


async def test_a_full_window_makes_send_wait(front: FrontDouble) -> None:
    answered = asyncio.get_running_loop().create_future()
    front.fail_next("send_items", answered)
    async with emitter(front, batch_items=1, window_bytes=1) as sender:
        async with sender.envelope() as envelope, envelope.event("test_event") as event:
            await event.send(b"fills the window")
            waiting = asyncio.create_task(event.send(b"waits"))
            await sender.consumers()
            assert not waiting.done(), "other calls go and are answered meanwhile"
            answered.set_result(None)
            await waiting
        assert items_of(front) == [b"fills the window", b"waits"]


async def test_events_of_one_envelope_keep_apart(front: FrontDouble) -> None:
    async with emitter(front) as sender, sender.envelope() as envelope:
        async with envelope.event("test_event") as one, envelope.event("test_event", estimate=1) as two:
            await one.send(b"one")
            await two.send(b"two")
    assert sorted(event.items for event in front.only().events.values()) == [[b"one"], [b"two"]]


async def test_a_small_envelope_goes_in_one_call(front: FrontDouble) -> None:
    async with emitter(front) as sender:
        receipt = await sender.put("test_event", [b"one", b"two"])
        empty = await sender.put("test_event", [])
    assert (receipt.items, empty.items) == (2, 0)
    assert front.calls == ["login", "put_envelopes", "put_envelopes", "logout"]


async def test_a_large_put_goes_in_batches(front: FrontDouble) -> None:
    async with emitter(front) as sender:
        receipt = await sender.put("test_event", [b"x" * 900] * 12)
    assert receipt.items == 12
    assert "put_envelopes" not in front.calls


async def test_an_ordering_key_goes_with_what_begins_the_envelope(front: FrontDouble) -> None:
    async with emitter(front) as sender:
        async with sender.envelope(ordering_key="client 7"):
            pass
        await sender.put("test_event", [b"one"], ordering_key="client 7")
        await sender.put("test_event", [b"x" * 900] * 12, ordering_key="client 7")
    assert [envelope.options for envelope in front.envelopes.values()] == [{"ordering_key": "client 7"}] * 3


async def test_an_envelope_with_a_key_has_the_id_that_the_front_makes_of_it(front: FrontDouble) -> None:
    receipts = []
    for _ in range(2):
        async with emitter(front) as sender:
            async with sender.envelope(key="17") as envelope, envelope.event("test_event") as event:
                await event.send(b"one")
            receipts.append(envelope.receipt)
    assert envelope.id == str(keyed_envelope_id(1, "17"))
    assert event.id == str(numbered_event_id(uuid.UUID(envelope.id), 1))
    assert receipts[0] == receipts[1]
    assert items_of(front) == [b"one"]


async def test_a_put_with_a_key_is_one_envelope(front: FrontDouble) -> None:
    async with emitter(front) as sender:
        receipts = [await sender.put("test_event", [b"one"], key="17", ordering_key="7") for _ in range(2)]
    assert receipts[0] == receipts[1]
    assert front.only().options == {"key": "17", "ordering_key": "7"}


@pytest.mark.parametrize("code", ["key_reused", "session_superseded"])
async def test_what_is_not_its_own_is_not_cancelled(front: FrontDouble, code: str) -> None:
    for call in ("put 17", "end_event"):
        front.fail_next(call, Refused("not yours", code=code))
    async with emitter(front) as sender:
        with pytest.raises(Refused, match="not yours"):
            await sender.put("test_event", [b"one"], key="17")
    assert "cancel_envelope" not in front.calls


async def test_a_key_that_can_not_be_used_is_told_at_the_beginning(front: FrontDouble) -> None:
    front.fail_next("start_envelope", Refused("too long", code="wrong_arguments"))
    async with emitter(front) as sender:
        with pytest.raises(Refused, match="too long"):
            async with sender.envelope(key="17"):
                pytest.fail("it did not begin")


async def test_a_new_session_claims_its_envelope_before_it_goes_on(front: FrontDouble) -> None:
    async with emitter(front, batch_items=1) as sender:
        async with sender.envelope(key="17") as envelope, envelope.event("test_event") as event:
            await event.send(b"one")
            await event.flush()
            front.tokens.clear()
            await sender.consumers()  # finds out, and logs in again
            await event.send(b"two")
        assert envelope.receipt.items == 2
    assert (front.logins, items_of(front)) == (2, [b"one", b"two"])


async def test_the_reply_of_an_event_is_there_after_its_end(front: FrontDouble) -> None:
    async with emitter(front) as sender, sender.envelope() as envelope:
        async with envelope.event("test_event") as event:
            with pytest.raises(Refused, match="has not ended"):
                await event.reply()
        assert await event.reply() == "reply to 0"


async def test_a_question_is_one_envelope_that_is_sealed_behind_the_reply(front: FrontDouble) -> None:
    async with emitter(front) as sender:
        assert await sender.ask("test_event", {"article": 1}, b"raw") == "reply to 2"
    assert items_of(front) == [pack({"article": 1}), b"raw"]
    assert front.only().state == "sealed"
    assert front.calls[-3:] == ["end_event", "end_envelope", "logout"]


NO_REPLIES = [
    Refused("there is no article 1", "correct it", code="reply_refused"),
    Failed("the consumer was lost", "ask again", code="reply_failed"),
    Failed("no reply within 30 s", "ask again", code="reply_timed_out"),
]


@pytest.mark.parametrize("error", NO_REPLIES, ids=lambda error: error.code)
async def test_that_no_reply_comes_is_told_and_not_asked_again(front: FrontDouble, error: CallError) -> None:
    front.fail_next("end_event", error)
    async with emitter(front) as sender:
        with pytest.raises(type(error), match=error.cause) as told:
            await sender.ask("test_event", b"question")
        assert (told.value.code, told.value.next_step) == (error.code, error.next_step)
        assert (front.calls.count("end_event"), front.only().state) == (1, "cancelled")
        assert await sender.ask("test_event") == "reply to 0"


@pytest.mark.parametrize("error", NO_REPLIES, ids=lambda error: error.code)
async def test_who_does_not_ask_for_the_reply_learns_at_the_end_that_none_came(
    front: FrontDouble, error: CallError
) -> None:
    """And not that the event is open, which is all that the end of the envelope is told."""
    front.fail_next("end_event", error)
    async with emitter(front) as sender:
        with pytest.raises(type(error)) as told:
            await send_through(sender, b"question")
        assert (told.value.code, front.only().state) == (error.code, "cancelled")
    assert front.calls.count("end_envelope") == 1


async def send_through(sender: AsyncEmitter, *items: object) -> None:
    async with sender.envelope() as envelope, envelope.event("test_event") as event:
        for item in items:
            await event.send(item)


async def test_the_end_of_the_envelope_waits_for_the_reply_too(front: FrontDouble) -> None:
    reply = asyncio.get_running_loop().create_future()
    front.replies.append(reply)
    # So long, because a call before these that is not answered in time has them made again, too.
    answer_seconds = 2.0
    async with emitter(front, answer_seconds=answer_seconds) as sender:
        sending = asyncio.create_task(send_through(sender, b"question"))
        await eventually(lambda: "end_envelope" in front.calls, "the end of the envelope is sent ahead")
        asyncio.get_running_loop().call_later(1.25 * answer_seconds, reply.set_result, "late")
        await sending
    assert (front.only().state, front.calls.count("end_event"), front.calls.count("end_envelope")) == ("sealed", 1, 1)


async def test_a_connection_that_is_lost_before_the_reply_is_survived(front: FrontDouble) -> None:
    front.replies.append(asyncio.get_running_loop().create_future())
    async with emitter(front) as sender:
        sending = asyncio.create_task(send_through(sender, b"question"))
        await eventually(lambda: "end_envelope" in front.calls, "the end of the envelope is sent ahead")
        front.restart()
        await sending
    assert (front.only().state, items_of(front)) == ("sealed", [b"question"])


async def test_an_exception_cancels_the_envelope_and_comes_out(front: FrontDouble) -> None:
    async with emitter(front) as sender:
        with pytest.raises(KeyError):
            async with sender.envelope() as envelope, envelope.event("test_event") as event:
                await event.send(b"never seen")
                raise KeyError
        assert front.only().state == "cancelled"
        with pytest.raises(Refused, match="not sealed"):
            _ = envelope.receipt


async def test_a_refusal_comes_out_and_cancels(front: FrontDouble) -> None:
    async with emitter(front) as sender:
        with pytest.raises(Refused) as refused:
            async with sender.envelope() as envelope, envelope.event("no_such_event") as event:
                await event.send(b"x")
        assert refused.value.code == "unknown_type"
        assert front.only().state == "cancelled"


async def test_a_refusal_of_an_earlier_batch_comes_out_of_a_later_send(front: FrontDouble) -> None:
    front.fail_next("send_items", Refused("too much", "split it", code="envelope_too_large"))
    async with emitter(front, batch_items=1) as sender:
        with pytest.raises(Refused, match="too much"):
            async with sender.envelope() as envelope, envelope.event("test_event") as event:
                await send_for_ever(event)


async def test_an_item_too_large_is_refused_before_it_is_sent(front: FrontDouble) -> None:
    async with emitter(front) as sender:
        with pytest.raises(Refused) as refused:
            async with sender.envelope() as envelope, envelope.event("test_event") as event:
                await event.send(b"x" * 1001)
        assert refused.value.code == "item_too_large"
        with pytest.raises(Refused, match="larger"):
            await sender.put("test_event", [b"x" * 1001])


@pytest.mark.parametrize("item", [{"name": "Ada"}, "Ada", b"Ada"])
async def test_one_item_in_the_place_of_several_is_refused(front: FrontDouble, item: Any) -> None:
    async with emitter(front) as sender:
        with pytest.raises(Refused, match=r"\[item\]") as refused:
            await sender.put("test_event", item)
    assert refused.value.code == "bad_items"
    assert not front.envelopes


async def test_an_item_that_msgpack_can_not_write_is_refused(front: FrontDouble) -> None:
    with pytest.raises(Refused) as refused:
        await send(front, object())
    assert refused.value.code == "bad_items"


async def test_wrong_passwords_are_refused(front: FrontDouble) -> None:
    with pytest.raises(Refused) as refused:
        async with AsyncEmitter(front.address, "test_emitter", "wrong"):
            pass
    assert refused.value.code == "login_refused"


async def test_nothing_listens(front: FrontDouble) -> None:
    front.stop()
    with pytest.raises(TimedOut, match="each try within") as timed_out:
        async with emitter(front, retry_seconds=0.2):
            pass
    assert timed_out.value.next_step


@pytest.mark.parametrize(
    "verb", ["start_envelope", "start_event", "send_items", "end_event", "end_envelope", "put_envelopes"]
)
@pytest.mark.parametrize("fault", [SILENCE, Failed("the journal is away", code="journal_unavailable"), SLOW_DOWN])
async def test_a_call_without_answer_is_made_again(front: FrontDouble, verb: str, fault: Any) -> None:
    front.fail_next(verb, fault)
    async with emitter(front, answer_seconds=0.1, reply_seconds=0.1, batch_items=2) as sender:
        if verb == "put_envelopes":
            await sender.put("test_event", [b"0", b"1", b"2"])
        else:
            async with sender.envelope() as envelope, envelope.event("test_event") as event:
                for number in range(3):
                    await event.send(str(number))
    assert front.calls.count(verb) >= 2
    assert front.only().state == "sealed"
    assert len(items_of(front)) == 3


@pytest.mark.parametrize("verb", ["start_envelope", "start_event", "send_items", "end_event", "end_envelope"])
async def test_a_front_that_restarts_at_any_call_loses_nothing(front: FrontDouble, verb: str) -> None:
    front.after[verb] = front.restart
    receipt = await send(front, b"0", b"1", b"2", batch_items=2)
    assert (receipt.items, items_of(front)) == (3, [b"0", b"1", b"2"])
    assert front.logins == 2


async def test_an_opening_that_was_answered_but_forgotten_is_made_again(front: FrontDouble) -> None:
    async with emitter(front, batch_items=1) as sender:
        async with sender.envelope() as envelope, envelope.event("test_event") as event:
            await sender.put("test_event", [])  # answered behind the openings
            front.envelopes.clear()
            front.restart()
            await event.send(b"0")
        assert envelope.receipt.items == 1


async def test_who_is_told_to_slow_down_sends_nothing_in_vain(front: FrontDouble) -> None:
    batches = 40
    # The first time all of them are refused, then twice what is sent again.
    front.fail_next("send_items", *[SLOW_DOWN] * (batches + 2))
    receipt = await send(front, *[b"%d" % number for number in range(batches)], batch_items=1)
    assert receipt.items == batches
    assert items_of(front) == [b"%d" % number for number in range(batches)]
    assert front.calls.count("send_items") < 2.5 * batches


async def test_who_is_told_to_wait_for_longer_than_it_insists_fails_at_once(front: FrontDouble) -> None:
    front.fail_next("send_items", Failed("too fast", code="slow_down", details={"seconds": 1000}))
    async with emitter(front, retry_seconds=900) as sender:
        with pytest.raises(Failed, match="too fast") as failed:
            async with sender.envelope() as envelope, envelope.event("test_event") as event:
                await event.send(b"0")
        assert (failed.value.code, failed.value.details) == ("slow_down", {"seconds": 1000})


async def test_a_session_that_expired_is_made_anew(front: FrontDouble) -> None:
    async with emitter(front) as sender:
        front.tokens.clear()
        assert (await sender.put("test_event", [b"0"])).items == 1
    assert front.logins == 2


async def test_an_idle_session_is_renewed(front: FrontDouble) -> None:
    front.limits["session_seconds"] = 0.03  # type: ignore[assignment]
    async with emitter(front):
        await eventually(lambda: front.calls.count("renew") >= 2, "the session is renewed")


async def test_it_gives_up_after_retry_seconds(front: FrontDouble, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    front.fail_next("send_items", *[Failed("the disk is full", code="journal_unavailable")] * 100)
    async with emitter(front, batch_items=1, window_bytes=1, clock=HurriedClock()) as sender:
        with pytest.raises(Failed) as failed:
            async with sender.envelope() as envelope, envelope.event("test_event") as event:
                await send_for_ever(event)
        assert failed.value.code == "journal_unavailable"
        assert "the disk is full" in failed.value.cause
        assert "each try within" in failed.value.cause
        assert front.only().state == "cancelled"
    assert "test_emitter" not in caplog.text
    assert "password" not in caplog.text


async def test_a_front_that_stays_away_ends_in_a_lost_connection(front: FrontDouble) -> None:
    with pytest.raises((ConnectionLost, TimedOut), match="each try within"):
        async with emitter(front, batch_items=1, retry_seconds=0.2, answer_seconds=0.1) as sender:
            async with sender.envelope() as envelope, envelope.event("test_event") as event:
                front.stop()
                await event.send(b"0")


async def test_envelopes_at_the_same_time(front: FrontDouble) -> None:
    async with emitter(front, batch_items=2) as sender:

        async def one(number: int) -> int:
            async with sender.envelope() as envelope, envelope.event("test_event") as event:
                for _ in range(number):
                    await event.send(b"x")
                    await asyncio.sleep(0)
            return envelope.receipt.items

        assert await asyncio.gather(*map(one, range(20))) == list(range(20))


async def test_use_outside_of_its_blocks_is_refused(front: FrontDouble) -> None:
    sender = emitter(front)
    with pytest.raises(Refused, match="not open"):
        sender.envelope()
    async with sender, sender.envelope() as envelope:
        async with envelope.event("test_event") as event:
            pass
        with pytest.raises(Refused, match="not open"):
            await event.send(b"late")


async def test_what_got_no_answer_is_asked_again_and_done_once(front: FrontDouble) -> None:
    front.fail_next("replay_envelope", SILENCE)
    front.fail_next("retry_event", Failed("the database is away", code="journal_unavailable"))
    async with emitter(front, answer_seconds=0.1) as sender:
        receipt = await sender.put("test_event", [b"one"])
        front.failed.update(front.only().events)
        (event_id,) = front.failed
        new_id = await sender.replay(receipt.envelope_id)
        assert await sender.retry(event_id) == retried_id(event_id)
    assert min(front.calls.count("replay_envelope"), front.calls.count("retry_event")) >= 2
    assert front.replays == {new_id: receipt.envelope_id}


async def test_that_nothing_comes_again_is_told(front: FrontDouble) -> None:
    front.fail_next("retry_event", Refused("it is not parked", code="nothing_to_retry"))
    front.fail_next("replay_envelope", Refused("there is none", code="envelope_unknown"))
    async with emitter(front) as sender:
        for call, code in ((sender.retry("x"), "nothing_to_retry"), (sender.replay("x"), "envelope_unknown")):
            with pytest.raises(Refused) as caught:
                await call
            assert caught.value.code == code
        assert await sender.consumers() == [({"name": "store"}, {"clearing": [False, None]})]
