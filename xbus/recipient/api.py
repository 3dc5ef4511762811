"""The verbs that the broker calls on a recipient: one method per verb, named as the verb.

``docs/wire.md`` lists them. Each call of an envelope becomes a job of the author's thread. A call that needs no code of
the author's is answered at once.
"""

import logging
import socket
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from xbus.clock import Clock
from xbus.errors import Failed, Refused
from xbus.recipient.base import Consumer, Recipient, Worker, kind_of
from xbus.recipient.bulk import BulkJobs, BulkWorker, Handover
from xbus.recipient.calls import AuthorThread, Calls
from xbus.recipient.deliveries import (
    BundleAnswer,
    EnvelopeDelivery,
    OpenDeliveries,
    commit_all,
    prepared_at_once,
    read_bundle,
    take_all,
    takes_bundles,
)
from xbus.recipient.envelope import Batch, Event, Item
from xbus.recipient.outputs import WireBatch, wire_batches
from xbus.rpc.codec import Key, Value
from xbus.rpc.deferred import Promise
from xbus.rpc.dispatch import verb
from xbus.rpc.messages import EnvelopeWork, OutputWork, RecipientAbilities, RecipientMetadata

logger = logging.getLogger(__name__)

API_VERSION = 0.2
"""The version of the recipient API of xbus.broker 0.2.0, which is served in full."""

MAX_BATCH_BYTES = 16_777_216
"""The largest batch of items out, until the broker tells its own limit."""

StepAnswer: TypeAlias = Promise[tuple[object, ...]]
"""The answer to a call that became a job: whether the author's code took it, and its result."""


class RecipientApi:
    """Serves one recipient.

    Args:
        recipient: the author's.
        calls: the author's methods.
        author_thread: where they run.
        clock: tells the time.
        on_worker_ready: called when a worker may get another event, of a broker that does not send batches.
        jobs: what a bulk worker is at; None for any other recipient.

    Attributes:
        max_batch_bytes: the largest batch of items out that the broker takes.
        deliveries: the envelopes that are open.
    """

    def __init__(
        self,
        recipient: Recipient,
        calls: Calls,
        author_thread: AuthorThread,
        clock: Clock,
        on_worker_ready: Callable[[], None],
        jobs: BulkJobs | None = None,
    ) -> None:
        self.max_batch_bytes = MAX_BATCH_BYTES
        self.deliveries = OpenDeliveries(calls, author_thread)
        self._recipient = recipient
        self._calls = calls
        self._author_thread = author_thread
        self._clock = clock
        self._on_worker_ready = on_worker_ready
        self._jobs = jobs
        self._start_date = clock.now()

    def work(self) -> list[EnvelopeWork | OutputWork]:
        """Describe, for a heartbeat, each open envelope, each about to be rolled back, and each output in the
        making."""
        return [*self.deliveries.work(), *([] if self._jobs is None else self._jobs.work())]

    @verb("get_metadata")
    def get_metadata(self) -> RecipientMetadata:
        """Introduce this recipient and its abilities. The broker asks this first on each of its connections.

        Raises:
            Failed: not_asked_for, of a broker at which this recipient has not registered.
        """
        self.deliveries.connections.introduce(self.deliveries.way.caller)
        abilities: RecipientAbilities = {"batches": 1, "envelopes": self._recipient.envelopes, "heartbeats": True}
        abilities |= {"notes": True, "headers": True}
        if kind := kind_of(self._recipient):
            abilities["kind"] = kind
        if takes_bundles(self._recipient):
            abilities["bundles"] = True
        if prepared := prepared_at_once(self._recipient):
            abilities |= {"prepares": prepared, "prepares_next": True}
        if isinstance(self._recipient, Worker):
            abilities["outs"] = True
        if isinstance(self._recipient, BulkWorker) and self._jobs is not None:
            abilities["bulk"] = {"min_items": self._recipient.min_bulk_items, "attempts": self._jobs.attempts}
        return {
            "name": self._recipient.name or type(self._recipient).__name__,
            "version": float(self._recipient.version),
            "api_version": API_VERSION,
            "host": socket.gethostname(),
            "start_date": self._start_date.isoformat(),
            "local_time": self._clock.now().isoformat(),
            "xbus": abilities,
        }

    @verb("ping")
    def ping(self, token: str) -> str:
        """Give a sign of life, also while the author's code works."""
        return token

    @verb("has_clearing")
    def has_clearing(self) -> tuple[bool, str | None]:
        """Answer whether the consumer has a database for data clearing, and its address."""
        url = self._recipient.clearing if isinstance(self._recipient, Consumer) else ""
        return bool(url), url or None

    @verb("has_immediate_reply")
    def has_immediate_reply(self) -> tuple[bool, list[str]]:
        """List the event types whose emitter waits for a reply."""
        types = list(self._recipient.immediate_reply) if isinstance(self._recipient, Consumer) else []
        return bool(types), types

    @verb("start_event")
    def start_event(
        self,
        envelope_id: str,
        event_id: str,
        type_name: str,
        note: list[Value] | None = None,
        headers: dict[Key, Value] | None = None,
    ) -> StepAnswer:
        """Begin an event, and with the first one its envelope, of which the note tells."""
        delivery = self.deliveries.open(envelope_id, note)
        event = delivery.add_event(event_id, type_name, headers)

        def step() -> tuple[None]:
            self._calls.start_event(event)
            return (None,)

        return self._attempt(delivery, step, event)

    @verb("xbus.send_items")
    def send_items(
        self, envelope_id: str, event_id: str, first_index: int, items: int, data: bytes, indices: list[Value] | None
    ) -> StepAnswer:
        """Take a batch of items; a worker answers batches."""
        delivery = self.deliveries.get(envelope_id)
        event = delivery.event(event_id)
        batch = Batch.unpacked(first_index, items, data, indices)

        def step() -> tuple[list[WireBatch] | None]:
            out = self._calls.batch(event, batch)
            return (None if out is None else self._wire(out),)

        return self._attempt(delivery, step, event)

    @verb("xbus.take_event")
    def take_event(
        self,
        envelope_id: str,
        event_id: str,
        type_name: str,
        batches: list[Value],
        commit: bool,
        note: list[Value] | None = None,
        headers: dict[Key, Value] | None = None,
    ) -> StepAnswer:
        """Take a whole small event in one call; with ``commit`` end the envelope, too."""
        unpacked = [Batch.of_wire(batch) for batch in batches]
        delivery = self.deliveries.open(envelope_id, note)
        event = delivery.add_event(event_id, type_name, headers)

        def step() -> tuple[object, list[WireBatch]]:
            reply, out = self._calls.whole_event(event, unpacked)
            if commit:
                self._calls.commit(delivery)
            return reply, self._wire(out)

        answer = self._attempt(delivery, step, event)
        if commit:
            answer.add_done_callback(lambda done: self._end_if_committed(delivery, done))
        return answer

    @verb("xbus.take_envelopes")
    def take_envelopes(self, envelopes: list[Value]) -> Promise[list[BundleAnswer]]:
        """A bundle: whole small envelopes, each committed or rolled back before the next one begins."""
        bundle = read_bundle(envelopes)
        self.deliveries.open_all(bundle)
        answers = self._author_thread.give(partial(take_all, self._calls, bundle, self.deliveries))
        answers.add_done_callback(lambda _: self.deliveries.end_all(bundle))
        return answers

    @verb("xbus.prepare_envelopes")
    def prepare_envelopes(self, envelopes: list[Value]) -> Promise[list[BundleAnswer]]:
        """A bundle that other consumers decide about as well: what goes well stays open until the decision comes."""
        bundle = read_bundle(envelopes)
        self.deliveries.open_all(bundle)
        answers = self._author_thread.give(partial(take_all, self._calls, bundle, self.deliveries, commits=False))
        answers.add_done_callback(
            lambda _: self.deliveries.end_all([whole for whole in bundle if not whole.is_prepared])
        )
        return answers

    @verb("xbus.commit_envelopes")
    def commit_envelopes(
        self, envelope_ids: list[Value], envelopes: list[Value] | None = None
    ) -> Promise[list[BundleAnswer]]:
        """Commit envelopes that were prepared: all of their consumers took them. Then prepare the next ones."""
        prepared = self.deliveries.get_all(envelope_ids)
        following = read_bundle(envelopes) if envelopes else []
        if following and not self.deliveries.is_closing:
            self.deliveries.open_all(following)
        answers = self._author_thread.give(partial(commit_all, self._calls, prepared, following, self.deliveries))

        def end(done: Promise[list[BundleAnswer]]) -> None:
            # Those that follow are beyond the last one of the prepared, and none is among them twice.
            pairs = zip(prepared, done.answer or (), strict=False)
            ended: list[EnvelopeDelivery] = [delivery for delivery, answer in pairs if answer and answer[0] is True]
            self.deliveries.end_all(ended + [whole for whole in following if not whole.is_prepared])

        answers.add_done_callback(end)
        return answers

    @verb("xbus.take_output")
    def take_output(self, envelope_id: str, event_id: str, type_name: str, handover: Value) -> tuple[bool]:
        """Have a bulk worker make the output for an event by itself; it reports when it is done."""
        self.deliveries.check_caller()
        if self._jobs is None:
            raise Refused("this recipient is no bulk worker", code="no_bulk_worker")
        if self.deliveries.is_closing:
            raise Failed("the recipient is about to stop", "ask again later", code="recipient_stopping")
        self._jobs.take(Handover.of_wire(envelope_id, event_id, type_name, handover), _lease(handover))
        return (True,)

    @verb("xbus.stop_output")
    def stop_output(self, attempt_id: str) -> bool:
        """Stop an output that nobody wants any more; this recipient may not know it."""
        return self._jobs is not None and self._jobs.forget(attempt_id)

    @verb("send_item")
    def send_item(self, envelope_id: str, event_id: str, indices: list[Value], data: bytes) -> StepAnswer:
        """Take one item, from a broker that does not send batches."""
        delivery = self.deliveries.get(envelope_id)
        event = delivery.event(event_id)
        batch = Batch.of_item(data, indices)

        def step() -> tuple[list[tuple[list[int], bytes]] | None]:
            out = self._calls.batch(event, batch)
            return (None if out is None else [(item.indices, item.data) for item in out],)

        return self._attempt(delivery, step, event)

    @verb("xbus.end_event")
    def end_event_batches(self, envelope_id: str, event_id: str) -> StepAnswer:
        """End an event; a consumer may answer a reply, a worker further batches."""
        delivery = self.deliveries.get(envelope_id)
        event = delivery.event(event_id)

        def step() -> tuple[object, list[WireBatch]]:
            reply, out = self._calls.end_event(event)
            return reply, self._wire(out)

        return self._attempt(delivery, step, event)

    @verb("end_event")
    def end_event(self, envelope_id: str, event_id: str) -> StepAnswer:
        """End an event for a broker that does not send batches, and can't take items here."""
        delivery = self.deliveries.get(envelope_id)
        event = delivery.event(event_id)

        def step() -> tuple[object]:
            reply, out = self._calls.end_event(event)
            if out:
                raise Failed("this broker takes no items at the end of an event", code="recipient_failed")
            return (reply,)

        answer = self._attempt(delivery, step, event)
        if isinstance(self._recipient, Worker):
            answer.add_done_callback(lambda _: self._on_worker_ready())
        return answer

    @verb("end_envelope")
    def end_envelope(self, envelope_id: str) -> StepAnswer:
        """Commit an envelope: every recipient took all of it."""
        delivery = self.deliveries.get(envelope_id)

        def step() -> tuple[None]:
            self._calls.commit(delivery)
            return (None,)

        answer = self._attempt(delivery, step)
        answer.add_done_callback(lambda done: self._end_if_committed(delivery, done))
        return answer

    @verb("stop_envelope")
    def stop_envelope(self, envelope_id: str) -> Promise[bool]:
        """Roll back, also an envelope that is not known here: a crash may have left something of it."""
        self.deliveries.check_caller()
        if self._jobs is not None:
            self._jobs.stop(envelope_id)
        return self.deliveries.stop(envelope_id)

    async def roll_back_all(self) -> None:
        """Roll back every open envelope: the broker gave them up, or is about to."""
        await self.deliveries.roll_back_all()

    def registered(self) -> None:
        """Turn other brokers away from now on: the one at which this recipient registered has come."""
        self.deliveries.connections.registered()

    def _attempt(
        self, delivery: EnvelopeDelivery, step: Callable[[], tuple[object, ...]], event: Event | None = None
    ) -> StepAnswer:
        def job() -> tuple[object, ...]:
            delivery.at = event
            return delivery.take_step(step)

        return self._author_thread.give(job)

    def _wire(self, items: list[Item]) -> list[WireBatch]:
        return wire_batches(items, self.max_batch_bytes)

    def _end_if_committed(self, delivery: EnvelopeDelivery, done: StepAnswer) -> None:
        if not done.cancelled() and done.exception() is None and done.result()[0]:
            self.deliveries.end_all([delivery])


def _lease(handover: Value) -> float:
    match handover:
        case {"lease": (int() | float()) as seconds} if seconds > 0:
            return float(seconds)
    raise Refused("the hand-over has no lease in seconds", code="bad_handover")
