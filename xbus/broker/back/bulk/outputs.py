"""Has bulk workers make the outputs that deliveries need, before any consumer is started for these."""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from xbus.broker.back.bulk.attempt import OutputAttempt, WantedOutput
from xbus.broker.back.bulk.attempts import UNWANTED, OutputAttempts
from xbus.broker.back.bulk.waiting import WaitingDeliveries
from xbus.broker.back.log import LogReader, headers_map
from xbus.broker.back.recipients import (
    Absent,
    AnyOf,
    FailureClass,
    RecipientFailed,
    RecipientProxy,
    Registry,
    ServedRole,
    Slots,
    This,
    no_output,
    own_fault,
)
from xbus.broker.journal.bulk.cleaning import LOST
from xbus.broker.journal.bulk.outputs import read_totals
from xbus.broker.journal.log.reading import LogEnvelope, LogEvent
from xbus.clock import Clock
from xbus.graph import Graph
from xbus.rpc.messages import OutputHandover
from xbus.states import AttemptState


class BulkJobSender:
    """Asks workers for outputs.

    Args:
        attempts: those that count.
        log: where outputs are looked at.
    """

    def __init__(self, attempts: OutputAttempts, log: LogReader) -> None:
        self._attempts = attempts
        self._log = log

    async def hand_over(
        self, worker: RecipientProxy, envelope: LogEnvelope, event: LogEvent, attempt: OutputAttempt, graph: Graph
    ) -> None:
        """Have a worker begin with an attempt.

        Raises:
            RecipientFailed: it does not take it, or the output that it was to read misses items.
        """
        made = self._input(attempt.output, graph)
        if made is not None and not await self._is_whole(made):
            raise await self._attempts.lost(made.id, f"the output of attempt {made.id} misses items")
        extra = {"action": "output_begun", "envelope_id": envelope.envelope_id, "attempt_id": attempt.id}
        log.info("output asked for", extra={**extra, "role": worker.role.login, "node": attempt.output.node})
        words = self._words(event, attempt, made)
        if worker.abilities.headers:
            words = {**words, **headers_map(event.tags, envelope.head.headers)}
        await worker.take_output(envelope.envelope_id, event, words)

    def _words(self, event: LogEvent, attempt: OutputAttempt, made: OutputAttempt | None) -> OutputHandover:
        """Make the hand-over in the form of the wire."""
        return {
            "attempt_id": str(attempt.id),
            "node": attempt.output.node,
            "event_id": str(event.segments_id),
            "input": None if made is None else str(made.id),
            "items": event.items if made is None else made.items,
            "lease": self._attempts.lease,
        }

    def _input(self, output: WantedOutput, graph: Graph) -> OutputAttempt | None:
        """Give the attempt whose output comes in; None if the event's items do."""
        made = [
            self._attempts.get(WantedOutput(output.event_id, output.graph_id, name))
            for name in graph.parents(output.node)
        ]
        return made[0] if made else None

    async def _is_whole(self, made: OutputAttempt) -> bool:
        """Check whether all of a ready output still exists: a rest must not pass for the whole."""
        return (await self._log.read(read_totals, made.id)).items == made.items


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


T = TypeVar("T")


class BulkOutputs:
    """The outputs of bulk workers: who is asked for them, and what becomes of those that come to nothing.

    Args:
        attempts: those that count.
        waiting: the deliveries that wait for them.
        pool: who makes them.
        job_sender: asks them.
        log: where graphs are read.
        registry: knows who is registered.
        tasks: where it is waited for workers.
    """

    def __init__(
        self,
        attempts: OutputAttempts,
        waiting: WaitingDeliveries,
        pool: BulkWorkerPool,
        job_sender: BulkJobSender,
        log: LogReader,
        registry: Registry,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._attempts = attempts
        self._waiting = waiting
        self._pool = pool
        self._job_sender = job_sender
        self._log = log
        self._registry = registry
        self._tasks = tasks
        self._making: dict[WantedOutput, asyncio.Task[None]] = {}
        self._failing: set[WantedOutput] = set()
        self._running: set[asyncio.Task[Any]] = set()

    # -- who comes and goes ----------------------------------------------------------------------------------------

    def joined(self, recipient: RecipientProxy) -> None:
        """Let a bulk worker go on with its outputs, and have those made anew that it has forgotten."""
        if not self._pool.add(recipient):
            return
        for attempt in self._attempts.in_hand():
            if attempt.role_id != recipient.role.id or self._is_made_beside(attempt, recipient):
                continue
            if self._pool.has_forgotten(recipient, attempt):
                cause = "its worker has started anew and does not make it any more"
                failure = no_output(attempt.role_id, attempt.output.event_id, LOST, cause)
                self.spawn(self.fail(attempt, failure), "lost output")
            else:
                attempt.maker = recipient
                self.spawn(self._pool.hold(recipient, attempt), "slot of an output")

    @staticmethod
    def _is_made_beside(attempt: OutputAttempt, recipient: RecipientProxy) -> bool:
        """Check whether another program of the role makes an output, or may: its lease tells when that one is lost."""
        if str(attempt.id) in (recipient.abilities.bulk_attempts or ()):
            return False
        if attempt.maker is None:
            return recipient.role.instances > 1
        return not attempt.maker.is_closed

    def may_begin(self, served: ServedRole) -> None:
        """Give the outputs that wait for other workers to those of a role that was paused or in trouble."""
        for recipient in served.instances:
            self._pool.add(recipient)

    def parted(self, recipient: RecipientProxy) -> None:
        """Note that a bulk worker left; only when their leases are over its outputs are lost."""
        self._pool.remove(recipient)

    def made_by(self, recipient: RecipientProxy) -> list[OutputAttempt]:
        """List the attempts that a recipient makes now."""
        of_role = [attempt for attempt in self._attempts.building() if attempt.role_id == recipient.role.id]
        return [attempt for attempt in of_role if attempt.maker is None or attempt.maker is recipient]

    # -- having them made ------------------------------------------------------------------------------------------

    def make(self, envelope: LogEnvelope, wanted: Sequence[tuple[LogEvent, WantedOutput]]) -> None:
        """Have outputs made for which deliveries wait now, where nobody makes them yet."""
        for event, output in wanted:
            attempt = self._attempts.get(output)
            if attempt is not None and attempt.state is AttemptState.READY:
                self._waiting.wake(output)
            elif attempt is None and output not in self._making:
                task = self.spawn(self._make(envelope, event, output), f"output {output.node}")
                self._making[output] = task
                task.add_done_callback(partial(self._made, output))

    async def _make(self, envelope: LogEnvelope, event: LogEvent, output: WantedOutput) -> None:
        try:
            graph = await self._log.graph(output.graph_id)
            worker = await self._pool.take(event, graph.nodes[output.node].service)
        except Absent:
            self._waiting.wake(output)
            return
        try:
            attempt = await self._attempts.begin(output, envelope.envelope_id, worker.role.id, event.items)
            if attempt is None:
                self._waiting.wake(output)
                return
            attempt.maker = worker
            try:
                await self._job_sender.hand_over(worker, envelope, event, attempt, graph)
            except RecipientFailed as failure:
                await self.fail(attempt, failure)
            await attempt.over.wait()
        except Exception as error:
            # A fault of ours with this envelope: it is parked, and all others go on.
            log.exception("an output was not asked for", extra={"action": "output_died"})
            await self._waiting.failed(output, own_fault(error))
        finally:
            self._pool.free(worker)

    def _made(self, output: WantedOutput, task: "asyncio.Task[None]") -> None:
        """Note that nobody makes an output any more, and look anew at deliveries that have come to wait for it."""
        if self._making.get(output) is task:
            del self._making[output]
        if not task.cancelled():
            self._look_again(output)

    # -- what comes to nothing -------------------------------------------------------------------------------------

    async def fail(
        self, attempt: OutputAttempt, failure: RecipientFailed, state: AttemptState = AttemptState.ABANDONED
    ) -> bool:
        """Note that an attempt came to nothing, and decide what becomes of what waits for it.

        Returns:
            Whether it was being made until now.
        """
        output = attempt.output
        failure.happened_at((output.node,), attempt.event_items)
        if not attempt.is_building:
            return False
        self._failing.add(output)
        try:
            return await self._fail(attempt, failure, state)
        finally:
            self._failing.discard(output)
            self._look_again(output)

    async def _fail(self, attempt: OutputAttempt, failure: RecipientFailed, state: AttemptState) -> bool:
        if not await self._attempts.end(attempt, state, code=failure.code, cause=failure.cause):
            return False
        log.warning(
            "output not made: %s",
            failure.cause,
            extra={"action": f"output_{state.value}", "attempt_id": attempt.id, "code": failure.code},
        )
        if failure.failure_class is not FailureClass.PERMANENT:
            # What it refused it knows of.
            self._stop_worker(attempt)
        await self._waiting.failed(attempt.output, failure)
        return True

    def unfinished(self) -> set[WantedOutput]:
        """Collect the outputs that workers make or are to make."""
        return {*(attempt.output for attempt in self._attempts.in_hand()), *self._making}

    async def give_up(self, output: WantedOutput) -> None:
        """Break off what nobody wants; who comes to wait for it from now on has it made anew."""
        attempt = self._attempts.get(output)
        if attempt is None:
            making = self._making.pop(output, None)
            if making is not None:
                making.cancel()
        elif attempt.is_in_hand:
            log.info("output not wanted", extra={"action": "output_unwanted", "attempt_id": attempt.id})
            await self._attempts.end(attempt, AttemptState.ABANDONED, code="unwanted", cause=UNWANTED)
            self._stop_worker(attempt)
            self._look_again(output)

    def _stop_worker(self, attempt: OutputAttempt) -> None:
        """Stop a worker whose attempt nobody waits for any more."""
        served = self._registry.get(attempt.role_id)
        for worker in () if served is None else served.instances:
            if worker.abilities.bulk_items is not None and attempt.maker in (None, worker):
                worker.stop_output_soon(attempt.id)

    def _look_again(self, output: WantedOutput) -> None:
        """Let go on who has come to wait for an output just when nobody was to make it any more."""
        if output not in self._failing and output not in self._making and self._attempts.get(output) is None:
            self._waiting.wake(output)

    # -- what goes on beside ---------------------------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, T], name: str) -> "asyncio.Task[T]":
        """Run work beside everything else, until ``stop`` is called."""
        task: asyncio.Task[T] = self._tasks.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def stop(self) -> None:
        """Ask nobody any more; workers go on with what they have."""
        for task in self._running:
            task.cancel()


log = logging.getLogger(__name__)


UNWANTED_SECONDS = 3.0
"""Seconds after which an output that no delivery waits for is broken off. A redelivery may want it once more."""

FORGET_SECONDS = 600.0
"""Seconds between looks for outputs that were removed with their envelopes."""


class Leases:
    """Keeps an attempt alive while its worker gives signs of life and deliveries wait for it.

    Args:
        attempts: the attempts that count.
        waiting: the deliveries that wait for outputs.
        outputs: fails attempts, and cancels them.
        clock: measures leases.
        look_seconds: the most seconds between two looks at the leases.
    """

    def __init__(
        self,
        attempts: OutputAttempts,
        waiting: WaitingDeliveries,
        outputs: BulkOutputs,
        clock: Clock,
        look_seconds: float,
    ) -> None:
        self._attempts = attempts
        self._waiting = waiting
        self._outputs = outputs
        self._clock = clock
        self._look_seconds = look_seconds
        self._unwanted: dict[WantedOutput, float] = {}

    async def watch(self) -> None:
        """Look at all attempts in the making, for ever."""
        forget_at = self._clock.monotonic() + FORGET_SECONDS
        while True:
            await self._pause()
            now = self._clock.monotonic()
            self._fail_overdue(now)
            await self._give_up_unwanted(now)
            if now > forget_at:
                forget_at = now + FORGET_SECONDS
                await self._attempts.forget_removed()

    async def _pause(self) -> None:
        seconds = min(self._look_seconds, self._attempts.lease / 4)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.sleep(seconds)
        # While the broker itself stood still it heard nobody.
        self._attempts.extend(loop.time() - began - seconds)

    def _fail_overdue(self, now: float) -> None:
        for attempt in self._attempts.in_hand():
            if attempt.deadline < now:
                cause = f"its worker gave no sign of life for {self._attempts.lease:g} seconds"
                failure = no_output(attempt.role_id, attempt.output.event_id, "lease_over", cause)
                self._outputs.spawn(self._outputs.fail(attempt, failure), "end of a lease")

    async def _give_up_unwanted(self, now: float) -> None:
        unwanted = [output for output in self._outputs.unfinished() if not self._waiting.is_wanted(output)]
        self._unwanted = {output: self._unwanted.get(output, now) for output in unwanted}
        for output in [output for output, since in self._unwanted.items() if now - since >= UNWANTED_SECONDS]:
            # Ending another one may have taken a while: it may be wanted, ready or over by now.
            if not self._waiting.is_wanted(output):
                await self._outputs.give_up(output)
