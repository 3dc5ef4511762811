"""The pool of workers that make outputs: it knows who is registered, and free to make one more."""

from contextlib import suppress

from xbus.broker.back.bulk.attempt import OutputAttempt
from xbus.broker.back.recipients import Absent, AnyOf, RecipientProxy, Slots, This
from xbus.broker.journal.log.reading import LogEvent
from xbus.clock import Clock


class BulkWorkerPool:
    """Bulk workers, each of which makes as many outputs at once as it takes envelopes.

    Args:
        slots: who takes anything at all now.
        clock: measures how old an attempt is.
        register_timeout: how long a recipient may take to introduce itself, in seconds.
    """

    def __init__(self, slots: Slots[RecipientProxy], clock: Clock, register_timeout: float) -> None:
        self._slots = slots
        self._clock = clock
        self._register_timeout = register_timeout
        # Apart from the slots for events that are sent, whose runs hold consumers: a long job must not keep those.
        self._places: Slots[RecipientProxy] = Slots()

    def add(self, recipient: RecipientProxy) -> bool:
        """Let a recipient make outputs; whether it is one that does."""
        if recipient.abilities.bulk_items is None or not recipient.role.worker:
            return False
        self._places.add(recipient, recipient.role.service, recipient.abilities.envelopes)
        return True

    def remove(self, recipient: RecipientProxy) -> None:
        """Have it make nothing more."""
        self._places.remove(recipient)

    async def take(self, event: LogEvent, service: str) -> RecipientProxy:
        """Wait for a free worker of a service, and take it to make an output; ``free`` gives it back.

        Raises:
            Absent: nobody is there who could.
        """

        def fits(worker: RecipientProxy) -> bool:
            # A worker in trouble gets nothing but its probe.
            return worker.abilities.takes_whole(event.items) and self._slots.is_present(This(worker))

        (worker,) = await self._places.take([AnyOf(service, fits)])
        return worker

    def free(self, worker: RecipientProxy) -> None:
        """Give a worker back that was taken."""
        self._places.free(worker)

    async def hold(self, worker: RecipientProxy, attempt: OutputAttempt) -> None:
        """Have a worker that goes on with an attempt count as taken until that is over."""
        with suppress(Absent):
            await self._places.take([This(worker)])
            try:
                await attempt.over.wait()
            finally:
                self._places.free(worker)

    def has_forgotten(self, worker: RecipientProxy, attempt: OutputAttempt) -> bool:
        """Check whether a worker that has just come no longer knows an attempt that it was to make."""
        told = worker.abilities.bulk_attempts
        if told is None or str(attempt.id) in told:
            return False
        # It could not report outputs that began during its introduction.
        age = None if attempt.began is None else self._clock.monotonic() - attempt.began
        return age is None or age > self._register_timeout
