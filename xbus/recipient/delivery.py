"""One envelope on its way through a recipient, from its first event to its commit or roll-back."""

import logging
from collections.abc import Callable, Mapping

from xbus.errors import CallError, Failed, Refused
from xbus.recipient.calls import STOPPED
from xbus.recipient.envelope import Envelope, Event
from xbus.recipient.refusal import Refusal
from xbus.rpc.codec import Key, Value
from xbus.rpc.messages import EnvelopeWork
from xbus.texts import fault

logger = logging.getLogger(__name__)

MAX_CAUSE_CHARACTERS = 500

SHOWN_INDICES = 10
"""Indices of refused items in a line of the log."""


class EnvelopeDelivery:
    """Keeps the events of an envelope, and what went wrong: after that the author's code sees no more of it.

    The broker sends ahead of the answers, so calls of an envelope arrive that was refused or stopped meanwhile; they
    get the same answer as the call that went wrong.

    Args:
        envelope_id: the envelope's UUID as text.

    Attributes:
        at: the event that the author's code is at; None before the first one and at the commit of several.
    """

    def __init__(self, envelope_id: str) -> None:
        self.envelope = Envelope(envelope_id)
        self._events: dict[str, Event] = {}
        self.at: Event | None = None
        self._refusal: Refusal | None = None
        self._error: CallError | None = None

    def add_event(self, event_id: str, type_name: str, headers: Mapping[Key, Value] | None = None) -> Event:
        """Begin an event.

        Args:
            headers: those of the event and its envelope, as the broker tells them.

        Raises:
            Refused: it began before (``event_open``).
        """
        if event_id in self._events:
            raise Refused("the event began before", "stop its envelope first", code="event_open")
        event = Event(event_id, type_name, self.envelope, {}, 0, self.envelope.headers)
        if headers:
            event.read_headers(headers)
        self._events[event_id] = event
        return event

    def has(self, event_id: str) -> bool:
        """Check whether an event has begun."""
        return event_id in self._events

    def event(self, event_id: str) -> Event:
        """Give the event of that id.

        Raises:
            Refused: the envelope has no such event (``event_unknown``).
        """
        if event_id not in self._events:
            raise Refused("the event is not open here", "start it first", code="event_unknown")
        return self._events[event_id]

    def work(self, steps: int) -> EnvelopeWork:
        """Describe the envelope for a heartbeat.

        Args:
            steps: what grows with the work on all envelopes: they have one thread, so what waits for it gets nearer
                to its turn with each step of another.
        """
        work: EnvelopeWork = {"envelope_id": self.envelope.id, "progress": steps}
        for event in self._events.values():
            done, of = event.told
            work |= {"event_id": event.id, "done": done, "of": of}
        return work

    @property
    def steps(self) -> int:
        """Grows while the author's code advances with this envelope."""
        return sum([event.steps for event in self._events.values()])

    def stop(self) -> None:
        """Take no step any more, not even those that are in line already."""
        self.envelope.is_stopped = True
        self._error = Failed("the envelope was stopped", code=STOPPED)

    def attempt(self, step: Callable[[], tuple[object, ...]]) -> tuple[object, ...]:
        """Take one step through the author's code; to be called in the author's thread.

        Returns:
            ``(True, ...)`` with what the step returned, or ``(False, errors)`` after a refusal.

        Raises:
            CallError: the author's code failed, now or before, or the envelope was stopped.
        """
        if self._error is not None:
            raise self._error
        if self._refusal is None:
            try:
                return (True, *step())
            except Refusal as refusal:
                self._refusal = refusal
                self._log_refusal(refusal)
            except Exception as error:
                if isinstance(error, Failed) and error.code == STOPPED:
                    raise
                extra = {"action": "recipient_failed", **self._place()}
                logger.error("the recipient's code failed", exc_info=error, extra=extra)
                self._error = failure_of(error)
                raise self._error from error
        return (False, self._refusal.errors)

    def _log_refusal(self, refusal: Refusal) -> None:
        # The cause is in the sentence, as a program that has set up no log shows no more than that.
        for indices, cause in refusal.errors:
            extra = {"action": "recipient_refused", "code": refusal.code, **self._place(), "indices": some_of(indices)}
            logger.warning("the recipient refused %s: %s", _refused(indices, self.at), cause, extra=extra)

    def _place(self) -> dict[str, object]:
        event = {} if self.at is None else {"event_id": self.at.id, "event_type": self.at.type_name}
        return {"envelope_id": self.envelope.id, **event}


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


def failure_of(error: Exception) -> Failed:
    """Make the answer to the broker for an exception of the author's code: try again later."""
    return Failed(
        fault(error, MAX_CAUSE_CHARACTERS),
        "see the recipient's log for where it was raised",
        code="recipient_failed",
    )
