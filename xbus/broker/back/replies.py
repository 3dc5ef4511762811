"""Immediate replies: events delivered at their end, ahead of their envelope, because their emitter waits.

It uses dispatch and progress as an envelope's ordinary delivery does; nothing but the assembly imports it.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from typing import Any
from uuid import UUID
from weakref import WeakValueDictionary

from xbus.broker.back.dispatch import RunLauncher
from xbus.broker.back.log import LogReader
from xbus.broker.back.progress import DeliveryLedger, OpenReplies, OpenReply
from xbus.broker.back.recipients import Absent, RecipientFailed, RecipientProxy, Registry, ServedRole, own_fault
from xbus.broker.back.run import BackRunContext, Run
from xbus.broker.back.runtime import Runtime
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.deliveries import read_role_services
from xbus.broker.journal.log.reading import read_sealed
from xbus.broker.journal.log.replies import Ask, read_asks, read_cancelled, read_held_replies
from xbus.broker.journal.writes import MoveReply
from xbus.errors import JournalError, JournalUnavailable
from xbus.graph import Graph
from xbus.rpc.codec import Value, pack
from xbus.states import ReplyState

log = logging.getLogger(__name__)


ARRIVAL_SECONDS = 1.0
"""Seconds between looks for a consumer that has come, in case a wake-up got lost."""


class NoReply(Exception):
    """There will be no reply.

    Args:
        code: as ``docs/wire.md`` lists them.
        cause: in a sentence.
    """

    def __init__(self, code: str, cause: str) -> None:
        super().__init__(cause)
        self.code = code
        self.cause = cause


async def replier(type_name: str, graph: Graph, registry: Registry) -> ServedRole:
    """Wait for the consumer that is to reply and the workers before it, and give the consumer.

    Args:
        type_name: of the event.
        graph: the event's.
        registry: knows who is registered.

    Raises:
        NoReply: several consumers are registered, or this one did not announce the event type.
    """
    while True:
        consumers = [each for each in registry.all() if each.role.service in graph.consumer_services]
        if len(consumers) > 1:
            logins = ", ".join(sorted(consumer.role.login for consumer in consumers))
            raise NoReply("reply_ambiguous", f"more than one consumer is registered: {logins}")
        for consumer in consumers:
            if type_name not in consumer.abilities.immediate_reply:
                raise NoReply(
                    "reply_unsupported", f'{consumer.role.login} did not announce immediate replies to "{type_name}"'
                )
            workers = graph.leading_to({consumer.role.service}).worker_services
            if all(registry.is_served(service) for service in workers):
                return consumer
        await registry.arrival(ARRIVAL_SECONDS)


class ReplyRecords:
    """The rows of replies.

    Args:
        journal: makes them durable.
        ledger: takes note of deliveries.
        tasks: write a reply that nobody waits for.
        ring: tells the front of a reply.
    """

    def __init__(
        self, journal: Journal, ledger: DeliveryLedger, tasks: asyncio.TaskGroup, ring: Callable[[], None]
    ) -> None:
        self._journal = journal
        self._ledger = ledger
        self._tasks = tasks
        self._ring = ring

    async def keep(self, ask: Ask, role_id: int, reply: Value) -> None:
        """Make a reply durable, and tell the front of it; its consumer keeps the envelope open.

        Raises:
            JournalError: the reply could not be written.
        """
        held = MoveReply(ask.event.event_id, ask.envelope_id, ReplyState.HELD, role_id, pack(reply))
        await self._journal.write(held)
        self._ring()

    async def fail(self, ask: Ask, failure: NoReply) -> None:
        """Note that no reply comes, and tell the front of it."""
        log.info(
            "no immediate reply: %s",
            failure.cause,
            extra={"action": failure.code, "envelope_id": ask.envelope_id, "event_id": ask.event.event_id},
        )
        await self.write(
            MoveReply(ask.event.event_id, ask.envelope_id, ReplyState.FAILED, code=failure.code, cause=failure.cause)
        )
        self._ring()

    def note_given(self, open_reply: OpenReply) -> None:
        """Note soon that no consumer keeps an envelope open any more for its replies."""
        work = self._write_given(open_reply)
        try:
            self._tasks.create_task(work)
        except RuntimeError:
            # The broker is ending: the next run finds it held, and tells the consumer once more to forget it.
            work.close()

    async def _write_given(self, open_reply: OpenReply) -> None:
        # Not before the row of an open reply that is carried on: until then a crash leaves it to be stopped.
        await self._ledger.written()
        for move in moves_to_given(open_reply):
            await self.write(move)

    async def write(self, move: MoveReply) -> None:
        """Move a row, as far as the database can now."""
        try:
            await self._journal.write(move)
        except JournalError as error:
            # A row that stays as it was is looked at again, here or by the next run of the broker.
            log.warning("a reply is not moved: %s", error, extra={"action": "reply_unmoved"})


def moves_to_given(open_reply: OpenReply) -> list[MoveReply]:
    """List the moves to write when an envelope is no longer kept open."""
    return [MoveReply(event_id, open_reply.envelope_id, ReplyState.GIVEN) for event_id in open_reply.event_ids]


MAX_TOLD = 10
"""The most errors of a recipient that its emitter gets; the journal keeps all as failures."""


class EarlyDelivery:
    """Asks consumers for replies.

    Args:
        log: reads graphs.
        registry: knows who is registered.
        context: the context of runs.
        ledger: takes note of failures.
        open_replies: what consumers keep open.
        records: make replies durable.
        hold_seconds: for how long a consumer keeps an envelope open without its end.
    """

    def __init__(
        self,
        log: LogReader,
        registry: Registry,
        context: BackRunContext,
        ledger: DeliveryLedger,
        open_replies: OpenReplies,
        records: ReplyRecords,
        hold_seconds: float,
    ) -> None:
        self._log = log
        self._registry = registry
        self._context = context
        self._ledger = ledger
        self.open_replies = open_replies
        self._records = records
        self._hold_seconds = hold_seconds

    async def deliver(self, ask: Ask) -> None:
        """Deliver an event, and make the reply to it durable.

        Raises:
            NoReply: no consumer gave a reply.
            JournalError: the reply could not be written.
        """
        open_reply = await self._open_reply(ask)
        recipient = open_reply.recipient
        event_id = ask.event.event_id
        try:
            reply = await self._ask(open_reply, ask)
            stays_open = self._is_open(open_reply)
            if stays_open:
                open_reply.event_ids.append(event_id)
            await self._records.keep(ask, recipient.role.id, reply)
        except BaseException:
            self.give_up(open_reply)
            # Where it was lost before, workers may have begun since.
            open_reply.run.stop()
            raise
        if not stays_open:
            await self._records.write(MoveReply(event_id, ask.envelope_id, ReplyState.GIVEN))
        elif self._is_open(open_reply):
            open_reply.expiry = asyncio.get_running_loop().call_later(self._hold_seconds, self.give_up, open_reply)

    def give_up(self, open_reply: OpenReply) -> None:
        """Have the recipients forget an open reply, unless it has ended already."""
        if self.open_replies.take(open_reply.envelope_id, open_reply.recipient) is open_reply:
            open_reply.run.stop()
            self._context.release_slot(open_reply.recipient)

    def _is_open(self, open_reply: OpenReply) -> bool:
        return self.open_replies.get(open_reply.envelope_id, open_reply.recipient) is open_reply

    async def _open_reply(self, ask: Ask) -> OpenReply:
        """Give the consumer's open reply of the envelope, or begin one."""
        graph = await self._log.graph(ask.event.graph_id)
        while True:
            recipient = await replier(ask.event.type_name, graph, self._registry)
            known = self.open_replies.of_role(ask.envelope_id, recipient.role.id)
            if known is not None:
                return known
            try:
                instance = await self._context.acquire_slot(recipient)
            except Absent:
                # It has gone before it had a free slot: the next recipient of the role is asked.
                continue
            again = self.open_replies.may_be_open(ask.envelope_id, [instance])
            open_reply = OpenReply(
                ask.envelope_id, instance, Run(ask.envelope_id, [instance], self._context, again=again)
            )
            self.open_replies.add(open_reply)
            return open_reply

    async def _ask(self, open_reply: OpenReply, ask: Ask) -> Value:
        open_reply.forget_expiry()
        open_reply.asking = True
        try:
            return await open_reply.run.ask(ask.event, ask.headers)
        except Absent as absent:
            raise NoReply("reply_failed", f"a worker was lost: {absent}") from absent
        except RecipientFailed as failure:
            self._ledger.fail(ask.envelope_id, failure)
            code = "reply_refused" if failure.code == "refused" else "reply_failed"
            raise NoReply(code, "; ".join(error.message for error in failure.errors[:MAX_TOLD])) from failure
        finally:
            open_reply.asking = False


class LeftBehind:
    """Remembers for each role what it may keep open, until its recipient has forgotten it.

    Args:
        open_replies: those of this run of the broker.
        records: write down that nothing is open any more.
        tasks: send ``stop_envelope`` to recipients.
    """

    def __init__(self, open_replies: OpenReplies, records: ReplyRecords, tasks: asyncio.TaskGroup) -> None:
        self._open_replies = open_replies
        self._records = records
        self._tasks = tasks
        self._moves: defaultdict[int, defaultdict[UUID, list[MoveReply]]] = defaultdict(lambda: defaultdict(list))

    async def recover(self, journal: Journal, log: LogReader) -> None:
        """Learn what the last run of the broker left open.

        Args:
            journal: where that is found.
            log: where graphs are read.

        Raises:
            JournalUnavailable: the database can't be read now.
        """
        for reply in await journal.read(read_held_replies):
            if reply.role_id is not None:
                move = MoveReply(reply.event_id, reply.envelope_id, ReplyState.GIVEN)
                self._note(reply.role_id, reply.envelope_id, move)
        services = await journal.read(read_role_services)
        for ask in await journal.read(read_asks):
            # Without a reply nobody knows yet to which recipient it was handed.
            graph = await log.graph(ask.event.graph_id)
            for role_id, service in services.items():
                if service in graph.consumer_services:
                    self._note(role_id, ask.envelope_id)

    def _note(self, role_id: int, envelope_id: UUID, *moves: MoveReply) -> None:
        """Note what a role may have open, and what to write when it has not."""
        self._moves[role_id][envelope_id] += moves
        self._open_replies.mark_maybe_open(envelope_id, role_id)

    def joined(self, recipient: RecipientProxy) -> None:
        """Have a consumer forget what it may have open from an earlier registration."""
        for envelope_id, moves in self._moves.pop(recipient.role.id, {}).items():
            self._tasks.create_task(self._have_forgotten(recipient, envelope_id, moves))

    async def _have_forgotten(self, recipient: RecipientProxy, envelope_id: UUID, moves: Sequence[MoveReply]) -> None:
        try:
            await recipient.stop_envelope(envelope_id)
        except RecipientFailed:
            # The next run of the broker repeats this for all that stays in the journal; for a lost recipient it happens
            # before that.
            if recipient.is_closed:
                self._note(recipient.role.id, envelope_id, *moves)
            return
        self._open_replies.mark_closed(envelope_id, recipient.role.id)
        for move in moves:
            await self._records.write(move)

    def parted(self, recipient: RecipientProxy) -> None:
        """Take the open replies of a lost recipient, which may still have them open; after the seal they are
        redelivered."""
        for open_reply in self._open_replies.lose(recipient):
            open_reply.forget_expiry()
            open_reply.run.stop()
            self._note(recipient.role.id, open_reply.envelope_id, *moves_to_given(open_reply))


class ReplyService:
    """Answers the front's requests for replies.

    Args:
        log: reads the requests.
        early: delivers their events.
        launcher: carries on the open replies of a sealed envelope.
        records: note that no reply comes.
        runtime: its clock says when nobody waits any more; its tasks run all that goes on.
        expects: whether any event type has immediate replies.
    """

    def __init__(
        self,
        log: LogReader,
        early: EarlyDelivery,
        launcher: RunLauncher,
        records: ReplyRecords,
        runtime: Runtime,
        expects: Callable[[], bool],
    ) -> None:
        self._log = log
        self._early = early
        self._open_replies = early.open_replies
        self._launcher = launcher
        self._records = records
        self._clock = runtime.clock
        self._tasks = runtime.tasks
        self._retry_seconds = runtime.intervals.retry
        self._expects = expects
        self._in_progress: dict[UUID, asyncio.Task[None]] = {}
        self._turns: WeakValueDictionary[UUID, asyncio.Lock] = WeakValueDictionary()
        self._wake = asyncio.Event()
        # Look at once for requests to the last run of the broker.
        self._wake.set()

    # -- what calls for a look -------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Have the service look for news soon."""
        if self._in_progress or self._open_replies.open or self._expects():
            self._wake.set()

    async def watch(self) -> None:
        """Look for requests, and for the ends of envelopes that are kept open, for ever."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._look()

    def stop(self) -> None:
        """Answer nothing more, and have all that is held open forgotten."""
        for task in self._in_progress.values():
            task.cancel()
        for open_reply in self._open_replies.all():
            if not open_reply.asking:
                self._early.give_up(open_reply)

    async def _look(self) -> None:
        # A request that gets its answer during the read may still appear in it, though nobody waits any more. Its end
        # wakes the service, so the next look finds a repeated request.
        being_answered = set(self._in_progress)
        for ask in await self._log.read(read_asks):
            if ask.event.event_id in being_answered and ask.event.event_id not in self._in_progress:
                continue
            if ask.cancelled:
                self._call_off(ask)
            elif ask.event.event_id not in self._in_progress:
                turn = self._turns.setdefault(ask.envelope_id, asyncio.Lock())
                self._spawn(ask.event.event_id, self._answer(ask, turn))
        await self._look_for_ends()

    def _call_off(self, ask: Ask) -> None:
        in_progress = self._in_progress.get(ask.event.event_id)
        if in_progress is None:
            self._spawn(
                ask.event.event_id, self._records.fail(ask, NoReply("envelope_closed", "its envelope was cancelled"))
            )
        else:
            # Another look follows when it has ended.
            in_progress.cancel()

    def _spawn(self, event_id: UUID, work: Coroutine[Any, Any, None]) -> None:
        def ended(_: object) -> None:
            del self._in_progress[event_id]
            self._wake.set()

        task = self._in_progress[event_id] = self._tasks.create_task(work, name=f"reply to {event_id}")
        task.add_done_callback(ended)

    async def _look_for_ends(self) -> None:
        held = self._open_replies.all()
        if not held:
            return
        envelope_ids = list({open_reply.envelope_id for open_reply in held})
        sealed = {envelope.envelope_id: envelope for envelope in await self._log.read(read_sealed, envelope_ids)}
        cancelled = await self._log.read(read_cancelled, envelope_ids)
        for open_reply in held:
            if open_reply.envelope_id in sealed:
                self._launcher.carry_on(sealed[open_reply.envelope_id], open_reply.recipient)
            elif open_reply.envelope_id in cancelled and not open_reply.asking:
                self._early.give_up(open_reply)

    # -- an answer -------------------------------------------------------------------------------------------------

    async def _answer(self, ask: Ask, turn: asyncio.Lock) -> None:
        seconds = (ask.until - self._clock.now()).total_seconds()
        try:
            async with asyncio.timeout(seconds):
                # The events of an envelope come to a recipient one after another.
                async with turn:
                    await self._early.deliver(ask)
        except TimeoutError:
            await self._records.fail(ask, NoReply("reply_timed_out", "no consumer gave a reply in time"))
        except NoReply as failure:
            await self._records.fail(ask, failure)
        except JournalUnavailable as error:
            # It is asked for again at the next look; not at once, as what can't be written may well be read.
            log.warning("a reply is not written: %s", error, extra={"action": "reply_unwritten"})
            await asyncio.sleep(self._retry_seconds)
        except Exception as error:
            # A fault of ours with this event must not bring all other deliveries down.
            log.exception("a reply died", extra={"action": "reply_died", "envelope_id": ask.envelope_id})
            await self._records.fail(ask, NoReply("reply_failed", own_fault(error).cause))
