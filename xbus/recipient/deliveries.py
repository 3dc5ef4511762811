"""The envelopes that are open at a recipient, each on its way from its first event to its commit or roll-back."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from xbus.errors import CallError, Failed, Refused
from xbus.recipient.author_thread import AuthorThread
from xbus.recipient.calls import STOPPED, Calls, stopped
from xbus.recipient.envelope import Envelope, Event, Note
from xbus.recipient.refusal import Refusal
from xbus.recipient.ways import Connections
from xbus.rpc.codec import Key, Value
from xbus.rpc.deferred import Promise
from xbus.rpc.messages import EnvelopeWork
from xbus.texts import fault

logger = logging.getLogger(__name__)

MAX_CAUSE_CHARACTERS = 500

SHOWN_INDICES = 10
"""Indices of refused items in a line of the log."""


class EnvelopeDelivery(Envelope):
    """Keeps the events of an envelope, and what went wrong: after that the author's code sees no more of it.

    The broker sends ahead of the answers, so calls of an envelope arrive that was refused or stopped meanwhile; they
    get the same answer as the call that went wrong.

    Args:
        envelope_id: the envelope's UUID as text.
        note: as of ``Envelope``.

    Attributes:
        events: those that have begun or came whole, by id.
        at: the event that the author's code is at; None before the first one and at the commit of several.
    """

    at: Event | None = None
    _refusal: Refusal | None = None
    _error: CallError | None = None

    def __init__(self, envelope_id: str, note: Note | None = None) -> None:
        # As of ``Envelope``, whose method each envelope would call.
        self.id = envelope_id
        if note is not None:
            self._note = note
        self.events: dict[str, Event] = {}

    def add_event(self, event_id: str, type_name: str, headers: Mapping[Key, Value] | None = None) -> Event:
        """Begin an event.

        Args:
            headers: those of the event and its envelope, as the broker tells them.

        Raises:
            Refused: it began before (``event_open``).
        """
        if event_id in self.events:
            raise Refused("the event began before", "stop its envelope first", code="event_open")
        event = Event(event_id, type_name, self)
        if headers:
            event.read_headers(headers)
        self.events[event_id] = event
        return event

    def event(self, event_id: str) -> Event:
        """Give the event of that id.

        Raises:
            Refused: the envelope has no such event (``event_unknown``).
        """
        if event_id not in self.events:
            raise Refused("the event is not open here", "start it first", code="event_unknown")
        return self.events[event_id]

    def let_go(self) -> None:
        """Keep nothing that refers back to the envelope: it is freed as soon as its author does not keep it either."""
        self.events = {}
        self.at = None

    def work(self, steps: int) -> EnvelopeWork:
        """Describe the envelope for a heartbeat.

        Args:
            steps: what grows with the work on all envelopes: they have one thread, so what waits for it gets nearer
                to its turn with each step of another.
        """
        work: EnvelopeWork = {"envelope_id": self.id, "progress": steps}
        for event in self.events.values():
            done, of = event.told
            work |= {"event_id": event.id, "done": done, "of": of}
        return work

    @property
    def steps(self) -> int:
        """Grows while the author's code advances with this envelope."""
        return sum([event.steps for event in self.events.values()])

    def stop(self) -> None:
        """Take no step any more, not even those that are in line already."""
        self.is_stopped = True
        self._error = stopped()

    def take_step(self, step: Callable[[], tuple[object, ...]]) -> tuple[object, ...]:
        """Take one step through the author's code; to be called in the author's thread.

        Returns:
            ``(True, ...)`` with what the step returned, or ``(False, errors)`` after a refusal.

        Raises:
            CallError: the author's code failed, now or before, or the envelope was stopped.
        """
        if self._error is not None:
            raise self._error
        if self._refusal is not None:
            return (False, self._refusal.errors)
        try:
            return (True, *step())
        except Exception as error:
            return (False, self.errors_of(error))

    def check(self) -> None:
        """Let a step pass.

        Raises:
            CallError: the author's code failed before, or the envelope was stopped.
            Refusal: the author's code refused it before.
        """
        went_wrong = self._error or self._refusal
        if went_wrong is not None:
            raise went_wrong

    def errors_of(self, error: BaseException) -> list[tuple[list[int], str]]:
        """Note the exception of a step, and give the errors of a refusal as they go to the broker.

        Raises:
            CallError: the author's code failed, or the envelope was stopped.
            BaseException: ``error``, where it is no ``Exception``.
        """
        if isinstance(error, Refusal):
            if error is not self._refusal:
                self._refusal = error
                self._log_refusal(error)
            return error.errors
        is_known = error is self._error or (isinstance(error, Failed) and error.code == STOPPED)
        if is_known or not isinstance(error, Exception):
            raise error
        extra = {"action": "recipient_failed", **self._place()}
        logger.error("the recipient's code failed", exc_info=error, extra=extra)
        self._error = failure_of(error)
        raise self._error from error

    def _log_refusal(self, refusal: Refusal) -> None:
        # The cause is in the sentence, as a program that has set up no log shows no more than that.
        for indices, cause in refusal.errors:
            extra = {"action": "recipient_refused", "code": refusal.code, **self._place(), "indices": some_of(indices)}
            logger.warning("the recipient refused %s: %s", _refused(indices, self.at), cause, extra=extra)

    def _place(self) -> dict[str, object]:
        event = {} if self.at is None else {"event_id": self.at.id, "event_type": self.at.type_name}
        return {"envelope_id": self.id, **event}


def _refused(indices: list[int], event: Event | None) -> str:
    """Name the refused items: ``item 7 of event ...``."""
    of = "the envelope" if event is None else f"event {event.id} ({event.type_name})"
    if not indices:
        return of
    return f"item{'s' * (len(indices) > 1)} {some_of(indices)} of {of}"


def some_of(indices: list[int]) -> str:
    """Write the first of many indices."""
    more = f" and {len(indices) - SHOWN_INDICES} more" if len(indices) > SHOWN_INDICES else ""
    return ", ".join(map(str, indices[:SHOWN_INDICES])) + more


def log_rollback_failure(envelope_id: str, error: Exception) -> None:
    """Tell the recipient's operator that the author's rollback failed."""
    extra = {"action": "rollback_failed", "envelope_id": envelope_id}
    logger.error("the recipient's rollback failed", exc_info=error, extra=extra)


def _about_to_stop() -> Failed:
    return Failed("the recipient is about to stop", "send the envelope again later", code="recipient_stopping")


def failure_of(error: Exception) -> Failed:
    """Make the answer to the broker for an exception of the author's code: try again later."""
    return Failed(
        fault(error, MAX_CAUSE_CHARACTERS),
        "see the recipient's log for where it was raised",
        code="recipient_failed",
    )


class CallerOfNow(Protocol):
    """The way by which the broker calls."""

    @property
    def caller(self) -> bytes:
        """The connection by which the call came that is carried out now."""


class OpenDeliveries:
    """Keeps the open envelopes. Only calls by the broker's newest connection reach them.

    Args:
        calls: the author's methods.
        author_thread: where they run.

    Attributes:
        way: tells by which connection the call came that is carried out now. It is chosen before the first call.
        connections: by which the broker may call.
        is_closing: whether envelopes that are not open yet are turned away.
        idle: set while no envelope is open.
    """

    way: CallerOfNow

    def __init__(self, calls: Calls, author_thread: AuthorThread) -> None:
        self.connections = Connections()
        self.is_closing = False
        self.idle = asyncio.Event()
        self.idle.set()
        self._calls = calls
        self._author_thread = author_thread
        self._open: dict[str, EnvelopeDelivery] = {}
        self._stopping: set[EnvelopeDelivery] = set()
        self._steps_of_old = 0

    def __contains__(self, envelope_id: str) -> bool:
        return envelope_id in self._open

    def work(self) -> list[EnvelopeWork]:
        """Describe, for a heartbeat, each open envelope and each that is about to be rolled back."""
        deliveries = [*self._open.values(), *self._stopping]
        steps = self._author_thread.steps + self._steps_of_old + sum(delivery.steps for delivery in deliveries)
        return [delivery.work(steps) for delivery in deliveries]

    def open(self, envelope_id: str, note: list[Value] | None) -> EnvelopeDelivery:
        """Begin an envelope, or give the one that has begun.

        Raises:
            Failed: connection_superseded, or recipient_stopping.
        """
        self.check_caller()
        delivery = self._open.get(envelope_id) or EnvelopeDelivery(envelope_id)
        if note is not None:
            delivery.read_note(note)
        if envelope_id not in self._open:
            if self.is_closing:
                raise _about_to_stop()
            self.idle.clear()
            self._open[envelope_id] = delivery
        return delivery

    def open_all(self, deliveries: Sequence[EnvelopeDelivery]) -> None:
        """Begin several envelopes.

        Raises:
            Failed: as of ``open``.
            Refused: one of them has begun (``envelope_open``).
        """
        self.check_caller()
        begun = dict(zip([delivery.id for delivery in deliveries], deliveries, strict=True))
        if len(begun) < len(deliveries) or not self._open.keys().isdisjoint(begun):
            raise Refused("an envelope of the bundle is open already", "stop it first", code="envelope_open")
        if self.is_closing:
            raise _about_to_stop()
        self._open |= begun
        if begun:
            self.idle.clear()

    def get(self, envelope_id: str) -> EnvelopeDelivery:
        """Give an open envelope.

        Raises:
            Failed: connection_superseded.
            Refused: it is not open (``envelope_unknown``).
        """
        self.check_caller()
        if envelope_id not in self._open:
            raise Refused("the envelope is not open here", "start an event of it first", code="envelope_unknown")
        return self._open[envelope_id]

    def end_all(self, deliveries: Iterable[EnvelopeDelivery]) -> None:
        """Keep nothing of envelopes that have come to their end; one that was stopped may be open anew."""
        for delivery in deliveries:
            if self._open.get(delivery.id) is delivery:
                del self._open[delivery.id]
                for event in delivery.events.values():
                    self._steps_of_old += event.taken + event.reports
                delivery.let_go()
        if not self._open:
            self.idle.set()

    def stop(self, envelope_id: str) -> Promise[bool]:
        """Roll an envelope back, also one that is not open here."""
        delivery = self._close(envelope_id) or EnvelopeDelivery(envelope_id)
        delivery.stop()
        self._stopping.add(delivery)

        def roll_back() -> bool:
            try:
                self._calls.rollback(delivery)
            except Exception as error:
                log_rollback_failure(envelope_id, error)
                raise failure_of(error) from error
            return True

        rolled_back = self._author_thread.give(roll_back)
        rolled_back.add_done_callback(lambda _: self._forget(delivery))
        return rolled_back

    async def roll_back_all(self) -> None:
        """Roll back every open envelope: the broker gave them up, or is about to.

        What it still sends by the connection that it has is turned away from now on: the rest of an envelope would pass
        for the whole of it.
        """
        self.connections.close()
        rolled_back = [self.stop(envelope_id) for envelope_id in list(self._open)]
        await asyncio.gather(*rolled_back, return_exceptions=True)  # what failed is in the log already

    def check_caller(self) -> None:
        """Let calls by the broker's newest connection pass; what the one before has left open is rolled back.

        Raises:
            Failed: connection_superseded.
        """
        caller = self.way.caller
        if caller != self.connections.current and self.connections.check(caller):
            for envelope_id in list(self._open):
                self.stop(envelope_id).add_done_callback(lambda done: done.cancelled() or done.exception())

    def _forget(self, delivery: EnvelopeDelivery) -> None:
        self._stopping.discard(delivery)
        self._steps_of_old += delivery.steps
        delivery.let_go()

    def _close(self, envelope_id: str) -> EnvelopeDelivery | None:
        delivery = self._open.pop(envelope_id, None)
        if not self._open:
            self.idle.set()
        return delivery
