"""Immediate replies, as the front sees them: asked for in the journal, and awaited there."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, TypeVar
from uuid import UUID

from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.replies import StoredReply, read_replies
from xbus.broker.journal.writes import AskReply, CallOffAsks
from xbus.clock import Clock
from xbus.errors import CallError, Failed, JournalUnavailable, Refused
from xbus.rpc.bell import Bell
from xbus.states import ReplyState

log = logging.getLogger(__name__)

T = TypeVar("T")

POLL_SECONDS = 0.5
"""Wake-ups may get lost, so replies are looked for this often anyway while somebody waits."""

GRACE_SECONDS = 1.0
"""How much longer than the back tries an answer is awaited, so that the back's reason comes first."""

REFUSALS = {
    "reply_ambiguous": "have one consumer role registered for an event type with immediate replies",
    "reply_unsupported": "have the consumer announce the event type in has_immediate_reply",
    "reply_refused": "correct what the consumer refuses, in another envelope",
    "envelope_closed": "start another envelope",
}
"""The errors against which asking again does not help, with the next step."""

FAILURES = {
    "reply_failed": "see the consumer's log, then end the event again or cancel the envelope",
    "reply_timed_out": "see whether the consumer runs, then end the event again or cancel the envelope",
}


class ReplyRequests:
    """Asks for replies and waits for them.

    Args:
        journal: where asks and replies are.
        bell: tells the back of asks, and tells of replies.
        clock: dates the asks.
        seconds: how long an emitter waits for a reply.
    """

    def __init__(self, journal: Journal, bell: Bell, clock: Clock, seconds: float) -> None:
        self._journal = journal
        self._bell = bell
        self._clock = clock
        self._seconds = seconds
        self._waiting: defaultdict[UUID, list[asyncio.Future[StoredReply]]] = defaultdict(list)
        self._anybody = asyncio.Event()

    async def recover(self) -> None:
        """Call off what the last run of the front asked for: those who waited there ask anew, or are gone.

        Raises:
            JournalUnavailable: the database can't be written now.
        """
        await self._journal.write(CallOffAsks("reply_failed", "the broker went down while it was waited for"))

    async def given(self, event_id: UUID) -> bytes | None:
        """The reply to an event that was given, in msgpack; None where there is none."""
        stored = (await self._journal.read(read_replies, [event_id])).get(event_id)
        return None if stored is None else stored.data

    async def ask(self, envelope_id: UUID, event_id: UUID) -> bytes:
        """Have an event delivered ahead of its envelope, and wait for the reply; the first one stands.

        Args:
            event_id: an event whose items are durable.

        Returns:
            The reply in msgpack.

        Raises:
            Refused: reply_ambiguous, reply_unsupported, reply_refused, envelope_closed.
            Failed: reply_failed, reply_timed_out.
            JournalUnavailable: the ask can't be written now.
        """
        given = await self.given(event_id)
        if given is not None:
            return given
        await self._journal.write(AskReply(event_id, envelope_id, self._clock.now() + timedelta(seconds=self._seconds)))
        reply = await self._answer(event_id)
        if reply.data is None:
            raise _failure(reply.code or "reply_failed", reply.cause or "there is no reply")
        return reply.data

    async def _answer(self, event_id: UUID) -> StoredReply:
        answer: asyncio.Future[StoredReply] = asyncio.get_running_loop().create_future()
        self._waiting[event_id].append(answer)
        self._anybody.set()
        self._bell.ring()
        try:
            async with asyncio.timeout(self._seconds + GRACE_SECONDS):
                return await answer
        except TimeoutError:
            raise _failure("reply_timed_out", "nobody gave a reply in time") from None
        finally:
            self._waiting[event_id].remove(answer)
            if not self._waiting[event_id]:
                del self._waiting[event_id]

    async def watch(self) -> None:
        """For ever: hand replies to those who wait for them."""
        while True:
            await self._anybody.wait()
            await self._bell.wait(POLL_SECONDS)
            await self._look()
            if not self._waiting:
                self._anybody.clear()

    async def _look(self) -> None:
        try:
            found = await self._journal.read(read_replies, list(self._waiting))
        except JournalUnavailable as error:
            log.warning("replies can't be read: %s", error, extra={"action": "replies_unread"})
            return
        for reply in found.values():
            if reply.state is not ReplyState.ASKED:
                for answer in self._open_answers(reply.event_id):
                    answer.set_result(reply)

    def _open_answers(self, event_id: UUID) -> list[asyncio.Future[StoredReply]]:
        return [answer for answer in self._waiting.get(event_id, ()) if not answer.done()]

    def give_up(self) -> None:
        """Let nobody wait any longer: the broker stops."""
        error = Failed("the broker stops", "end the event again when it is back", code="call_cancelled")
        for event_id in self._waiting:
            for answer in self._open_answers(event_id):
                answer.set_exception(error)


def _failure(code: str, cause: str) -> CallError:
    if code in REFUSALS:
        return Refused(cause, REFUSALS[code], code=code)
    return Failed(cause, FAILURES.get(code, "end the event again, or cancel the envelope"), code=code)


class AnswerLater(Protocol):
    """Gives the answer that a coroutine will have; its error is the caller's."""

    def __call__(self, work: Coroutine[Any, Any, T], /) -> "asyncio.Future[T]":
        """Begin the work."""


@dataclass(frozen=True, slots=True)
class SlowAnswers:
    """The parts that an envelope needs for answers that take longer than a write.

    Args:
        later: the answer that a coroutine will give; its error is the caller's.
        replies: gets immediate replies.
        wants_reply: whether the event type of a name wants one.
    """

    later: AnswerLater
    replies: ReplyRequests
    wants_reply: Callable[[str], bool]
