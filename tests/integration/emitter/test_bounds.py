"""How long a call of the emitter may take: ``retry_seconds`` and ``timeout`` are bounds that hold."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.integration.emitter.front_double import SILENCE, FrontDouble
from tests.support.waiting import eventually
from xbus.clock import SystemClock
from xbus.emitter import AsyncEmitter
from xbus.errors import CallError, Failed, Refused, TimedOut

SECONDS = 0.4
"""The bound that the tests give, far below what an answer may take."""

OTHERWISE_SECONDS = 10.0
"""Half of what these calls took before they had a bound: what is slower was not ended by it."""


class ClockAhead(SystemClock):
    """A clock that a test sets ahead."""

    seconds = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.seconds


Act = Callable[[AsyncEmitter], Awaitable[object]]


def emitter(front: FrontDouble, **options: Any) -> AsyncEmitter:
    return AsyncEmitter(front.address, "test_emitter", "password", **options)


@asynccontextmanager
async def ends_in_time() -> AsyncIterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < OTHERWISE_SECONDS


async def put(sender: AsyncEmitter) -> None:
    await sender.put("test_event", [b"one"])


async def put_large(sender: AsyncEmitter) -> None:
    await sender.put("test_event", [b"x" * 900] * 12)


async def send(sender: AsyncEmitter) -> None:
    async with sender.envelope() as envelope, envelope.event("test_event") as event:
        await event.send(b"one")


async def claim(sender: AsyncEmitter) -> None:
    async with sender.envelope(key="17"):
        pass


async def replay(sender: AsyncEmitter) -> None:
    receipt = await sender.put("test_event", [b"one"])
    await sender.replay(receipt.envelope_id)


async def read_consumers(sender: AsyncEmitter) -> None:
    await sender.consumers()


SILENT_AT: dict[str, tuple[str, Act]] = {
    "put": ("put_envelopes", put),
    "put in batches": ("send_items", put_large),
    "items": ("send_items", send),
    "the end of an event": ("end_event", send),
    "the end of the envelope": ("end_envelope", send),
    "the claim of a key": ("start_envelope", claim),
    "replay": ("replay_envelope", replay),
    "consumers": ("get_consumers", read_consumers),
}


@pytest.mark.parametrize(("verb", "act"), SILENT_AT.values(), ids=SILENT_AT)
async def test_retry_seconds_bounds_a_front_that_falls_silent(front: FrontDouble, verb: str, act: Act) -> None:
    """It takes every call, as one does that is frozen, and answers none from this one on."""
    for name in ("login", "renew", "logout", "cancel_envelope", verb):
        front.fail_next(name, *[None] * (name == "login"), *[SILENCE] * 1000)
    async with ends_in_time():
        with pytest.raises(TimedOut, match="each try within") as failed:
            async with emitter(front, retry_seconds=SECONDS) as sender:
                await act(sender)
    assert failed.value.next_step


@pytest.mark.parametrize(("verb", "act"), SILENT_AT.values(), ids=SILENT_AT)
async def test_retry_seconds_bounds_a_front_that_lives_but_takes_nothing(
    front: FrontDouble, verb: str, act: Act
) -> None:
    """Its database hangs, say; the end of an event may wait for a consumer then, as far as anybody can see."""
    front.fail_next(verb, *[SILENCE if verb != "end_event" else Failed("the database hangs", code="away")] * 1000)
    async with ends_in_time():
        with pytest.raises(Failed, match="each try within"):
            async with emitter(front, retry_seconds=SECONDS) as sender:
                await act(sender)


async def test_retry_seconds_bounds_a_login_that_is_not_answered(front: FrontDouble) -> None:
    front.fail_next("login", *[SILENCE] * 100)
    async with ends_in_time():
        with pytest.raises(TimedOut, match="each try within"):
            async with emitter(front, retry_seconds=SECONDS):
                pass


async def test_an_answer_that_gets_lost_is_asked_for_again_in_time(front: FrontDouble) -> None:
    """Though ``answer_seconds`` are longer than all that is insisted."""
    front.fail_next("put_envelopes", SILENCE)
    async with emitter(front, retry_seconds=2, answer_seconds=1000) as sender:
        assert (await sender.put("test_event", [b"one"])).items == 1
    assert front.calls.count("put_envelopes") == 2


async def test_a_reply_may_take_longer_while_the_front_lives(front: FrontDouble) -> None:
    reply = asyncio.get_running_loop().create_future()
    front.replies.append(reply)
    async with emitter(front, retry_seconds=2) as sender:
        asking = asyncio.create_task(sender.ask("test_event", b"question"))
        # It asks again after a fourth of retry_seconds: in all this takes longer than that.
        await eventually(lambda: front.calls.count("renew") >= 6, "the front is asked for signs of life")
        reply.set_result("late")
        assert await asking == "late"
    assert front.calls.count("end_event") == 1


async def test_a_success_begins_the_time_anew(front: FrontDouble) -> None:
    async with emitter(front, batch_items=1, window_bytes=1, retry_seconds=2) as sender:
        async with sender.envelope() as envelope, envelope.event("test_event") as event:
            began = time.monotonic()
            while time.monotonic() - began < 3:
                answered = asyncio.get_running_loop().create_future()
                front.fail_next("send_items", answered)
                asyncio.get_running_loop().call_later(0.3, answered.set_result, None)
                await event.send(b"x")
    assert (front.only().state, envelope.receipt.items) == ("sealed", len(front.batches))


async def test_time_between_two_calls_does_not_count(front: FrontDouble) -> None:
    clock = ClockAhead()
    async with emitter(front, clock=clock) as sender:
        async with sender.envelope() as envelope, envelope.event("test_event") as event:
            await sender.consumers()  # answered behind the openings
            clock.seconds += 1000
            front.fail_next("send_items", Failed("not now", code="journal_unavailable"))
            await event.send(b"one")
    assert envelope.receipt.items == 1


@pytest.mark.parametrize(("verb", "act"), SILENT_AT.values(), ids=SILENT_AT)
async def test_timeout_bounds_each_call(front: FrontDouble, verb: str, act: Act) -> None:
    front.fail_next(verb, *[SILENCE] * 1000)
    front.fail_next("cancel_envelope", SILENCE)
    async with emitter(front) as sender:
        async with ends_in_time():
            with pytest.raises(TimedOut, match="`timeout`") as failed:
                await act(Hasty(sender))  # type: ignore[arg-type]
        assert (failed.value.code, bool(failed.value.next_step)) == ("timed_out", True)


class Hasty:
    """An emitter that gives each call its time-out."""

    def __init__(self, sender: AsyncEmitter) -> None:
        self._sender = sender

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._sender, name)
        return lambda *args, **options: method(*args, timeout=0.1, **options)


async def test_timeout_bounds_a_full_window_and_the_item_waits(front: FrontDouble) -> None:
    answered = asyncio.get_running_loop().create_future()
    front.fail_next("send_items", answered)
    async with emitter(front, batch_items=1, window_bytes=1) as sender:
        async with sender.envelope() as envelope, envelope.event("test_event") as event:
            await event.send(b"fills the window")
            for attempt in (event.send(b"waits", timeout=0.05), event.flush(timeout=0.05)):
                with pytest.raises(TimedOut):
                    await attempt
            answered.set_result(None)
    assert envelope.receipt.items == 2


async def test_a_reply_that_takes_longer_than_its_timeout(front: FrontDouble) -> None:
    front.replies.append(asyncio.get_running_loop().create_future())
    async with emitter(front) as sender:
        with pytest.raises(TimedOut):
            async with sender.envelope() as envelope:
                async with envelope.event("test_event") as event:
                    await event.send(b"question")
                await event.reply(timeout=0.05)
        await eventually(lambda: front.only().state == "cancelled", "the question is cancelled")


async def test_a_call_that_was_given_up_is_not_made_again(front: FrontDouble) -> None:
    front.fail_next("put_envelopes", Failed("not now", code="journal_unavailable"), SILENCE)
    async with emitter(front, answer_seconds=0.1) as sender:
        with pytest.raises(Failed, match=r"not now, and the 0[.]15 s of `timeout` are over") as failed:
            await sender.put("test_event", [b"one"], timeout=0.15)
        assert failed.value.code == "journal_unavailable"
        made = front.calls.count("put_envelopes")
        for _ in range(5):
            with pytest.raises(CallError):
                await sender.retry("unknown", timeout=0.1)
        assert front.calls.count("put_envelopes") == made


async def test_a_refusal_comes_as_before(front: FrontDouble) -> None:
    async with emitter(front) as sender:
        with pytest.raises(Refused) as refused:
            await sender.put("no_such_event", [b"one"], timeout=5)
        assert refused.value.code == "unknown_type"
