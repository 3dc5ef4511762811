"""Has bulk workers make the outputs that deliveries need, before any consumer is started for these."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from xbus.broker.back.attempts import Attempt, Attempts, Output
from xbus.broker.back.awaiting import Awaiting
from xbus.broker.back.failures import FailureClass, RecipientFailed, no_output, own_fault
from xbus.broker.back.log import Log
from xbus.broker.back.recipient import Recipient
from xbus.broker.back.registry import Registry
from xbus.broker.back.slots import Absent, AnyOf, Slots, This
from xbus.broker.journal.bulk_standing import read_awaiting
from xbus.broker.journal.catalog import Catalog
from xbus.broker.journal.log import LogEnvelope, LogEvent
from xbus.broker.journal.writes import Delivery
from xbus.clock import Clock
from xbus.graph import Graph
from xbus.states import AttemptState

log = logging.getLogger(__name__)

UNWANTED_SECONDS = 3.0
"""What nobody waits for is broken off after this long: a delivery that comes again may wait for it once more."""

LOOK_SECONDS = 1.0
"""How often leases are looked at, at the least."""

FORGET_SECONDS = 600.0
"""How often it is looked which outputs were removed with their envelopes."""


class Outputs:
    """The outputs of bulk workers: which are needed, being made, and ready.

    Args:
        attempts: those that count.
        awaiting: the deliveries that wait for them.
        log: where graphs are read.
        registry: who is there.
        slots: who takes anything at all now.
        clock: measures leases.
        tasks: where it is waited for workers.
        catalog: the configuration as it is now.
        register_timeout: how long a recipient may take to introduce itself, in seconds.
    """

    def __init__(
        self,
        attempts: Attempts,
        awaiting: Awaiting,
        log: Log,
        registry: Registry,
        slots: Slots[Recipient],
        clock: Clock,
        tasks: asyncio.TaskGroup,
        catalog: Callable[[], Catalog],
        register_timeout: float,
    ) -> None:
        self._attempts = attempts
        self._awaiting = awaiting
        self._log = log
        self._registry = registry
        self._slots = slots
        # Apart from the slots for events that are sent, whose runs hold consumers: a long job must not keep those.
        self._makers: Slots[Recipient] = Slots()
        self._clock = clock
        self._tasks = tasks
        self._catalog = catalog
        self._register_timeout = register_timeout
        self._making: dict[Output, asyncio.Task[None]] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._failing: set[Output] = set()
        self._unwanted: dict[Output, float] = {}

    # -- who comes and goes ----------------------------------------------------------------------------------------

    def arrived(self, recipient: Recipient) -> None:
        """A bulk worker goes on with what it makes; what it has forgotten is to be made anew."""
        if recipient.abilities.bulk_items is None or not recipient.role.worker:
            return
        self._makers.add(recipient, recipient.role.service, recipient.abilities.envelopes)
        for attempt in self._attempts.building():
            # One that was said to be ready is its worker's no longer: only what is found there counts.
            if attempt.role_id != recipient.role.id or attempt.report is not None:
                continue
            if self._is_forgotten(recipient, attempt):
                cause = "its worker has started anew and does not make it any more"
                failure = no_output(attempt.role_id, attempt.output.event_id, "output_lost", cause)
                self.spawn(self.fail(attempt, failure), "lost output")
            else:
                self.spawn(self._hold_slot(recipient, attempt), "slot of an output")

    def left(self, recipient: Recipient) -> None:
        """It may come back and go on: what it makes is lost only when its lease is over."""
        self._makers.remove(recipient)

    def _is_forgotten(self, recipient: Recipient, attempt: Attempt) -> bool:
        told = recipient.abilities.bulk_attempts
        if told is None or str(attempt.id) in told:
            return False
        # What began while it introduced itself it could not tell of.
        age = None if attempt.began is None else self._clock.monotonic() - attempt.began
        return age is None or age > self._register_timeout

    async def _hold_slot(self, recipient: Recipient, attempt: Attempt) -> None:
        with suppress(Absent):
            await self._makers.take([This(recipient)])
            try:
                await attempt.over.wait()
            finally:
                self._makers.free(recipient)

    def made_by(self, recipient: Recipient) -> list[Attempt]:
        """What a recipient makes just now."""
        return [attempt for attempt in self._attempts.building() if attempt.role_id == recipient.role.id]

    # -- having them made ------------------------------------------------------------------------------------------

    def make(self, envelope: LogEnvelope, wanted: Sequence[tuple[LogEvent, Output]]) -> None:
        """Have outputs made for which deliveries wait now, where nobody makes them yet."""
        for event, output in wanted:
            attempt = self._attempts.get(output)
            if attempt is not None and attempt.state is AttemptState.READY:
                self._awaiting.wake(output)
            elif attempt is None and output not in self._making:
                task = self.spawn(self._make(envelope, event, output), f"output {output.node}")
                self._making[output] = task
                task.add_done_callback(partial(self._made, output))

    def _made(self, output: Output, task: "asyncio.Task[None]") -> None:
        """Nobody sees to an output any more; who has come to wait for it meanwhile is looked at anew."""
        if self._making.get(output) is task:
            del self._making[output]
        if not task.cancelled():
            self._look_again(output)

    def _look_again(self, output: Output) -> None:
        """Let go on who has come to wait for an output just when nobody was to make it any more."""
        if output not in self._failing and output not in self._making and self._attempts.get(output) is None:
            self._awaiting.wake(output)

    async def _make(self, envelope: LogEnvelope, event: LogEvent, output: Output) -> None:
        try:
            graph = await self._log.graph(output.graph_id)
            (worker,) = await self._makers.take([self._maker(event, graph.nodes[output.node].service)])
        except Absent:
            self._awaiting.wake(output)
            return
        try:
            attempt = await self._attempts.begin(output, envelope.envelope_id, worker.role.id, event.items)
            if attempt is None:
                self._awaiting.wake(output)
                return
            await self._hand_over(worker, envelope, event, attempt, graph)
            await attempt.over.wait()
        except Exception as error:
            # A fault of ours with this envelope: it is parked, and all others go on.
            log.exception("an output was not asked for", extra={"action": "output_died"})
            await self._awaiting.failed(output, own_fault(error))
        finally:
            self._makers.free(worker)

    def _maker(self, event: LogEvent, service: str) -> AnyOf:
        """Any worker that makes an output; of one in trouble nothing is wanted but what it is probed with."""
        return AnyOf(
            service,
            lambda worker: worker.abilities.takes_whole(event.items) and self._slots.is_present(This(worker)),
        )

    async def _hand_over(
        self, worker: Recipient, envelope: LogEnvelope, event: LogEvent, attempt: Attempt, graph: Graph
    ) -> None:
        made = self._input(attempt.output, graph)
        handover = {
            "attempt_id": str(attempt.id),
            "node": attempt.output.node,
            "event_id": str(event.segments_id),
            "input": None if made is None else str(made.id),
            "items": event.items if made is None else made.items,
            "lease": self._attempts.lease,
        }
        extra = {"action": "output_begun", "envelope_id": envelope.envelope_id, "attempt_id": attempt.id}
        log.info("output asked for", extra={**extra, "role": worker.role.login, "node": attempt.output.node})
        try:
            await worker.take_output(envelope.envelope_id, event, handover)
        except RecipientFailed as failure:
            await self.fail(attempt, failure)

    def _input(self, output: Output, graph: Graph) -> Attempt | None:
        """The attempt whose output comes in; None where the event's items do."""
        made = [
            self._attempts.get(Output(output.event_id, output.graph_id, name)) for name in graph.parents(output.node)
        ]
        return made[0] if made else None

    async def fail(
        self, attempt: Attempt, failure: RecipientFailed, state: AttemptState = AttemptState.ABANDONED
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

    async def _fail(self, attempt: Attempt, failure: RecipientFailed, state: AttemptState) -> bool:
        if not await self._attempts.end(attempt, state, code=failure.code, cause=failure.cause):
            return False
        log.warning(
            "output not made: %s",
            failure.cause,
            extra={"action": f"output_{state.value}", "attempt_id": attempt.id, "code": failure.code},
        )
        self._break_off(attempt, failure)
        await self._awaiting.failed(attempt.output, failure)
        return True

    def _break_off(self, attempt: Attempt, failure: RecipientFailed | None = None) -> None:
        """Tell its worker that nobody waits for an attempt, where it may not know."""
        worker = self._registry.get(attempt.role_id)
        knows = failure is not None and failure.failure_class is FailureClass.PERMANENT
        if worker is not None and worker.abilities.bulk_items is not None and not knows:
            worker.stop_output_soon(attempt.id)

    # -- leases ----------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """For ever: give up what nobody is heard of, and break off what nobody wants."""
        forget_at = self._clock.monotonic() + FORGET_SECONDS
        loop = asyncio.get_running_loop()
        while True:
            seconds = min(LOOK_SECONDS, self._attempts.lease / 4)
            looked_at = loop.time()
            await asyncio.sleep(seconds)
            # While the broker itself stood still it heard nobody.
            self._attempts.extend(loop.time() - looked_at - seconds)
            now = self._clock.monotonic()
            for attempt in self._attempts.building():
                if attempt.deadline < now and attempt.report is None:
                    cause = f"its worker gave no sign of life for {self._attempts.lease:g} seconds"
                    failure = no_output(attempt.role_id, attempt.output.event_id, "lease_over", cause)
                    self.spawn(self.fail(attempt, failure), "end of a lease")
            await self._break_off_unwanted(now)
            if now > forget_at:
                forget_at = now + FORGET_SECONDS
                await self._attempts.forget_removed()

    async def _break_off_unwanted(self, now: float) -> None:
        building = [attempt.output for attempt in self._attempts.building() if attempt.report is None]
        unwanted = [output for output in {*building, *self._making} if not self._awaiting.is_wanted(output)]
        self._unwanted = {output: self._unwanted.get(output, now) for output in unwanted}
        for output in [output for output, since in self._unwanted.items() if now - since >= UNWANTED_SECONDS]:
            # Ending another one may have taken a while: it may be wanted, ready or over by now.
            if self._awaiting.is_wanted(output):
                continue
            attempt = self._attempts.get(output)
            if attempt is None:
                # Who comes to wait for it from now on has it made anew.
                making = self._making.pop(output, None)
                if making is not None:
                    making.cancel()
            elif attempt.is_building and attempt.report is None:
                await self._give_up(attempt)

    async def _give_up(self, attempt: Attempt) -> None:
        """Break off what nobody wants; who comes to wait for it just then has it made anew."""
        log.info("output not wanted", extra={"action": "output_unwanted", "attempt_id": attempt.id})
        cause = "nobody is owed it any more"
        await self._attempts.end(attempt, AttemptState.ABANDONED, code="unwanted", cause=cause)
        self._break_off(attempt)
        self._look_again(attempt.output)

    # -- starting and stopping -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take up what is being made and what waits for it, and begin to watch over leases."""
        await self._attempts.load()
        rows = await self._log.read(read_awaiting)
        envelopes = {envelope.position: envelope for envelope in await self._log.at([row.position for row in rows])}
        for row in rows:
            await self._take_up(row, envelopes.get(row.position))
        self.spawn(self._watch(), "leases of outputs")

    async def _take_up(self, row: Delivery, envelope: LogEnvelope | None) -> None:
        """Have a delivery wait on for what is being made still; where that is nothing it is looked at anew."""
        role = self._catalog().roles.get(row.role_id)
        if envelope is None or role is None:
            return
        building: list[Output] = []
        for event in envelope.events:
            part = (await self._log.graph(event.graph_id)).leading_to({role.service})
            known = [attempt for attempt in self._attempts.of_event(event) if attempt.is_building]
            building += [attempt.output for attempt in known if attempt.output.node in part.nodes]
        if building:
            self._awaiting.take_up(envelope, row, building)
        else:
            self._awaiting.let_go(envelope, row)

    def stop(self) -> None:
        """Ask nobody any more; workers go on with what they have."""
        for task in self._running:
            task.cancel()

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> "asyncio.Task[Any]":
        """Do something beside until ``stop`` is called."""
        task: asyncio.Task[Any] = self._tasks.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task
