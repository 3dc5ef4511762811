"""The consumer of a node that emits: the bus itself, which takes the same calls as the programs of other nodes."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby, repeat
from typing import Any, TypeAlias

from xbus.broker.back.chaining.emission import Delivered, Emission, derive, find_plain, group_of, tags_of
from xbus.broker.back.log import BundleEntry, DeliveryNote, RunBatch
from xbus.broker.back.recipients import Abilities, CallTimeouts, RecipientProxy, Registry
from xbus.broker.back.runtime import Runtime
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.catalog import Catalog, EventType, RoleEntry
from xbus.broker.journal.log.envelopes import read_open_of_nodes
from xbus.broker.journal.writes import Cancel, SealedGroup, SealReceipt
from xbus.broker.journal.writes.bulk import OutputPage
from xbus.clock import Clock
from xbus.config import BackSettings
from xbus.errors import CallError, ConnectionLost, Failed, JournalError, Refused
from xbus.headers import NO_TAGS
from xbus.rpc.codec import Value
from xbus.rpc.messages import HeadersMap
from xbus.rpc.owed_calls import AnswerTaker, Callee, OverdueCall

Words: TypeAlias = DeliveryNote | HeadersMap
Writing: TypeAlias = asyncio.Future[SealedGroup] | asyncio.Future[SealReceipt] | None
"""The write of an envelope, or of a group of them; None where nothing is written."""


class EmittingConsumer(Callee):
    """A ``Callee`` in the back's own process: it emits what comes to a node.

    Each method is named as the verb that it answers. Nothing is kept of an envelope beyond its end.

    Args:
        role: of the node.
        journal: where it writes.
        clock: dates what it writes.
        tasks: where calls are carried out.
        catalog: the configuration as it is now.
        retry_seconds: between two tries while the database is away, or the journal is full.
        may_emit: false while the journal is full.
    """

    connection: bytes | None = None
    overdue: Sequence[OverdueCall] = ()
    """Its calls have no time-out."""
    owed: int = 0

    def __init__(
        self,
        role: RoleEntry,
        journal: Journal,
        clock: Clock,
        tasks: asyncio.TaskGroup,
        catalog: Callable[[], Catalog],
        retry_seconds: float,
        may_emit: Callable[[], bool],
    ) -> None:
        self._role = role
        self._journal = journal
        self._clock = clock
        self._tasks = tasks
        self._catalog = catalog
        self._retry_seconds = retry_seconds
        self._may_emit = may_emit
        self._emissions: dict[str, Emission] = {}
        self._prepared: dict[str, Delivered] = {}
        self._answered = asyncio.Event()
        self._now = asyncio.get_running_loop().time

    @property
    def heard_at(self) -> float:
        """Give the moment of now: it lives as long as the back does."""
        return self._now()

    def ask(
        self,
        method: str,
        args: tuple[object, ...],
        taker: AnswerTaker,
        timeout: float | None = None,
        renewed: Callable[[], float | None] | None = None,
    ) -> None:
        """Carry a verb out; the back waits for its own database as long as it takes."""
        carrying_out = self._carry_out(method, args)
        try:
            task = self._tasks.create_task(carrying_out, name=f"{method} of {self._role.login}")
        except RuntimeError:  # the broker ends just now
            carrying_out.close()
            taker(None, ConnectionLost(f"{self._role.login}: the broker ends"))
        else:
            self.owed += 1
            task.add_done_callback(partial(self._carried_out, taker))

    async def _carry_out(self, method: str, args: tuple[object, ...]) -> tuple[Value, CallError | None]:
        try:
            return await self._verbs[method](self, *args), None
        except CallError as error:
            return None, error
        except JournalError as error:
            return None, Failed(error.cause, error.next_step, code=error.code)
        except Exception as error:
            log.exception("a node could not emit", extra={"action": "not_emitted", "role": self._role.login})
            return None, Failed(f"a fault in the broker ({error!r:.200})", code="internal_error")

    def _carried_out(self, taker: AnswerTaker, task: "asyncio.Task[tuple[Value, CallError | None]]") -> None:
        self.owed -= 1
        self._answered.set()
        if not task.cancelled():
            taker(*task.result())

    async def settled(self) -> None:
        """Wait until nothing is owed."""
        while self.owed:
            self._answered.clear()
            await self._answered.wait()

    def close(self) -> None:
        """Do nothing: what is carried out comes to its end."""

    # -- verbs -----------------------------------------------------------------------------------------------------

    async def ping(self, text: str) -> Value:
        """Send a text back."""
        return text

    async def start_event(self, envelope_id: str, event_id: str, type_name: str, *words: Words) -> Value:
        """Begin an event."""
        self._begin_event(envelope_id, event_id, words)
        return [True]

    async def send_items(self, envelope_id: str, event_id: str, *batch: Any) -> Value:
        """Take items."""
        emission = self._emission(envelope_id)
        emission.hold(event_id, RunBatch(*batch))
        await emission.flush()
        return [True]

    async def append_output(self, envelope_id: str, event_id: str, page: OutputPage) -> Value:
        """Take items of an output; they stay in the journal."""
        await self._emission(envelope_id).append(event_id, page)
        return [True]

    async def end_event(self, envelope_id: str, event_id: str) -> Value:
        """End an event: nothing is to be done before the end of its envelope."""
        return [True]

    async def take_event(
        self, envelope_id: str, event_id: str, type_name: str, batches: Sequence[Any], commit: bool, *words: Words
    ) -> Value:
        """Take a whole event, and end its envelope if that is all."""
        emission = self._begin_event(envelope_id, event_id, words)
        for batch in batches:
            emission.hold(event_id, RunBatch(*batch))
        await emission.flush()
        return await self.end_envelope(envelope_id) if commit else [True]

    async def end_envelope(self, envelope_id: str) -> Value:
        """Seal what came of an envelope."""
        emission = self._emissions.get(envelope_id)
        if emission is not None:
            await emission.seal()
            self._emissions.pop(envelope_id, None)
        return [True]

    async def stop_envelope(self, envelope_id: str) -> Value:
        """Forget what came of an envelope and is not sealed."""
        self._prepared.pop(envelope_id, None)
        emission = self._emissions.pop(envelope_id, None)
        if emission is not None:
            await emission.stop()
        return [True]

    async def take_envelopes(self, entries: Sequence[BundleEntry]) -> Value:
        """Emit small envelopes; all of them share a commit."""
        return await self._seal_all(self._delivered(entries))

    async def prepare_envelopes(self, entries: Sequence[BundleEntry]) -> list[Value]:
        """Keep small envelopes until other consumers have taken them, too."""
        self._prepared.update(zip([entry[0] for entry in entries], self._delivered(entries), strict=True))
        return [[True]] * len(entries)

    async def commit_envelopes(self, envelope_ids: Sequence[str], entries: Sequence[BundleEntry] = ()) -> Value:
        """Seal what comes of kept envelopes; all of them share a commit. Then keep the next ones."""
        if not self._prepared.keys() >= {*envelope_ids}:
            raise _unknown()
        answers = await self._seal_all([*map(self._prepared.__getitem__, envelope_ids)])
        for envelope_id, answer in zip(envelope_ids, answers, strict=True):
            if answer == [True]:
                self._prepared.pop(envelope_id, None)
        if not entries:
            return answers
        if answers.count([True]) < len(answers):
            return answers + [[]] * len(entries)
        try:
            return answers + await self.prepare_envelopes(entries)
        except CallError:
            # Those before are sealed. Asked for these alone it tells what is wrong.
            return answers + [[]] * len(entries)

    def _delivered(self, entries: Sequence[BundleEntry]) -> list[Delivered]:
        return [*zip(repeat(self._event_type()), repeat(self._emitter_id()), entries)]

    async def _seal_all(self, delivered: Sequence[Delivered]) -> list[Value]:
        """Seal what comes of envelopes, in their order.

        All of it is written once without a wait. Envelopes that are not sealed by that go alone then, again in their
        order: that finds out why, and waits where it must.
        """
        left: Sequence[int] = range(len(delivered))
        if self._may_emit():
            left = [place for some, writing in self._begin(delivered) for place in await _not_sealed(some, writing)]
        answers: list[Value] = [[True]] * len(delivered)
        alone = await asyncio.gather(*(self._seal_alone(delivered[place]) for place in left))
        for place, answer in zip(left, alone, strict=True):
            answers[place] = answer
        return answers

    def _begin(self, delivered: Sequence[Delivered]) -> list[tuple[Sequence[int], Writing]]:
        """Write what comes of envelopes; plain ones that follow each other go together. Give it with their places."""
        begun: list[tuple[Sequence[int], Writing]] = []
        for are_plain, run in groupby(range(len(delivered)), find_plain(delivered).__getitem__):
            if are_plain and not self._journal.keeps_objects:
                places = [*run]
                group = group_of([delivered[place] for place in places], self._clock.now())
                begun.append((places, self._journal.write(group)))
            else:
                begun += [([place], self._emission_of(*delivered[place]).seal_at_once()) for place in run]
        return begun

    def _emission_of(self, event_type: EventType, emitter_id: int, entry: BundleEntry) -> Emission:
        envelope_id, events, *notes = entry
        first: HeadersMap = events[0][3] if events and len(events[0]) > 3 else {}
        note = DeliveryNote(*notes[0]) if notes else None
        emission = self._new_emission(envelope_id, emitter_id, note, first)
        for event_id, _, batches, *headers in events:
            emission.start_event(event_id, event_type, tags_of(headers[0]) if headers else NO_TAGS)
            for batch in batches:
                emission.hold(event_id, RunBatch(*batch))
        return emission

    async def _seal_alone(self, delivered: Delivered) -> Value:
        envelope_id = delivered[2][0]
        emission = self._emissions[envelope_id] = self._emission_of(*delivered)
        try:
            await emission.seal()
        except JournalError as error:
            return [None, [error.code, error.cause], None]
        finally:
            # It may have been stopped, and begun anew.
            if self._emissions.get(envelope_id) is emission:
                del self._emissions[envelope_id]
        return [True]

    _verbs: Mapping[str, Callable[..., Any]] = {
        "ping": ping,
        "start_event": start_event,
        "xbus.send_items": send_items,
        "xbus.append_output": append_output,
        "xbus.end_event": end_event,
        "xbus.take_event": take_event,
        "xbus.take_envelopes": take_envelopes,
        "xbus.prepare_envelopes": prepare_envelopes,
        "xbus.commit_envelopes": commit_envelopes,
        "end_envelope": end_envelope,
        "stop_envelope": stop_envelope,
    }

    # -- what they share -------------------------------------------------------------------------------------------

    def _begin_event(self, envelope_id: str, event_id: str, words: Sequence[Words]) -> Emission:
        note = next((each for each in words if isinstance(each, DeliveryNote)), None)
        nothing: HeadersMap = {}
        said = next((each for each in words if isinstance(each, dict)), nothing)
        emission = self._emissions.get(envelope_id)
        if emission is None:
            emission = self._emissions[envelope_id] = self._new_emission(envelope_id, self._emitter_id(), note, said)
        emission.start_event(event_id, self._event_type(), tags_of(said))
        return emission

    def _new_emission(self, envelope_id: str, emitter_id: int, note: DeliveryNote | None, said: HeadersMap) -> Emission:
        derivation = derive(envelope_id, emitter_id, note, said)
        return Emission(self._journal, self._clock, derivation, self._retry_seconds, self._may_emit)

    def _emission(self, envelope_id: str) -> Emission:
        emission = self._emissions.get(envelope_id)
        if emission is None:
            raise _unknown()
        return emission

    def _event_type(self) -> EventType:
        """Find the type as which the node emits, as it is now.

        Raises:
            Refused: it was removed.
        """
        for event_type in self._catalog().event_types.values():
            if event_type.id == self._role.emits:
                return event_type
        raise Refused(
            "the event type as which the node emits was removed",
            "name it again with xbus apply, then resume what is parked",
            code="unknown_type",
        )

    def _emitter_id(self) -> int:
        for emitter in self._catalog().emitters.values():
            if emitter.kind == "node" and emitter.login == self._role.login:
                return emitter.id
        raise Failed("the bus has no emitter for the node yet", code="configuration_behind")


async def _not_sealed(places: Sequence[int], writing: Writing) -> Sequence[int]:
    """Wait for a write; give the places of those of its envelopes that it has not sealed."""
    if writing is None:
        return places
    try:
        answer = await writing
    except JournalError:
        return places
    taken = answer.taken if isinstance(answer, SealedGroup) else {}
    # An exact repeat has the receipt of its first time.
    return [places[place] for place, receipt in taken.items() if receipt is None]


def _unknown() -> Failed:
    return Failed("nothing is known here of the envelope", code="envelope_unknown")


log = logging.getLogger(__name__)


ABILITIES = Abilities(batches=True, bundles=True, prepares=128, prepares_next=True, notes=True, headers=True)
"""One envelope at a time, or one bundle: those of a type are emitted in the order in which they come."""

LEFT_OPEN = "the broker ended before it was sealed"


class EmittingRoles:
    """Serves the roles of nodes that emit.

    Args:
        journal: where their envelopes are written.
        registry: has the roles that are served.
        runtime: the time and the tasks of the back.
        settings: how long calls may take.
        catalog: the configuration as it is now.
    """

    def __init__(
        self,
        journal: Journal,
        registry: Registry,
        runtime: Runtime,
        settings: BackSettings,
        catalog: Callable[[], Catalog],
    ) -> None:
        self._journal = journal
        self._registry = registry
        self._runtime = runtime
        self._timeouts = CallTimeouts.of(settings)
        self._catalog = catalog

    async def recover(self) -> None:
        """Cancel what nodes left open when the broker ended: the envelopes behind it are delivered to them again.

        Raises:
            JournalUnavailable: the database can't be read or written now.
        """
        now = self._runtime.clock.now()
        left = await self._journal.read(read_open_of_nodes)
        await asyncio.gather(*(self._journal.write(Cancel(each, now, LEFT_OPEN)) for each in left))

    def serve(self) -> None:
        """Serve each of the roles that is not served yet, and on the bus."""
        for role in self._catalog().roles.values():
            if role.emits is not None and not role.detached and not self._registry.connected(role.id):
                self._registry.add(self._recipient(role))

    def _recipient(self, role: RoleEntry) -> RecipientProxy:
        runtime = self._runtime
        consumer = EmittingConsumer(
            *(role, self._journal, runtime.clock, runtime.tasks, self._catalog),
            *(runtime.intervals.retry, runtime.may_emit),
        )
        name = f"node {role.login}"
        ways = self._timeouts, self._registry.leave, self._journal.leads_until
        return RecipientProxy(role, name.encode(), name, consumer, ABILITIES, *ways)
