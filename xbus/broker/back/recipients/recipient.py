"""A registered recipient as the broker sees it: its calls, its answers read strictly, its failures told apart."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from typing import Any, NamedTuple
from uuid import UUID

from xbus import tracing
from xbus.broker.back.log import (
    NOTHING_SAID,
    BundleEntry,
    DeliveryNote,
    FirstWords,
    RunBatch,
    SmallEnvelope,
    bundle_on_wire,
    headers_map,
)
from xbus.broker.back.recipients.abilities import Abilities
from xbus.broker.back.recipients.failures import (
    LEAVING_CODES,
    SUPERSEDED,
    FailureClass,
    RecipientFailed,
    failure_of_call,
    is_nonsense,
)
from xbus.broker.back.recipients.heartbeats import Heartbeats, Readiness
from xbus.broker.back.recipients.responses import BundleResult, BundleStatus, EventResponse, Responses
from xbus.broker.journal.log.catalog import RoleEntry
from xbus.broker.journal.log.reading import LogEvent
from xbus.broker.journal.writes.bulk import OutputPage
from xbus.config import BackSettings
from xbus.errors import CallError, Failed
from xbus.ids import texts_of
from xbus.rpc.client import NOT_LEADING
from xbus.rpc.codec import Value
from xbus.rpc.messages import HeadersMap, OutputHandover
from xbus.rpc.owed_calls import AnswerTaker, Callee


@dataclass(frozen=True, slots=True)
class CallTimeouts:
    """The seconds that a recipient has for each kind of answer."""

    start_event: float
    send_item: float
    end_event: float
    end_envelope: float
    stop_envelope: float

    @classmethod
    def of(cls, settings: BackSettings) -> "CallTimeouts":
        """Take them from the configuration."""
        return cls(
            settings.start_event_timeout,
            settings.send_item_timeout,
            settings.end_event_timeout,
            settings.end_envelope_timeout,
            settings.stop_envelope_timeout,
        )

    @property
    def longest(self) -> float:
        """For how long a recipient may be busy with one call."""
        return max(self.start_event, self.send_item, self.end_event + self.end_envelope, self.stop_envelope)


class Bringing(NamedTuple):
    """An envelope that is being brought to a recipient.

    Args:
        since: when that began, on the loop's clock.
        verb: the last call about it.
    """

    since: float
    verb: str


class EnvelopeCalls:
    """The calls to one recipient about envelopes: each is timed, traced, and noted beside what it brings.

    Args:
        client: calls the recipient.
        login: of the recipient's role, for traces.
        heartbeats: tells of its progress; None for a recipient that sends no heartbeats.
        now: the loop's clock.
        leads_until: until when this broker leads, on that clock: behind it another one may hand the same out.
    """

    def __init__(
        self,
        client: Callee,
        login: str,
        heartbeats: Heartbeats | None,
        now: Callable[[], float],
        leads_until: Callable[[], float],
    ) -> None:
        self._client = client
        self._login = login
        self._heartbeats = heartbeats
        self._now = now
        self._leads_until = leads_until
        self.open: dict[bytes, Bringing] = {}
        """The envelopes that are being brought just now, by their ids of 16 bytes."""
        self._first_words: dict[UUID, FirstWords] = {}
        self._unanswered = 0
        self._busy_since = 0.0
        self._busy_before = 0.0

    @property
    def busy_seconds(self) -> float:
        """For how long the recipient has had such calls to answer, several at once counted once."""
        return self._busy_before + (self._now() - self._busy_since if self._unanswered else 0.0)

    def accompany(self, envelope_id: UUID, words: FirstWords) -> None:
        """Let the first call about an envelope bring its note and its headers."""
        self._first_words[envelope_id] = words

    def begin(self, envelope_id: UUID) -> FirstWords:
        """Note that an envelope is being brought; give what its first call tells of it."""
        self.open.setdefault(envelope_id.bytes, Bringing(self._now(), ""))
        return self._first_words.pop(envelope_id, NOTHING_SAID)

    def ask_about(
        self,
        ids: Sequence[bytes],
        verb: str,
        name: str,
        seconds: float,
        arguments: tuple[object, ...],
        taker: AnswerTaker,
        brings: Sequence[bytes] = (),
    ) -> None:
        """Make a call about untraced envelopes.

        Args:
            ids: of those that are open there, of 16 bytes.
            verb: the call, as operators see it.
            name: the same as the recipient knows it.
            seconds: its time-out.
            arguments: of the call.
            taker: gets the answer.
            brings: the ids of those that the call brings, with all that is to be told of them.
        """
        now = self._now()
        if now > self._leads_until():
            # It was frozen, or can't reach its database: it notices that itself, and ends.
            asyncio.get_running_loop().call_soon(taker, None, _leads_no_more())
            return
        if brings:
            self.open = {**dict.fromkeys(brings, Bringing(now, "take_event")), **self.open}
        for each in ids:
            if each in self.open:
                self.open[each] = Bringing(self.open[each].since, verb)
        if not self._unanswered:
            self._busy_since = now
        self._unanswered += 1
        renewed = None if self._heartbeats is None else partial(self._heartbeats.renewed, (*ids, *brings))
        try:
            self._client.ask(name, arguments, partial(self._answered, taker), seconds, renewed)
        except BaseException:
            # It can't be encoded: nobody will answer it.
            self._unanswered -= 1
            raise

    def _answered(self, taker: AnswerTaker, answer: Value, error: CallError | None) -> None:
        """Note the answer to a call, or its lack, and hand it on."""
        self._unanswered -= 1
        if not self._unanswered:
            self._busy_before += self._now() - self._busy_since
        taker(answer, error)

    def ended_all(self, ids: Iterable[bytes]) -> None:
        """Note that the recipient has envelopes open no more."""
        # They come by the hundred: no code of Python runs for each.
        [*map(self.open.pop, ids, repeat(None))]

    def ended(self, envelope_id: UUID) -> None:
        """Note that the recipient has an envelope open no more."""
        self.open.pop(envelope_id.bytes, None)

    def stopped(self, envelope_id: UUID) -> None:
        """Note that the recipient forgets an envelope, also one that it has not got yet."""
        self.open.pop(envelope_id.bytes, None)
        self._first_words.pop(envelope_id, None)

    def call(self, verb: str, name: str, seconds: float, envelope_id: UUID, *args: object) -> "asyncio.Future[Value]":
        """Call about an envelope; the time-out of a recipient that sends heartbeats is one of time without progress.

        Args:
            verb: the call, as operators see it.
            name: the same as the recipient knows it.
        """
        return self.call_about([envelope_id.bytes], verb, name, seconds, str(envelope_id), *args)

    def call_about(
        self, ids: Sequence[bytes], verb: str, name: str, seconds: float, *args: object, begins: bool = False
    ) -> "asyncio.Future[Value]":
        """Call about several envelopes at once.

        Args:
            ids: theirs, of 16 bytes.
            begins: whether the call brings them.
        """
        answered = asyncio.get_running_loop().create_future()
        for span in tracing.begin_calls(verb, ids, self._login):
            answered.add_done_callback(span.ended_by)
        about, brings = ((), ids) if begins else (ids, ())
        self.ask_about(about, verb, name, seconds, args, partial(_give, answered), brings)
        return answered


def _leads_no_more() -> Failed:
    return Failed("this broker leads no more", "wait for the one that leads now", code=NOT_LEADING)


def _give(future: "asyncio.Future[Value]", answer: Value, error: CallError | None) -> None:
    """Give an answer to whoever still waits for it."""
    if future.done():
        return
    if error is None:
        future.set_result(answer)
    else:
        future.set_exception(error)


class RecipientProxy:
    """The calls of the recipient API, one method each; each raises ``RecipientFailed`` and nothing else.

    Args:
        role: the role that it serves.
        token_hash: of the session by which it registered.
        uri: the address where it listens, or the name of a registration over its own connection.
        client: calls it.
        abilities: the abilities that it announced.
        timeouts: how long to wait for its answers.
        on_leaving: called when it says that it takes nothing more, though it is still registered.
        leads_until: until when this broker leads, on the loop's clock.
    """

    def __init__(
        self,
        role: RoleEntry,
        token_hash: bytes,
        uri: str,
        client: Callee,
        abilities: Abilities,
        timeouts: CallTimeouts,
        on_leaving: "Callable[[RecipientProxy], None]",
        leads_until: Callable[[], float],
    ) -> None:
        self.role = role
        self.token_hash = token_hash
        self.uri = uri
        self.abilities = abilities
        self.is_closed = False
        self.is_superseded = False
        """Whether it takes nothing more by this connection, as it was called by another one."""
        self._client = client
        self._timeouts = timeouts
        self._on_leaving = on_leaving
        self._answers = Responses(role.id, is_worker=role.worker, names_types=abilities.outs, on_leaving=self._leaves)
        self._now = asyncio.get_running_loop().time
        self.since = self._now()
        """Since when it is here, on the loop's clock."""
        self.heartbeats = Heartbeats(self._now)
        heartbeats = self.heartbeats if abilities.heartbeats else None
        self._calls = EnvelopeCalls(client, role.login, heartbeats, self._now, leads_until)
        self.readiness = Readiness(is_told=not abilities.batches)

    def is_same_program(self, other: "RecipientProxy") -> bool:
        """Check whether this is an earlier registration of the same program: by its session, or at its address."""
        return self.token_hash == other.token_hash or self.uri == other.uri

    def may_speak_over(self, connection: bytes) -> bool:
        """Check whether a sign of life by a connection to our port may be its own: one that made the connection for our
        calls speaks over that."""
        return self._client.connection in (None, connection)

    def accompany(self, envelope_id: UUID, words: FirstWords) -> None:
        """Let the first call about an envelope bring its note and its headers, to a recipient that wants these."""
        note = words.note if self.abilities.notes else None
        headers = words.headers if self.abilities.headers else None
        if note is not None or headers is not None:
            self._calls.accompany(envelope_id, FirstWords(note, headers))

    async def start_event(self, envelope_id: UUID, event: LogEvent) -> None:
        """Call ``start_event``."""
        self._answers.begin(event.event_id)
        more = self._begin_event(envelope_id, event)
        ids = (envelope_id, str(event.event_id), event.type_name)
        call = self._calls.call("start_event", "start_event", self._timeouts.start_event, *ids, *more)
        await self._answers.detail("start_event", event.event_id, call)

    async def send(self, envelope_id: UUID, event_id: UUID, batch: RunBatch) -> list[RunBatch]:
        """Hand items over.

        Returns:
            The items that a worker made of them; none from a consumer.
        """
        if not self.abilities.batches:
            return await self._send_singly(envelope_id, event_id, batch)
        self._answers.note_given(event_id, batch)
        call = self._calls.call(
            "send_item", "xbus.send_items", self._timeouts.send_item, envelope_id, str(event_id), *batch.on_wire()
        )
        return self._answers.batches("send_item", event_id, await self._answers.detail("send_item", event_id, call))

    async def append_output(self, envelope_id: UUID, event_id: UUID, page: OutputPage) -> None:
        """Have items appended that lie in the journal; only the bus itself can, where it emits."""
        ids = (envelope_id, str(event_id))
        call = self._calls.call("send_item", "xbus.append_output", self._timeouts.send_item, *ids, page)
        await self._answers.detail("send_item", event_id, call)

    async def _send_singly(self, envelope_id: UUID, event_id: UUID, batch: RunBatch) -> list[RunBatch]:
        made: list[tuple[list[int], bytes]] = []
        for indices, item in batch.singly():
            # Item by item: a worker can't have made anything of those that come later.
            self._answers.note_given_up_to(event_id, max(indices, default=-1))
            call = self._calls.call(
                "send_item", "send_item", self._timeouts.send_item, envelope_id, str(event_id), indices, item
            )
            answer = await self._answers.detail("send_item", event_id, call)
            made += self._answers.singles(event_id, answer)
        return [RunBatch.of_single(made)] if made else []

    async def end_event(self, envelope_id: UUID, event: LogEvent) -> EventResponse:
        """Call ``end_event``."""
        self._answers.note_all_given(event)
        verb = "xbus.end_event" if self.abilities.batches else "end_event"
        call = self._calls.call("end_event", verb, self._timeouts.end_event, envelope_id, str(event.event_id))
        parts = await self._answers.parts("end_event", event.event_id, call)
        return self._answers.end("end_event", event.event_id, parts if self.abilities.batches else parts[:1])

    async def take_event(
        self, envelope_id: UUID, event: LogEvent, batches: Sequence[RunBatch], *, commit: bool
    ) -> EventResponse:
        """Hand a whole small event over in one call.

        Args:
            batches: all its items.
            commit: whether this ends the envelope too; then it is committed when this returns.
        """
        self._answers.note_all_given(event)
        more = self._begin_event(envelope_id, event)
        call = self._calls.call(
            "take_event",
            "xbus.take_event",
            self._timeouts.end_envelope if commit else self._timeouts.end_event,
            envelope_id,
            str(event.event_id),
            event.type_name,
            [batch.on_wire() for batch in batches],
            commit,
            *more,
        )
        end = self._answers.end(
            "take_event", event.event_id, await self._answers.parts("take_event", event.event_id, call)
        )
        if commit:
            self._calls.ended(envelope_id)
        return end

    async def take_envelopes(
        self, bundle: Sequence[SmallEnvelope], logins: Mapping[int, str | None]
    ) -> list[BundleResult]:
        """Hand whole small envelopes over in one call; the recipient keeps none of them open when this returns.

        The failure of the call is the result of each.

        Args:
            logins: of their emitters, to be told where the recipient wants it.
        """
        call = self._hand_over("take_event", "xbus.take_envelopes", self._timeouts.end_envelope, bundle, logins)
        return await self._results("take_event", bundle, call, BundleStatus.COMMITTED)

    async def prepare_envelopes(
        self, bundle: Sequence[SmallEnvelope], logins: Mapping[int, str | None]
    ) -> list[BundleResult]:
        """The same, but for those that are ``PREPARED``: they stay open until they are committed or stopped."""
        call = self._hand_over("take_event", "xbus.prepare_envelopes", self._timeouts.end_event, bundle, logins)
        return await self._results("take_event", bundle, call, BundleStatus.PREPARED)

    async def commit_envelopes(self, bundle: Sequence[SmallEnvelope]) -> list[BundleResult]:
        """Have envelopes committed that are prepared; those that are not committed are stopped when this returns."""
        ids = [small.envelope.id for small in bundle]
        about = ("end_envelope", "xbus.commit_envelopes", self._timeouts.end_envelope)
        call = self._calls.call_about(ids, *about, texts_of(ids))
        return await self._results("end_envelope", bundle, call, BundleStatus.COMMITTED, in_doubt=_is_not_committed)

    def _hand_over(
        self,
        verb: str,
        name: str,
        seconds: float,
        bundle: Sequence[SmallEnvelope],
        logins: Mapping[int, str | None],
    ) -> "asyncio.Future[Value]":
        abilities = self.abilities
        entries = bundle_on_wire(bundle, logins if abilities.notes else None, wants_headers=abilities.headers)
        ids = [small.envelope.id for small in bundle]
        return self._calls.call_about(ids, verb, name, seconds, entries, begins=True)

    async def _results(
        self,
        verb: str,
        bundle: Sequence[SmallEnvelope],
        call: "asyncio.Future[Value]",
        well: BundleStatus,
        in_doubt: Callable[[BundleResult], bool] = is_nonsense,
    ) -> list[BundleResult]:
        """Give the result of each envelope of a call, see ``results_of``."""
        try:
            answer, error = await call, None
        except CallError as raised:
            answer, error = None, raised
        except BaseException:
            self.stop_all(bundle)
            raise
        return self.results_of(bundle, answer, error, verb, well, in_doubt)

    def hand_over(
        self, ids: Sequence[bytes], entries: Sequence[BundleEntry], taker: AnswerTaker, *, stays_open: bool = False
    ) -> None:
        """Hand whole small envelopes over, as ``take_envelopes`` does, or as ``prepare_envelopes``.

        Args:
            ids: theirs, of 16 bytes.
            entries: written as the abilities of this recipient say.
            taker: gets the answer; then one of ``went_well`` and ``results_of`` is to be called.
            stays_open: whether they stay open until a decision.
        """
        name, seconds = "xbus.take_envelopes", self._timeouts.end_envelope
        if stays_open:
            name, seconds = "xbus.prepare_envelopes", self._timeouts.end_event
        self._calls.ask_about((), "take_event", name, seconds, (entries,), taker, ids)

    def commit(self, ids: Sequence[bytes], taker: AnswerTaker) -> None:
        """Have envelopes committed that are open, as ``commit_envelopes`` does.

        Args:
            taker: see ``hand_over``.
        """
        call = ("end_envelope", "xbus.commit_envelopes", self._timeouts.end_envelope)
        self._calls.ask_about(ids, *call, (texts_of(ids),), taker)

    def go_on(
        self, ids: Sequence[bytes], next_ids: Sequence[bytes], entries: Sequence[BundleEntry], taker: AnswerTaker
    ) -> None:
        """Have envelopes committed that are open, and the next ones prepared if all of these are committed.

        Args:
            entries: the next ones, as of ``hand_over``.
            taker: gets one list, of the answers about both.
        """
        seconds = self._timeouts.end_envelope + self._timeouts.end_event
        call = ("end_envelope", "xbus.commit_envelopes", seconds)
        self._calls.ask_about(ids, *call, (texts_of(ids), entries), taker, next_ids)

    def went_well(self, ids: Sequence[bytes], answer: Value, error: CallError | None, *, stay_open: bool) -> bool:
        """Check whether an answer says that all of some envelopes went well.

        Args:
            stay_open: whether they are open then; else none is.
        """
        said: Any = answer
        # 1 equals True, and is none.
        if error is not None or said != [_DONE] * len(ids) or {*map(type, chain.from_iterable(said))} != {bool}:
            return False
        if not stay_open:
            self._calls.ended_all(ids)
        return True

    def votes_of(self, bundle: Sequence[SmallEnvelope], answer: Value, error: CallError | None) -> list[BundleResult]:
        """Read the vote on each envelope that was to be prepared."""
        return self.results_of(bundle, answer, error, well=BundleStatus.PREPARED)

    def results_of_commit(
        self, bundle: Sequence[SmallEnvelope], answer: Value, error: CallError | None
    ) -> list[BundleResult]:
        """Read the result of each envelope that was to be committed; the others are stopped."""
        return self.results_of(bundle, answer, error, "end_envelope", BundleStatus.COMMITTED, _is_not_committed)

    def results_of(
        self,
        bundle: Sequence[SmallEnvelope],
        answer: Value,
        error: CallError | None,
        verb: str = "take_event",
        well: BundleStatus = BundleStatus.COMMITTED,
        in_doubt: Callable[[BundleResult], bool] = is_nonsense,
    ) -> list[BundleResult]:
        """Read the result of each envelope of a call; those that the recipient may still have open are stopped.

        Args:
            well: the status of one that went well.
            in_doubt: whether an envelope with such a result may be open.
        """
        results: list[BundleResult] = [BundleStatus.NOT_BEGUN] * len(bundle)
        to_stop = list(bundle)
        ids, stay_open = [small.envelope.id for small in bundle], well is BundleStatus.PREPARED
        if not self.role.worker and self.went_well(ids, answer, error, stay_open=stay_open):
            return [well] * len(bundle)
        try:
            results = self._answers.bundle(verb, [small.envelope for small in bundle], answer, error, well)
            if results.count(well) == len(results):
                to_stop.clear()
            else:
                to_stop = [small for small, result in zip(bundle, results, strict=True) if in_doubt(result)]
        except RecipientFailed as failure:
            if failure.failure_class is FailureClass.ABSENT:
                to_stop.clear()
            else:
                results = [failure] * len(bundle)
        for small in to_stop:
            self.stop_envelope_soon(small.envelope_id)
        pairs = zip(bundle, results, strict=True)
        self._calls.ended_all([small.envelope.id for small, result in pairs if result is not BundleStatus.PREPARED])
        return results

    def began_none(self, ids: Sequence[bytes]) -> None:
        """Note that it began none of the envelopes that a call brought."""
        self._calls.ended_all(ids)

    def stop_all(self, bundle: Iterable[SmallEnvelope]) -> None:
        """Have the recipient forget envelopes whose result nobody waits for any more."""
        for small in bundle:
            self.stop_envelope_soon(small.envelope_id)
        self._calls.ended_all([small.envelope.id for small in bundle])

    async def take_output(self, envelope_id: UUID, event: LogEvent, handover: OutputHandover) -> None:
        """Have a bulk worker make the output for an event by itself; it has only taken it when this returns."""
        call = self._calls.call(
            "take_output",
            "xbus.take_output",
            self._timeouts.start_event,
            envelope_id,
            str(event.event_id),
            event.type_name,
            handover,
        )
        await self._answers.parts("take_output", event.event_id, call)

    def stop_output_soon(self, attempt_id: UUID) -> None:
        """Ask a bulk worker to stop an output; otherwise it learns it when it renews its lease."""
        stop = self._client.call("xbus.stop_output", str(attempt_id), timeout=self._timeouts.stop_envelope)
        stop.add_done_callback(lambda call: call.cancelled() or call.exception())

    def forget(self, event_id: UUID) -> None:
        """Keep nothing of an event that is over."""
        self._answers.forget(event_id)

    async def end_envelope(self, envelope_id: UUID) -> None:
        """Have all of an envelope committed."""
        call = self._calls.call("end_envelope", "end_envelope", self._timeouts.end_envelope, envelope_id)
        await self._answers.detail("end_envelope", None, call)
        self._calls.ended(envelope_id)

    async def stop_envelope(self, envelope_id: UUID) -> None:
        """Have all that is open of an envelope forgotten, also where nothing is; wait until it is."""
        try:
            await self._stop(envelope_id)
        except CallError as error:
            self._note_leaving(error)
            raise failure_of_call(self.role.id, "stop_envelope", None, error) from error

    def stop_envelope_soon(self, envelope_id: UUID) -> "asyncio.Future[Value]":
        """Send ``stop_envelope`` before this returns, without waiting; the future is done after the answer or its
        lack."""
        stop = self._stop(envelope_id)
        stop.add_done_callback(self._stopped_soon)
        return stop

    def _stopped_soon(self, call: "asyncio.Future[Value]") -> None:
        if not call.cancelled() and isinstance(error := call.exception(), CallError):
            self._note_leaving(error)

    def _stop(self, envelope_id: UUID) -> "asyncio.Future[Value]":
        self._calls.stopped(envelope_id)
        call = self._calls.call("stop_envelope", "stop_envelope", self._timeouts.stop_envelope, envelope_id)
        call.add_done_callback(self._stopped)
        return call

    def _stopped(self, call: "asyncio.Future[Value]") -> None:
        if not call.cancelled() and call.exception() is None:
            self.readiness.stopped()

    async def ping(self, text: str, seconds: float) -> bool:
        """Check whether the recipient sends ``text`` back within this many seconds."""
        try:
            answer = await self._client.call("ping", text, timeout=seconds)
        except CallError:
            return False
        return bool(answer == text)

    def ready_seconds(self, envelope_id: UUID) -> float | None:
        """Compute the seconds that it has left to call ``ready`` after an event of an envelope.

        Returns:
            None if it is ready, or has got an event of another envelope since.
        """
        return self._timeouts.end_event if self.readiness.is_awaited_after(envelope_id) else None

    def failed_to_be_ready(self, event_id: UUID) -> RecipientFailed:
        """Make the failure of a worker without ``ready``, for which the next event can't begin."""
        error = Failed("it has not called ready since the previous event of the envelope", code="not_ready")
        return failure_of_call(self.role.id, "ready", event_id, error)

    @property
    def owes(self) -> int:
        """The number of answers it owes, those included that nobody waits for any more."""
        return self._client.owed

    def overdue_seconds(self) -> tuple[str, float] | None:
        """Give the call that is furthest beyond its time-out, with the seconds beyond it.

        None where it has none. Pings do not count: who answers none of them is silent.
        """
        call = next((call for call in self._client.overdue if call.method != "ping"), None)
        return None if call is None else (call.method, self.seconds_since(call.since))

    async def owes_nothing(self) -> None:
        """Wait until all its answers have come, those that nobody waits for any more included."""
        await self._client.settled()

    def close(self) -> None:
        """Call it no more; calls that wait for an answer fail as lost.

        A recipient may be alive, for instance after a newer one took its role, or after its logout. It gets
        ``stop_envelope`` for all that it has open. A lost one gets nothing.
        """
        self.is_closed = True
        for each in list(self._calls.open):
            self.stop_envelope_soon(UUID(bytes=each))
        self._client.close()
        self.readiness.tell()

    @property
    def bringing(self) -> Mapping[bytes, Bringing]:
        """The envelopes that are being brought to it just now, by their ids of 16 bytes."""
        return self._calls.open

    @property
    def heard_at(self) -> float:
        """The moment of its last sign of life, on the loop's clock: an answer, a heartbeat, or its registration."""
        return max(self.since, self._client.heard_at or 0.0, self.heartbeats.heard_at or 0.0)

    def silent_for(self) -> float:
        """Compute for how many seconds it has given no sign of life."""
        return self.seconds_since(self.heard_at)

    def seconds_since(self, moment: float) -> float:
        """Compute how many seconds have passed since a moment on the loop's clock."""
        return self._now() - moment

    @property
    def busy_seconds(self) -> float:
        """For how long it has had calls about envelopes to answer."""
        return self._calls.busy_seconds

    def _note_leaving(self, error: CallError) -> None:
        if error.code in LEAVING_CODES:
            self._leaves(error.code)

    def _leaves(self, code: str) -> None:
        self.is_superseded = self.is_superseded or code == SUPERSEDED
        self._on_leaving(self)

    def _begin_event(self, envelope_id: UUID, event: LogEvent) -> tuple[DeliveryNote | HeadersMap | None, ...]:
        """Begin the envelope, where that is to be done; give the last arguments of the call that begins the event."""
        note, of_envelope = self._calls.begin(envelope_id)
        headers = headers_map(event.tags, of_envelope) if self.abilities.headers else None
        if headers:
            return (note, headers)
        return () if note is None else (note,)


_DONE = [True]


def _is_not_committed(result: BundleResult) -> bool:
    return result is not BundleStatus.COMMITTED
