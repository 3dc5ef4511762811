"""Calls the author's methods, and puts their answers into the wire's form."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from xbus.errors import Failed, ProtocolError, Refused
from xbus.recipient.author_thread import AuthorThread
from xbus.recipient.base import Consumer, Recipient, Worker
from xbus.recipient.envelope import Envelope, Event
from xbus.recipient.item import Batch, Item
from xbus.recipient.outputs import made_of_batch, made_of_event
from xbus.recipient.refusal import Refusal
from xbus.rpc.codec import pack

logger = logging.getLogger(__name__)

STOPPED = "envelope_stopped"
"""The code of a step of an envelope that was stopped."""


_DO_NOTHING = {Recipient.on_event_start, Recipient.commit, Consumer.on_event_end, Worker.on_event_end}


class Calls:
    """Calls an author's methods from their thread, plain or asynchronous ones alike.

    Args:
        recipient: the author's.
        author_thread: where the jobs that use this run.
    """

    def __init__(self, recipient: Recipient, author_thread: AuthorThread) -> None:
        self._recipient: Any = recipient
        self._finished = author_thread.finished
        self.is_worker = isinstance(recipient, Worker)
        self._is_started = False
        # Asked once: a method that the author leaves as it is does nothing, and is not called.
        self._has_event_start = self._is_own("on_event_start")
        self._has_event_end = self._is_own("on_event_end")
        self._has_commit = self._is_own("commit")

    def _is_own(self, name: str) -> bool:
        return getattr(getattr(self._recipient, name), "__func__", None) not in _DO_NOTHING

    def start(self) -> None:
        """Run ``on_start``, before everything else; once more if it raised."""
        self._finished(self._recipient.on_start())
        self._is_started = True

    def stop(self) -> None:
        """Run ``on_stop``, after everything else, unless ``on_start`` never went well."""
        if self._is_started:
            self._finished(self._recipient.on_stop())

    def start_event(self, event: Event) -> None:
        """Begin an event."""
        if self._has_event_start:
            self._finished(self._recipient.on_event_start(event))

    def batch(self, event: Event, batch: Batch) -> list[Item] | None:
        """Take items; give what a worker made of them, None for a consumer."""
        taken = event.taken + len(batch.data)
        if event.file is not None:
            with _refusing():
                event.file.write(batch.data)
            event.taken = taken
            return list(batch) if self.is_worker else None
        answer = self._recipient.on_batch(event, batch)
        if answer is not None:
            answer = self._finished(answer)
        event.taken = taken
        return made_of_batch(batch, answer) if self.is_worker else None

    def end_event(self, event: Event) -> tuple[object, list[Item]]:
        """End an event; give the immediate reply of a consumer, and the items that a worker adds.

        Raises:
            Refusal: the reply can't be sent.
        """
        if event.file is not None:
            with _refusing():
                event.file.complete()
        answer = self._finished(self._recipient.on_event_end(event)) if self._has_event_end else None
        if self.is_worker:
            return None, made_of_event(answer)
        if event.type_name not in self._recipient.immediate_reply:
            return None, []
        _check_reply(event, answer)
        return answer, []

    def whole_event(self, event: Event, batches: Iterable[Batch]) -> tuple[object, list[Item]]:
        """Bring an event with all of its items; give what ``end_event`` gives, with all that a worker made.

        Raises:
            Refusal: as ``end_event``.
        """
        self.start_event(event)
        made: list[Item] = []
        for batch in batches:
            if (out := self.batch(event, batch)) is not None:
                made += out
        reply, last = self.end_event(event)
        return reply, made + last if last else made

    def commit(self, envelope: Envelope) -> None:
        """Make it last.

        Raises:
            Failed: it was stopped while the author's code was at it: nobody would learn of a commit, and it comes again
                (``envelope_stopped``).
        """
        if envelope.is_stopped:
            raise Failed("the envelope was stopped", code=STOPPED)
        for file in envelope.files:
            file.publish()
        if self._has_commit:
            self._finished(self._recipient.commit(envelope))

    def rollback(self, envelope: Envelope) -> None:
        """Forget it."""
        for file in envelope.files:
            file.discard()
        self._finished(self._recipient.rollback(envelope))


@contextmanager
def _refusing() -> Iterator[None]:
    """Refuse a file for good that is none, or not what its sender sent.

    Raises:
        Refusal: it is so.
    """
    try:
        yield
    except Refused as error:
        raise Refusal(error.cause) from error


def _check_reply(event: Event, reply: object) -> None:
    """Let a reply pass that can be sent. Asked again the author's code would answer the same, so it refuses for good.

    Raises:
        Refusal: msgpack has no way to write it.
    """
    try:
        pack(reply)
    except ProtocolError as error:
        extra = {"action": "bad_reply", "event_id": event.id, "event_type": event.type_name, "cause": error.cause}
        logger.error("on_event_end returned a reply that msgpack can't pack", extra=extra)
        raise Refusal(f"the consumer's reply, of type {type(reply).__name__}, can't be packed by msgpack") from error
