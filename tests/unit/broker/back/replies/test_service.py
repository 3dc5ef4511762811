"""Immediate replies, from the ask in the journal to the end of the envelope."""

import asyncio
import uuid
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.back import Broker, running
from tests.support.clock import StandingClock
from tests.support.recipients import NEW, OLD
from xbus import model
from xbus.broker.back import replies
from xbus.broker.back.recipients.abilities import Abilities
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.deliveries import read_due_deliveries
from xbus.broker.journal.log.replies import StoredReply, read_asks, read_replies
from xbus.broker.journal.writes import AskReply, Cancel, MoveReply
from xbus.errors import JournalUnavailable
from xbus.rpc.codec import unpack
from xbus.states import ReplyState

NOW = StandingClock().now()
WISHES = [True, ["wishes"]]


class Wish:
    """An envelope with one event whose emitter waits for a reply."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.envelope_id, _ = broker.scribe.start_envelope()
        self.events = 0

    async def ask(self, seconds: float = 30) -> uuid.UUID:
        self.events += 1
        event_id, _ = self.broker.scribe.start_event(self.envelope_id, self.events, "wishes")
        self.broker.scribe.append(self.envelope_id, event_id, 0, [b"a wish"])
        await self.ask_again(event_id, seconds)
        return event_id

    async def ask_again(self, event_id: uuid.UUID, seconds: float = 30) -> None:
        until = NOW + timedelta(seconds=seconds)
        await self.broker.journal.write(AskReply(event_id, self.envelope_id, until))
        self.broker.ring()

    async def answer(self, event_id: uuid.UUID) -> StoredReply:
        while True:
            reply = (await self.broker.journal.read(read_replies, [event_id]))[event_id]
            if reply.state is not ReplyState.ASKED:
                return reply
            await asyncio.sleep(0)

    async def become(self, event_id: uuid.UUID, state: ReplyState) -> None:
        while (await self.answer(event_id)).state is not state:
            await asyncio.sleep(0)

    async def seal(self, *event_ids: uuid.UUID) -> None:
        for event_id in event_ids:
            self.broker.scribe.end_event(self.envelope_id, event_id, 1)
        await self.broker.scribe.seal(self.envelope_id, len(event_ids), len(event_ids))
        self.broker.ring()

    async def cancel(self) -> None:
        await self.broker.journal.write(Cancel(self.envelope_id, NOW, "the test said so"))
        self.broker.ring()


def steps(kind: Abilities) -> list[str]:
    return ["xbus.take_event"] if kind.batches else ["start_event", "send_item", "end_event"]


def replying(kind: Abilities, reply: Any = "granted") -> dict[str, Any]:
    return {"xbus_take_event" if kind.batches else "end_event": [True, reply], "has_immediate_reply": WISHES}


async def replied(broker: Broker) -> tuple[Wish, uuid.UUID]:
    """An envelope that is open still, and its event, to which a consumer has replied."""
    await broker.register("names_1")
    await broker.register("store_1", **replying(NEW))
    wish = Wish(broker)
    event_id = await wish.ask()
    await wish.answer(event_id)
    return wish, event_id


@pytest.mark.parametrize("kind", [OLD, NEW])
async def test_it_is_asked_held_and_ended(journal: Journal, kind: Abilities) -> None:
    async with running(journal) as broker:
        await broker.register("names_1")
        await broker.register("store_1", kind, **replying(kind))
        wish = Wish(broker)
        event_id = await wish.ask()
        reply = await wish.answer(event_id)
        assert (reply.state, unpack(reply.data or b"")) == (ReplyState.HELD, "granted")
        assert broker.script.verbs("store_1")[3:] == steps(kind)
        await wish.seal(event_id)
        await wish.become(event_id, ReplyState.GIVEN)
        await broker.until(lambda: "end_envelope" in broker.script.verbs("store_1"))
        await broker.until_rows({})
        assert broker.script.verbs("store_1")[3:] == [*steps(kind), "end_envelope"]
        assert broker.script.verbs("names_1")[-2:] == ["xbus.take_event", "end_envelope"]
    assert await broker.cursor() == 1


async def test_two_events_of_one_envelope_come_one_after_the_other(journal: Journal) -> None:
    first_answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    answers = iter([first_answer, [True, "second"]])
    async with running(journal) as broker:
        await broker.register("names_1")
        await broker.register("store_1", has_immediate_reply=WISHES, xbus_take_event=lambda *_: next(answers))
        wish = Wish(broker)
        first, second = await wish.ask(), await wish.ask()
        await broker.until(lambda: "xbus.take_event" in broker.script.verbs("store_1"))
        assert broker.script.verbs("store_1").count("xbus.take_event") == 1
        first_answer.set_result([True, "first"])
        assert unpack((await wish.answer(first)).data or b"") == "first"
        assert unpack((await wish.answer(second)).data or b"") == "second"
        await wish.seal(first, second)
        await broker.until(lambda: "end_envelope" in broker.script.verbs("store_1"))
    assert broker.script.verbs("store_1")[3:] == ["xbus.take_event", "xbus.take_event", "end_envelope"]


async def test_what_is_held_goes_on_though_its_role_is_far_behind(journal: Journal) -> None:
    """The hold has the only slot, so those before it in the log can't go on before it has ended."""
    async with running(journal) as broker:
        wish, event_id = await replied(broker)
        for number in range(5):
            await broker.put(b"%d" % number)
        await wish.seal(event_id)
        await broker.until(lambda: len(broker.items("store_1")) == 6)
        await broker.until_rows({})
        assert broker.items("store_1") == [b"a wish", b"0", b"1", b"2", b"3", b"4"]
        assert "stop_envelope" not in broker.script.verbs("store_1")


async def test_a_cancelled_envelope_is_stopped_and_the_slot_is_free(journal: Journal) -> None:
    async with running(journal) as broker:
        wish, event_id = await replied(broker)
        await wish.cancel()
        await wish.become(event_id, ReplyState.GIVEN)
        await broker.put(b"next")
        await broker.until(lambda: broker.items("store_1") == [b"a wish", b"next"])
        assert broker.script.verbs("store_1")[3:5] == ["xbus.take_event", "stop_envelope"]


async def test_a_cancel_ends_the_wait_for_a_consumer(journal: Journal) -> None:
    async with running(journal) as broker:
        wish = Wish(broker)
        event_id = await wish.ask()
        await wish.cancel()
        reply = await wish.answer(event_id)
        assert (reply.state, reply.code) == (ReplyState.FAILED, "envelope_closed")


async def test_nobody_is_asked_after_the_time(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("names_1")
        await broker.register("store_1", **replying(NEW))
        wish = Wish(broker)
        event_id = await wish.ask(seconds=-1)
        assert (await wish.answer(event_id)).code == "reply_timed_out"
        assert "xbus.take_event" not in broker.script.verbs("store_1")


async def test_a_failure_stops_all_that_have_begun_and_may_be_asked_again(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("names_1")
        client = await broker.register(
            "store_1", has_immediate_reply=WISHES, xbus_take_event=[False, [[[0], "not this one"], [[], "nor any"]]]
        )
        wish = Wish(broker)
        event_id = await wish.ask()
        reply = await wish.answer(event_id)
        assert (reply.state, reply.code, reply.cause) == (
            ReplyState.FAILED,
            "reply_refused",
            "not this one; nor any",
        )
        for login in ("names_1", "store_1"):
            assert broker.script.verbs(login)[-1] == "stop_envelope"
        client.answers["xbus.take_event"] = [True, "well then"]
        await wish.ask_again(event_id)
        await wish.become(event_id, ReplyState.HELD)


@pytest.mark.parametrize(
    ("abilities", "others", "code"),
    [
        ({}, [], "reply_unsupported"),
        ({"has_immediate_reply": [True, ["notes"]]}, [], "reply_unsupported"),
        ({"has_immediate_reply": WISHES}, ["store_2"], "reply_ambiguous"),
    ],
)
async def test_who_may_not_reply(journal: Journal, abilities: dict[str, Any], others: list[str], code: str) -> None:
    async with running(journal) as broker:
        for login in ("names_1", "store_1", *others):
            await broker.register(login, **(abilities if login.startswith("store") else {}))
        wish = Wish(broker)
        assert (await wish.answer(await wish.ask())).code == code
        assert "xbus.take_event" not in broker.script.verbs("store_1")


async def test_a_consumer_that_is_lost_after_its_reply_gets_it_again_after_the_seal(journal: Journal) -> None:
    async with running(journal) as broker:
        wish, event_id = await replied(broker)
        await broker.leave("store_1")
        await wish.seal(event_id)
        seen = len(broker.script.verbs("store_1"))
        await broker.register("store_1", **replying(NEW, "another"))
        await broker.until(lambda: broker.items("store_1") == [b"a wish", b"a wish"])
        await wish.become(event_id, ReplyState.GIVEN)
        assert unpack((await wish.answer(event_id)).data or b"") == "granted"
        again = broker.script.verbs("store_1")[seen:]
        assert again.index("stop_envelope") < again.index("xbus.take_event"), "it may be the same process"


async def test_what_a_lost_consumer_holds_is_forgotten_though_its_envelope_is_cancelled(journal: Journal) -> None:
    async with running(journal) as broker:
        wish, event_id = await replied(broker)
        await broker.leave("store_1")
        await wish.cancel()
        seen = len(broker.script.verbs("store_1"))
        await broker.register("store_1", **replying(NEW))
        await wish.become(event_id, ReplyState.GIVEN)
        assert broker.script.verbs("store_1")[seen:].count("stop_envelope") == 1


async def test_an_ask_that_is_answered_while_asks_are_read_is_not_answered_again(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    async with running(journal) as broker:
        await broker.register("names_1")
        await broker.register("store_1", has_immediate_reply=WISHES, xbus_take_event=lambda *_: answer)
        wish = Wish(broker)
        event_id = await wish.ask()
        await broker.until(lambda: "xbus.take_event" in broker.script.verbs("store_1"))
        read = journal.read

        async def read_late(statement: Any, *args: Any) -> Any:
            found = await read(statement, *args)
            if statement is read_asks and not answer.done():
                answer.set_result([True, "granted"])
                while (await read(read_replies, [event_id]))[event_id].state is ReplyState.ASKED:
                    await asyncio.sleep(0)
                await asyncio.sleep(0.01)
            return found

        monkeypatch.setattr(journal, "read", read_late)
        broker.ring()
        await wish.become(event_id, ReplyState.HELD)
        await wish.seal(event_id)
        await broker.until(lambda: "end_envelope" in broker.script.verbs("store_1"))
        assert broker.script.verbs("store_1").count("xbus.take_event") == 1


async def test_a_crash_leaves_nothing_held(journal: Journal) -> None:
    async with running(journal, clean=False) as broker:
        await broker.register("names_1")
        await broker.register("store_1", **replying(NEW))
        wish = Wish(broker)
        event_id = await wish.ask()
        await wish.become(event_id, ReplyState.HELD)

    def prepared(broker: Broker) -> None:
        broker.prepare("names_1")
        broker.prepare("store_1", **replying(NEW))

    async with running(journal, prepared=prepared) as again:
        wish.broker = again
        await wish.become(event_id, ReplyState.GIVEN)
        await again.until(lambda: "stop_envelope" in again.script.verbs("store_1"))
        await wish.seal(event_id)
        await again.until(lambda: again.items("store_1") == [b"a wish"])
        await again.until_rows({})


async def test_a_clean_stop_has_what_is_held_forgotten(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("names_1")
        await broker.register("store_1", **replying(NEW))
        wish = Wish(broker)
        await wish.answer(await wish.ask())
    assert broker.script.verbs("store_1")[-1] == "stop_envelope"


async def test_an_ask_that_a_crash_left_is_answered_by_the_next_run(journal: Journal) -> None:
    async with running(journal, clean=False) as broker:
        wish = Wish(broker)
        event_id = await wish.ask()
    async with running(journal) as again:
        wish.broker = again
        await again.register("names_1")
        await again.register("store_1", **replying(NEW))
        await wish.become(event_id, ReplyState.HELD)
        # It may have been asked before the crash.
        # The look at what the crash left may have it stopped once more.
        *stops, taken = again.script.verbs("store_1")[3:]
        assert taken == "xbus.take_event"
        assert set(stops) == {"stop_envelope"}


async def test_several_slots_are_several_replies_at_once(journal: Journal) -> None:
    kind = replace(NEW, envelopes=2)
    async with running(journal) as broker:
        await broker.register("names_1")
        await broker.register("store_1", kind, **replying(kind))
        first, second = Wish(broker), Wish(broker)
        asked = [await first.ask(), await second.ask()]
        await first.become(asked[0], ReplyState.HELD)
        await second.become(asked[1], ReplyState.HELD)
        await second.seal(asked[1])
        await first.seal(asked[0])
        await broker.until(lambda: broker.script.verbs("store_1").count("end_envelope") == 2)
        await broker.until_rows({})


async def test_a_reply_that_can_not_be_written_is_asked_for_again(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recipient is told to forget what it began, as nobody will know of its reply."""
    write = journal.write
    refused: list[MoveReply] = []

    def failing_once(what: Any, *, promises: bool = True) -> "asyncio.Future[Any]":
        if isinstance(what, MoveReply) and not refused:
            refused.append(what)
            answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            answer.set_exception(JournalUnavailable("the database is away"))
            return answer
        return write(what, promises=promises)

    async with running(journal) as broker:
        await broker.register("names_1")
        await broker.register("store_1", **replying(NEW))
        monkeypatch.setattr(journal, "write", failing_once)
        wish = Wish(broker)
        event_id = await wish.ask()
        await wish.become(event_id, ReplyState.HELD)
        assert broker.script.verbs("store_1")[3:] == ["xbus.take_event", "stop_envelope", "xbus.take_event"]


async def test_a_fault_of_the_broker_is_the_end_of_one_ask_only(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(journal) as broker:
        await broker.register("names_1")
        await broker.register("store_1", **replying(NEW))
        with monkeypatch.context() as broken:
            broken.setattr(replies, "pack", lambda value: 1 // 0)
            failed = Wish(broker)
            reply = await failed.answer(await failed.ask())
        assert reply.code == "reply_failed"
        assert "ZeroDivisionError" in (reply.cause or "")
        assert broker.script.verbs("store_1")[-1] == "stop_envelope"
        wish = Wish(broker)
        await wish.become(await wish.ask(), ReplyState.HELD)


async def test_who_comes_in_the_place_of_one_that_left_is_asked(journal: Journal) -> None:
    """The first is busy with another envelope when it is to be asked, and goes away over that."""
    never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    async with running(journal) as broker:
        await broker.register("names_1")
        await broker.register("store_1", has_immediate_reply=WISHES, xbus_take_event=never)
        await broker.put(b"a note")
        await broker.until(lambda: broker.items("store_1") == [b"a note"])
        wish = Wish(broker)
        event_id = await wish.ask()
        await broker.until(lambda: broker.back._assembly._replies._in_progress)
        for _ in range(20):
            await asyncio.sleep(0)
        await broker.leave("store_1")
        await broker.register("store_1", **replying(NEW))
        await wish.become(event_id, ReplyState.HELD)
        never.cancel()


async def test_what_begins_and_ends_while_rows_are_read_is_not_taken_up_again(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was held goes on in a run of its own, whose row a slow read finds as it was before the end."""
    committing: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    looking, look, looked, answer = (asyncio.Event() for _ in range(4))
    read = journal.read

    async def slowly(statement: Any, *args: Any, **kwargs: Any) -> Any:
        if statement is not read_due_deliveries or looking.is_set():
            return await read(statement, *args, **kwargs)
        looking.set()
        await look.wait()
        found = await read(statement, *args, **kwargs)
        looked.set()
        await answer.wait()
        return found

    async with running(journal) as broker:
        await broker.register("names_1")
        await broker.register("store_1", end_envelope=committing, **replying(NEW))
        wish = Wish(broker)
        event_id = await wish.ask()
        await wish.become(event_id, ReplyState.HELD)
        monkeypatch.setattr(journal, "read", slowly)
        broker.back.events.rows_due.publish(broker.scribe.role_id("store_1"))
        await looking.wait()
        await wish.seal(event_id)
        await broker.until_rows({"store_1": ("retry", 1, "reply_given")})
        look.set()
        await looked.wait()
        committing.set_result([True, None])
        await broker.until_rows({})
        answer.set()
        await broker.put(b"next")
        await broker.until(lambda: broker.items("store_1") == [b"a wish", b"next"])
    assert broker.script.verbs("store_1").count("stop_envelope") == 0


async def test_without_immediate_replies_a_put_asks_the_journal_for_none(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    read = journal.read

    async def counted(statement: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal looks
        looks += statement is read_asks
        return await read(statement, *args, **kwargs)

    await journal.read(lambda connection: connection.execute(sa.update(model.event_type).values(immediate_reply=False)))
    async with running(journal) as broker:
        await broker.register("store_1")
        await broker.put(b"first")
        await broker.until(lambda: broker.items("store_1") == [b"first"])
        monkeypatch.setattr(journal, "read", counted)
        for item in (b"a", b"b", b"c"):
            await broker.put(item)
            await broker.until(partial(_has, broker, item))
    assert looks == 0


def _has(broker: Broker, item: bytes) -> bool:
    return item in broker.items("store_1")
