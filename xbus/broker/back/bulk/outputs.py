"""Has bulk workers make the outputs that deliveries need, before any consumer is started for these."""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from xbus.broker.back.bulk.attempt import OutputAttempt, WantedOutput
from xbus.broker.back.bulk.attempts import OutputAttempts
from xbus.broker.back.bulk.job_sender import BulkJobSender
from xbus.broker.back.bulk.waiting import WaitingDeliveries
from xbus.broker.back.bulk.workers import BulkWorkerPool
from xbus.broker.back.log import LogReader
from xbus.broker.back.recipients import (
    Absent,
    FailureClass,
    RecipientFailed,
    RecipientProxy,
    Registry,
    no_output,
    own_fault,
)
from xbus.broker.journal.bulk.cleaning import LOST
from xbus.broker.journal.log.reading import LogEnvelope, LogEvent
from xbus.states import AttemptState

log = logging.getLogger(__name__)

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
            cause = "nobody is owed it any more"
            await self._attempts.end(attempt, AttemptState.ABANDONED, code="unwanted", cause=cause)
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
