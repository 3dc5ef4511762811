"""All envelopes that are open at a recipient: opened, looked up, stopped and closed."""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from xbus.errors import Failed, Refused
from xbus.recipient.author_thread import AuthorThread
from xbus.recipient.calls import Calls
from xbus.recipient.delivery import EnvelopeDelivery, failure_of, log_rollback_failure
from xbus.recipient.ways import Connections
from xbus.rpc.codec import Value
from xbus.rpc.messages import EnvelopeWork


class OpenDeliveries:
    """Keeps the open envelopes. Only calls by the broker's newest connection reach them.

    Args:
        calls: the author's methods.
        author_thread: where they run.
        caller: tells by which connection the call came that is carried out now.

    Attributes:
        connections: by which the broker may call.
        is_closing: whether envelopes that are not open yet are turned away.
        idle: set while no envelope is open.
    """

    def __init__(self, calls: Calls, author_thread: AuthorThread, caller: Callable[[], bytes]) -> None:
        self.connections = Connections()
        self.is_closing = False
        self.idle = asyncio.Event()
        self.idle.set()
        self._calls = calls
        self._author_thread = author_thread
        self._caller = caller
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
            delivery.envelope.read_note(note)
        if envelope_id not in self._open:
            self._check_open()
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
        begun = {delivery.envelope.id: delivery for delivery in deliveries}
        if len(begun) < len(deliveries) or not self._open.keys().isdisjoint(begun):
            raise Refused("an envelope of the bundle is open already", "stop it first", code="envelope_open")
        self._check_open()
        self._open |= begun
        if begun:
            self.idle.clear()

    def _check_open(self) -> None:
        if self.is_closing:
            step = "send the envelope again later"
            raise Failed("the recipient is about to stop", step, code="recipient_stopping")

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
            if self._open.get(delivery.envelope.id) is delivery:
                del self._open[delivery.envelope.id]
                self._steps_of_old += delivery.steps
        if not self._open:
            self.idle.set()

    def stop(self, envelope_id: str) -> "asyncio.Future[bool]":
        """Roll an envelope back, also one that is not open here."""
        delivery = self._close(envelope_id) or EnvelopeDelivery(envelope_id)
        delivery.stop()
        self._stopping.add(delivery)

        def roll_back() -> bool:
            try:
                self._calls.rollback(delivery.envelope)
            except Exception as error:
                log_rollback_failure(envelope_id, error)
                raise failure_of(error) from error
            return True

        stopped = self._author_thread.give(roll_back)
        stopped.add_done_callback(lambda _: self._forget(delivery))
        return stopped

    async def roll_back_all(self) -> None:
        """Roll back every open envelope: the broker gave them up, or is about to.

        What it still sends by the connection that it has is turned away from now on: the rest of an envelope would pass
        for the whole of it.
        """
        self.connections.close()
        stopped = [self.stop(envelope_id) for envelope_id in list(self._open)]
        await asyncio.gather(*stopped, return_exceptions=True)  # what failed is in the log already

    def check_caller(self) -> None:
        """Let calls by the broker's newest connection pass; what the one before has left open is rolled back.

        Raises:
            Failed: connection_superseded.
        """
        if self.connections.check(self._caller()):
            for envelope_id in list(self._open):
                self.stop(envelope_id).add_done_callback(lambda stopped: stopped.cancelled() or stopped.exception())

    def _forget(self, delivery: EnvelopeDelivery) -> None:
        self._stopping.discard(delivery)
        self._steps_of_old += delivery.steps

    def _close(self, envelope_id: str) -> EnvelopeDelivery | None:
        delivery = self._open.pop(envelope_id, None)
        if not self._open:
            self.idle.set()
        return delivery
