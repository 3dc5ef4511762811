"""Immediate replies: events that are delivered at their end, ahead of their envelope, as their emitters wait.

The consumer that replied holds the envelope open. When it is sealed the rest is delivered and committed; when it is
cancelled, or its end does not come, the consumer is told to forget it. Whatever was rolled back comes again after the
seal like any other event, and the first reply stands.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from typing import Any
from uuid import UUID
from weakref import WeakValueDictionary

from xbus.broker.back.dispatch.dispatcher import Dispatcher
from xbus.broker.back.log.reader import LogReader
from xbus.broker.back.progress.ledger import DeliveryLedger
from xbus.broker.back.progress.open_replies import OpenReplies, OpenReply
from xbus.broker.back.recipients.failures import RecipientFailed, own_fault
from xbus.broker.back.recipients.recipient import RecipientProxy
from xbus.broker.back.recipients.registry import Registry
from xbus.broker.back.recipients.slots import Absent
from xbus.broker.back.replies.choice import NoReply, replier
from xbus.broker.back.run.context import BackRunContext
from xbus.broker.back.run.run import Run
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.deliveries import read_role_services
from xbus.broker.journal.log.reading import read_sealed
from xbus.broker.journal.log.replies import Ask, read_asks, read_cancelled, read_held_replies
from xbus.broker.journal.writes import MoveReply
from xbus.clock import Clock
from xbus.errors import JournalError, JournalUnavailable
from xbus.rpc.codec import pack
from xbus.states import ReplyState

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0

MAX_TOLD = 10
"""How many of a recipient's errors its emitter is told; all are kept as failures."""


class ReplyService:
    """Answers what the front asks for.

    Args:
        journal: where replies are made durable.
        log: where asks are read.
        ledger: where failures are noted.
        registry: who is there.
        supplies: what runs live on.
        deliveries: carries on what is held open when its envelope is sealed.
        holds: what is held open.
        clock: says when nobody waits any more.
        tasks: where all that goes on runs.
        hold_seconds: for how long a consumer holds an envelope open without its end.
        ring: tells the front that there is a reply.
        expects: whether there are event types with immediate replies at all.
    """

    def __init__(
        self,
        journal: Journal,
        log: LogReader,
        ledger: DeliveryLedger,
        registry: Registry,
        supplies: BackRunContext,
        deliveries: Dispatcher,
        holds: OpenReplies,
        clock: Clock,
        tasks: asyncio.TaskGroup,
        *,
        hold_seconds: float,
        ring: Callable[[], None],
        expects: Callable[[], bool],
    ) -> None:
        self._journal = journal
        self._log = log
        self._ledger = ledger
        self._registry = registry
        self._supplies = supplies
        self._deliveries = deliveries
        self._holds = holds
        self._clock = clock
        self._tasks = tasks
        self._hold_seconds = hold_seconds
        self._ring = ring
        self._expects = expects
        self._under_way: dict[UUID, asyncio.Task[None]] = {}
        self._turns: WeakValueDictionary[UUID, asyncio.Lock] = WeakValueDictionary()
        self._left_behind: defaultdict[int, defaultdict[UUID, list[MoveReply]]] = defaultdict(lambda: defaultdict(list))
        self._wake = asyncio.Event()
        holds.on_taken = self._let_go

    # -- what calls for a look -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Learn what the last run of the broker left open."""
        for reply in await self._journal.read(read_held_replies):
            if reply.role_id is not None:
                move = MoveReply(reply.event_id, reply.envelope_id, ReplyState.GIVEN)
                self._leave_behind(reply.role_id, reply.envelope_id, move)
        services = await self._journal.read(read_role_services)
        for ask in await self._journal.read(read_asks):
            # Whom it was handed to is not known before there is a reply.
            graph = await self._log.graph(ask.event.graph_id)
            for role_id, service in services.items():
                if service in graph.consumer_services:
                    self._leave_behind(role_id, ask.envelope_id)
        self._wake.set()

    def _leave_behind(self, role_id: int, envelope_id: UUID, *moves: MoveReply) -> None:
        """Note what a role may have open without a broker that knows of it, and what to write when it has not."""
        self._left_behind[role_id][envelope_id] += moves
        self._holds.doubt(envelope_id, role_id)

    def wake(self) -> None:
        """There may be something new."""
        if self._under_way or self._holds or self._expects():
            self._wake.set()

    def arrived(self, recipient: RecipientProxy) -> None:
        """Tell a consumer to forget what it may hold open since it was here before."""
        for envelope_id, moves in self._left_behind.pop(recipient.role.id, {}).items():
            self._tasks.create_task(self._have_forgotten(recipient, envelope_id, moves))

    async def _have_forgotten(self, recipient: RecipientProxy, envelope_id: UUID, moves: Sequence[MoveReply]) -> None:
        try:
            await recipient.stop_envelope(envelope_id)
        except RecipientFailed:
            # What stays in the journal is told again by the next run of the broker; to one that was lost, before that.
            if recipient.is_closed:
                self._leave_behind(recipient.role.id, envelope_id, *moves)
            return
        self._holds.believe(envelope_id, recipient.role.id)
        for move in moves:
            await self._write(move)

    def left(self, recipient: RecipientProxy) -> None:
        """What it held open is lost with it, and comes again after the seal; it may come back with all of it open."""
        for hold in self._holds.lose(recipient):
            _forget_expiry(hold)
            hold.run.stop()
            self._leave_behind(recipient.role.id, hold.envelope_id, *_given(hold))

    async def watch(self) -> None:
        """For ever: look for asks, and for the ends of envelopes that are held open."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._look()

    def stop(self) -> None:
        """Answer nothing more, and have all that is held open forgotten."""
        for task in self._under_way.values():
            task.cancel()
        for hold in self._holds.all():
            if not hold.asking:
                self._give_up(hold)

    async def _look(self) -> None:
        # What is answered while the asks are read may be found as one, though it is none any more. Its end wakes, so
        # whoever asks again meanwhile is found by the next look.
        being_answered = set(self._under_way)
        for ask in await self._log.read(read_asks):
            if ask.event.event_id in being_answered and ask.event.event_id not in self._under_way:
                continue
            if ask.cancelled:
                self._call_off(ask)
            elif ask.event.event_id not in self._under_way:
                turn = self._turns.setdefault(ask.envelope_id, asyncio.Lock())
                self._spawn(ask.event.event_id, self._answer(ask, turn))
        await self._look_for_ends()

    def _call_off(self, ask: Ask) -> None:
        under_way = self._under_way.get(ask.event.event_id)
        if under_way is None:
            self._spawn(ask.event.event_id, self._fail(ask, NoReply("envelope_closed", "its envelope was cancelled")))
        else:
            # Another look follows when it has ended.
            under_way.cancel()

    def _spawn(self, event_id: UUID, work: Coroutine[Any, Any, None]) -> None:
        def ended(_: object) -> None:
            del self._under_way[event_id]
            self._wake.set()

        task = self._under_way[event_id] = self._tasks.create_task(work, name=f"reply to {event_id}")
        task.add_done_callback(ended)

    async def _look_for_ends(self) -> None:
        held = self._holds.all()
        if not held:
            return
        envelope_ids = list({hold.envelope_id for hold in held})
        sealed = {envelope.envelope_id: envelope for envelope in await self._log.read(read_sealed, envelope_ids)}
        cancelled = await self._log.read(read_cancelled, envelope_ids)
        for hold in held:
            if hold.envelope_id in sealed:
                self._deliveries.carry_on(sealed[hold.envelope_id], hold.recipient)
            elif hold.envelope_id in cancelled and not hold.asking:
                self._give_up(hold)

    # -- an answer -------------------------------------------------------------------------------------------------

    async def _answer(self, ask: Ask, turn: asyncio.Lock) -> None:
        seconds = (ask.until - self._clock.now()).total_seconds()
        try:
            async with asyncio.timeout(seconds):
                # The events of an envelope come to a recipient one after another.
                async with turn:
                    await self._deliver(ask)
        except TimeoutError:
            await self._fail(ask, NoReply("reply_timed_out", "no consumer gave a reply in time"))
        except NoReply as failure:
            await self._fail(ask, failure)
        except JournalUnavailable as error:
            # It is asked for again at the next look; not at once, as what can't be written may well be read.
            log.warning("a reply is not written: %s", error, extra={"action": "reply_unwritten"})
            await asyncio.sleep(RETRY_SECONDS)
        except Exception as error:
            # A fault of ours with this event must not bring all other deliveries down.
            log.exception("a reply died", extra={"action": "reply_died", "envelope_id": ask.envelope_id})
            await self._fail(ask, NoReply("reply_failed", own_fault(error).cause))

    async def _deliver(self, ask: Ask) -> None:
        hold = await self._hold(ask)
        recipient = hold.recipient
        event_id = ask.event.event_id
        try:
            reply = await self._ask(hold, ask)
            is_held = self._is_open(hold)
            if is_held:
                hold.event_ids.append(event_id)
            await self._journal.write(
                MoveReply(event_id, ask.envelope_id, ReplyState.HELD, recipient.role.id, pack(reply))
            )
        except BaseException:
            self._give_up(hold)
            # Where it was lost before, workers may have begun since.
            hold.run.stop()
            raise
        self._ring()
        if not is_held:
            await self._write(MoveReply(event_id, ask.envelope_id, ReplyState.GIVEN))
        elif self._is_open(hold):
            hold.expiry = asyncio.get_running_loop().call_later(self._hold_seconds, self._give_up, hold)

    def _is_open(self, hold: OpenReply) -> bool:
        return self._holds.get(hold.envelope_id, hold.recipient) is hold

    async def _hold(self, ask: Ask) -> OpenReply:
        """What the consumer holds open of the envelope, begun now where that is nothing."""
        graph = await self._log.graph(ask.event.graph_id)
        while True:
            recipient = await replier(ask.event.type_name, graph, self._registry)
            known = self._holds.get(ask.envelope_id, recipient)
            if known is not None:
                return known
            try:
                await self._supplies.engage(recipient)
            except Absent:
                # It has gone before it had a slot free: whoever comes in its place is asked.
                continue
            again = self._holds.is_doubtful(ask.envelope_id, [recipient])
            hold = OpenReply(ask.envelope_id, recipient, Run(ask.envelope_id, [recipient], self._supplies, again=again))
            self._holds.add(hold)
            return hold

    async def _ask(self, hold: OpenReply, ask: Ask) -> Any:
        _forget_expiry(hold)
        hold.asking = True
        try:
            return await hold.run.ask(ask.event)
        except Absent as absent:
            raise NoReply("reply_failed", f"a worker was lost: {absent}") from absent
        except RecipientFailed as failure:
            self._ledger.fail(ask.envelope_id, failure)
            code = "reply_refused" if failure.code == "refused" else "reply_failed"
            raise NoReply(code, "; ".join(error.message for error in failure.errors[:MAX_TOLD])) from failure
        finally:
            hold.asking = False

    # -- the end of it ---------------------------------------------------------------------------------------------

    def _give_up(self, hold: OpenReply) -> None:
        """Have forgotten what is held open, unless it has ended already."""
        if self._holds.take(hold.envelope_id, hold.recipient) is hold:
            hold.run.stop()
            self._supplies.give_back(hold.recipient)

    def _let_go(self, hold: OpenReply) -> None:
        _forget_expiry(hold)
        work = self._note_given(hold)
        try:
            self._tasks.create_task(work)
        except RuntimeError:
            # The broker is ending: the next run finds it held, and tells the consumer once more to forget it.
            work.close()

    async def _note_given(self, hold: OpenReply) -> None:
        # Not before the row of a hold that is carried on: until then a crash leaves it to be stopped.
        await self._ledger.written()
        for move in _given(hold):
            await self._write(move)

    async def _fail(self, ask: Ask, failure: NoReply) -> None:
        log.info(
            "no immediate reply: %s",
            failure.cause,
            extra={"action": failure.code, "envelope_id": ask.envelope_id, "event_id": ask.event.event_id},
        )
        await self._write(
            MoveReply(ask.event.event_id, ask.envelope_id, ReplyState.FAILED, code=failure.code, cause=failure.cause)
        )
        self._ring()

    async def _write(self, move: MoveReply) -> None:
        try:
            await self._journal.write(move)
        except JournalError as error:
            # A row that stays as it was is looked at again, here or by the next run of the broker.
            log.warning("a reply is not moved: %s", error, extra={"action": "reply_unmoved"})


def _forget_expiry(hold: OpenReply) -> None:
    if hold.expiry is not None:
        hold.expiry.cancel()


def _given(hold: OpenReply) -> list[MoveReply]:
    return [MoveReply(event_id, hold.envelope_id, ReplyState.GIVEN) for event_id in hold.event_ids]
