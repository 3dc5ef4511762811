"""The open envelopes of a recipient, each from its first event to its commit or roll-back.

A bundle brings whole small envelopes in one call. They are carried out one after the other in the author's thread, and
each has an answer of its own. Behind an envelope that failed none is begun: the author's database may be away, and all
would fail alike. A refusal leaves the others alone.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from types import NoneType
from typing import Protocol, TypeAlias

from xbus.errors import CallError, Failed, ProtocolError, Refused
from xbus.recipient.base import Recipient, Worker, about, kind_of
from xbus.recipient.bulk import BulkWorker
from xbus.recipient.calls import STOPPED, AuthorThread, Calls, stopped
from xbus.recipient.envelope import NO_NOTE, Batch, Envelope, Event, Item, Note, Rows, checked_notes, packed_headers
from xbus.recipient.outputs import WireBatch, wire_batches
from xbus.recipient.refusal import Refusal
from xbus.recipient.ways import Connections
from xbus.rpc.codec import SHORT_BIN, Key, Value, pack
from xbus.rpc.deferred import Promise
from xbus.rpc.messages import EnvelopeWork
from xbus.texts import MOST_CHARACTERS, fault, plain

logger = logging.getLogger(__name__)

MAX_CAUSE_CHARACTERS = 500

SHOWN_INDICES = 10
"""Indices of refused items in a line of the log."""


class EnvelopeDelivery(Envelope):
    """Keeps the events of an envelope, and what went wrong: after that the author's code sees no more of it.

    The broker sends ahead of the answers, so calls of an envelope arrive that was refused or stopped meanwhile; they
    get the same answer as the call that went wrong.

    Args:
        envelope_id: the envelope's UUID as text.

    Attributes:
        events: those that have begun, by id; without the only item of an envelope that came whole.
        at: the event that the author's code is at; None before the first one and at the commit of several.
    """

    at: Event | None = None
    _refusal: Refusal | None = None
    _error: CallError | None = None

    def __init__(self, envelope_id: str) -> None:
        super().__init__(envelope_id)
        self.events: dict[str, Event] = {}

    def add_event(self, event_id: str, type_name: str, headers: Mapping[Key, Value] | None = None) -> Event:
        """Begin an event.

        Args:
            headers: those of the event and its envelope, as the broker tells them.

        Raises:
            Refused: it began before (``event_open``).
        """
        if event_id in self.events:
            raise Refused("the event began before", "stop its envelope first", code="event_open")
        event = Event(event_id, type_name, self)
        if headers:
            event.read_headers(headers)
        self.events[event_id] = event
        return event

    def event(self, event_id: str) -> Event:
        """Give the event of that id.

        Raises:
            Refused: the envelope has no such event (``event_unknown``).
        """
        if event_id not in self.events:
            raise Refused("the event is not open here", "start it first", code="event_unknown")
        return self.events[event_id]

    def let_go(self) -> None:
        """Keep nothing that refers back to the envelope: it is freed as soon as its author does not keep it either."""
        self.events = {}
        self.at = None

    def work(self, steps: int) -> EnvelopeWork:
        """Describe the envelope for a heartbeat.

        Args:
            steps: what grows with the work on all envelopes: they have one thread, so what waits for it gets nearer
                to its turn with each step of another.
        """
        work: EnvelopeWork = {"envelope_id": self.id, "progress": steps}
        for event in self._begun[-1:]:
            done, of = event.told
            work |= {"event_id": event.id, "done": done, "of": of}
        return work

    @property
    def steps(self) -> int:
        """Grows while the author's code advances with this envelope."""
        return sum([event.steps for event in self._begun])

    @property
    def _begun(self) -> list[Event]:
        return [*self.events.values()] or ([] if self.at is None else [self.at])

    def stop(self) -> None:
        """Take no step any more, not even those that are in line already."""
        self.is_stopped = True
        self._error = stopped()

    def take_step(self, step: Callable[[], tuple[object, ...]]) -> tuple[object, ...]:
        """Take one step through the author's code; to be called in the author's thread.

        Returns:
            ``(True, ...)`` with what the step returned, or ``(False, errors)`` after a refusal.

        Raises:
            CallError: the author's code failed, now or before, or the envelope was stopped.
        """
        if self._error is not None:
            raise self._error
        if self._refusal is not None:
            return (False, self._refusal.errors)
        try:
            return (True, *step())
        except Exception as error:
            return (False, self.errors_of(error))

    def errors_of(self, error: BaseException) -> list[tuple[list[int], str]]:
        """Note the exception of a step, and give the errors of a refusal as they go to the broker.

        Raises:
            CallError: the author's code failed, or the envelope was stopped.
            BaseException: ``error``, where it is no ``Exception``.
        """
        if isinstance(error, Refusal):
            if error is not self._refusal:
                self._refusal = error
                self._log_refusal(error)
            return error.errors
        is_known = error is self._error or (isinstance(error, Failed) and error.code == STOPPED)
        if is_known or not isinstance(error, Exception):
            raise error
        extra = {"action": "recipient_failed", **self._place()}
        logger.error("the recipient's code failed", exc_info=error, extra=extra)
        self._error = failure_of(error)
        raise self._error from error

    def _log_refusal(self, refusal: Refusal) -> None:
        # The cause is in the sentence, as a program that has set up no log shows no more than that.
        for indices, cause in refusal.errors:
            extra = {"action": "recipient_refused", "code": refusal.code, **self._place(), "indices": some_of(indices)}
            logger.warning("the recipient refused %s: %s", _refused(indices, self.at), cause, extra=extra)

    def _place(self) -> dict[str, object]:
        event = {} if self.at is None else {"event_id": self.at.id, "event_type": self.at.type_name}
        return {"envelope_id": self.id, **event}


def _refused(indices: list[int], event: Event | None) -> str:
    """Name the refused items: ``item 7 of event ...``."""
    of = "the envelope" if event is None else f"event {event.id} ({event.type_name})"
    if not indices:
        return of
    return f"item{'s' * (len(indices) > 1)} {some_of(indices)} of {of}"


def some_of(indices: list[int]) -> str:
    """Write the first of many indices."""
    more = f" and {len(indices) - SHOWN_INDICES} more" if len(indices) > SHOWN_INDICES else ""
    return ", ".join(map(str, indices[:SHOWN_INDICES])) + more


def log_rollback_failure(envelope_id: str, error: Exception | SystemExit) -> None:
    """Tell the recipient's operator that the author's rollback failed."""
    extra = {"action": "rollback_failed", "envelope_id": envelope_id}
    logger.error("the recipient's rollback failed", exc_info=error, extra=extra)


def _about_to_stop() -> Failed:
    return Failed("the recipient is about to stop", "send the envelope again later", code="recipient_stopping")


def failure_of(error: Exception) -> Failed:
    """Make the answer to the broker for an exception of the author's code: try again later."""
    return Failed(
        fault(error, MAX_CAUSE_CHARACTERS),
        "see the recipient's log for where it was raised",
        code="recipient_failed",
    )


class CallerOfNow(Protocol):
    """The way by which the broker calls."""

    @property
    def caller(self) -> bytes:
        """The connection by which the call came that is carried out now."""


class OpenDeliveries:
    """Keeps the open envelopes. Only calls by the broker's newest connection reach them.

    Args:
        calls: the author's methods.
        author_thread: where they run.

    Attributes:
        way: tells by which connection the call came that is carried out now. It is chosen before the first call.
        connections: by which the broker may call.
        is_closing: whether envelopes that are not open yet are turned away.
    """

    way: CallerOfNow

    def __init__(self, calls: Calls, author_thread: AuthorThread) -> None:
        self.connections = Connections()
        self.is_closing = False
        self._calls = calls
        self._author_thread = author_thread
        self._open: dict[str, EnvelopeDelivery] = {}
        self._stopping: set[EnvelopeDelivery] = set()
        self._steps_of_old = 0
        self._ended: asyncio.Event | None = None
        """Set when none is open any more, while somebody waits for that."""

    def __contains__(self, envelope_id: str) -> bool:
        return envelope_id in self._open

    @property
    def is_idle(self) -> bool:
        """True while no envelope is open."""
        return not self._open

    async def idle(self) -> None:
        """Return once no envelope is open."""
        while self._open:
            self._ended = self._ended or asyncio.Event()
            await self._ended.wait()

    def work(self) -> list[EnvelopeWork]:
        """Describe, for a heartbeat, each open envelope and each that is about to be rolled back."""
        deliveries = [*self._open.values(), *self._stopping]
        steps = self._author_thread.steps + self._calls.steps + self._steps_of_old
        steps += sum([delivery.steps for delivery in deliveries])
        return [delivery.work(steps) for delivery in deliveries]

    def open(self, envelope_id: str, note: list[Value] | None) -> EnvelopeDelivery:
        """Begin an envelope, or give the one that has begun.

        Raises:
            Failed: connection_superseded, or recipient_stopping.
        """
        self.check_caller()
        delivery = self._open.get(envelope_id) or EnvelopeDelivery(envelope_id)
        if note is not None:
            delivery.read_note(note)
        if envelope_id not in self._open:
            if self.is_closing:
                raise _about_to_stop()
            self._open[envelope_id] = delivery
        return delivery

    def open_all(self, deliveries: Sequence[EnvelopeDelivery]) -> None:
        """Begin several envelopes.

        Raises:
            Failed: as of ``open``.
            Refused: one of them has begun (``envelope_open``).
        """
        self.check_caller()
        begun: dict[str, EnvelopeDelivery] = {}
        for delivery in deliveries:
            if delivery.id in self._open or delivery.id in begun:
                raise Refused("an envelope of the bundle is open already", "stop it first", code="envelope_open")
            begun[delivery.id] = delivery
        if self.is_closing:
            raise _about_to_stop()
        self._open |= begun

    def get(self, envelope_id: str) -> EnvelopeDelivery:
        """Give an open envelope.

        Raises:
            Failed: connection_superseded.
            Refused: it is not open (``envelope_unknown``).
        """
        self.check_caller()
        if envelope_id not in self._open:
            raise _not_open()
        return self._open[envelope_id]

    def get_all(self, envelope_ids: Sequence[Value]) -> list[EnvelopeDelivery]:
        """Give several open envelopes.

        Raises:
            Failed: as of ``get``.
            Refused: as of ``get``, by one of them.
        """
        self.check_caller()
        if not self._open.keys() >= set(map(str, envelope_ids)):
            raise _not_open()
        return [self._open[str(envelope_id)] for envelope_id in envelope_ids]

    def end_all(self, deliveries: Sequence[EnvelopeDelivery]) -> None:
        """Keep nothing of envelopes that have come to their end; one that was stopped may be open anew."""
        for delivery in deliveries:
            if self._open.get(delivery.id) is not delivery:
                continue
            del self._open[delivery.id]
            # Most are let go already.
            if delivery.at is not None or delivery.events:
                self._steps_of_old += delivery.steps
                delivery.let_go()
        if self._ended is not None:
            self._look_whether_idle()

    def stop(self, envelope_id: str) -> Promise[bool]:
        """Roll an envelope back, also one that is not open here."""
        delivery = self._close(envelope_id) or EnvelopeDelivery(envelope_id)
        delivery.stop()
        self._stopping.add(delivery)

        def roll_back() -> bool:
            try:
                self._calls.rollback(delivery)
            except Exception as error:
                log_rollback_failure(envelope_id, error)
                raise failure_of(error) from error
            return True

        rolled_back = self._author_thread.give(roll_back)
        rolled_back.add_done_callback(lambda _: self._forget(delivery))
        return rolled_back

    async def roll_back_all(self) -> None:
        """Roll back every open envelope: the broker gave them up, or is about to.

        Its further calls by the present connection are turned away from now on: the rest of an envelope would pass
        for the whole of it.
        """
        self.connections.close()
        rolled_back = [self.stop(envelope_id) for envelope_id in list(self._open)]
        await asyncio.gather(*rolled_back, return_exceptions=True)  # what failed is in the log already

    def check_caller(self) -> None:
        """Let calls by the broker's newest connection pass; what the one before has left open is rolled back.

        Raises:
            Failed: connection_superseded.
        """
        caller = self.way.caller
        if caller != self.connections.current and self.connections.check(caller):
            for envelope_id in list(self._open):
                self.stop(envelope_id).add_done_callback(lambda done: done.cancelled() or done.exception())

    def _forget(self, delivery: EnvelopeDelivery) -> None:
        self._stopping.discard(delivery)
        self._steps_of_old += delivery.steps
        delivery.let_go()

    def _close(self, envelope_id: str) -> EnvelopeDelivery | None:
        delivery = self._open.pop(envelope_id, None)
        self._look_whether_idle()
        return delivery

    def _look_whether_idle(self) -> None:
        if self._ended is not None and not self._open:
            self._ended.set()
            self._ended = None


def _not_open() -> Refused:
    return Refused("the envelope is not open here", "start an event of it first", code="envelope_unknown")


MOST_PREPARED = 128
"""The most envelopes that a consumer without anything to commit leaves open for a decision. More takes more memory."""

OUTPUT_BYTES = 1024 * 1024
"""A worker begins no further envelope of a bundle once it has made so much. More takes more memory on both sides."""

BundleAnswer: TypeAlias = tuple[object, ...]
"""``(True,)`` where all went well, from a worker with the batches that it made of each event. ``(False, errors,
event_id)`` of a refusal; ``(None, (code, cause), event_id)`` of a failure; ``()`` of an envelope that was not begun."""

TAKEN: BundleAnswer = (True,)

_TOO_LARGE: BundleAnswer = (None, ("output_too_large", "what was made of the envelope is too large for a bundle"), None)

_ENVELOPES = {(str, list), (str, list, NoneType), (str, list, list)}
"""The types of the fields of an envelope in a bundle. One look tells whether all of them fit."""

_EVENTS = {(str, str, list), (str, str, list, NoneType), (str, str, list, dict)}
"""The types of the fields of an event in it."""

_HEADERS = itemgetter(slice(3, None))


def takes_bundles(recipient: Recipient) -> bool:
    """Check whether each envelope can be ended before the next one begins, whatever becomes of it elsewhere.

    A worker commits before it is known whether the consumers take what it made. It must have nothing to take back.
    """
    is_plain_worker = isinstance(recipient, Worker) and not isinstance(recipient, BulkWorker)
    return (is_plain_worker and _keeps_nothing(recipient)) or kind_of(recipient) == "consumer"


def prepared_at_once(recipient: Recipient) -> int:
    """Count the envelopes that may be open here for a decision by several consumers, each taken as a whole.

    A consumer with a commit or a rollback of its own has as many transactions as its author says by ``envelopes``.
    """
    if kind_of(recipient) != "consumer":
        return 0
    return max(MOST_PREPARED, recipient.envelopes) if _keeps_nothing(recipient) else recipient.envelopes


def _keeps_nothing(recipient: Recipient) -> bool:
    cls = type(recipient)
    return cls.commit is Recipient.commit and cls.rollback is Recipient.rollback


class WholeEnvelope(EnvelopeDelivery):
    """An envelope of a bundle: its state here, and its events with their items.

    Args:
        envelope_id: the envelope's UUID as text.
        note: as of ``checked_notes``.
        events: ``(event_id, type_name, batches)`` of each, or with its headers behind; all of it was checked.
        item: the bytes of its only item, where it is one event of one item.

    Attributes:
        is_prepared: whether it stays open for a decision.
        made_bytes: the bytes of the items that a worker has made of it.
    """

    is_prepared: bool = False
    made_bytes: int = 0

    def __init__(self, envelope_id: str, note: Note, events: Rows, item: bytes | None = None) -> None:
        self.id = envelope_id
        self._note = note
        self.events = {}
        self.rows: Rows | None = events
        """The events; None once it is let go."""
        self.item = item

    def let_go(self) -> None:
        """Keep neither the items nor what refers back to the envelope."""
        super().let_go()
        self.rows = self.item = None

    def take(self, calls: Calls) -> BundleAnswer:
        """Bring the envelope to the author's code; give the answer, with what a worker made of each event.

        Raises:
            Exception: as the author's code; or it was let go (``envelope_stopped``).
        """
        if self.rows is None:  # without its content it must not be committed
            raise stopped()
        made: list[list[WireBatch]] = []
        for event_id, name, batches, *headers in self.rows:
            self.at = event = self.add_event(event_id, name, *headers)
            _, items = calls.whole_event(event, batches if self.item is None else [Batch([self.item], 0)])
            self.made_bytes += sum([len(item.data) for item in items])
            made.append(wire_batches(items, OUTPUT_BYTES))
        if self.made_bytes > OUTPUT_BYTES:
            return _TOO_LARGE
        return (True, made) if calls.is_worker else TAKEN


def read_bundle(envelopes: Rows) -> list[WholeEnvelope]:
    """Read a bundle.

    Args:
        envelopes: each ``[envelope_id, [[event_id, type_name, batches], ...]]``, with or without a note behind. Behind
            the batches of an event there may be its headers.

    Raises:
        Refused: an envelope has not that form (``wrong_arguments``), or its items do not fit together (``bad_items``).
    """
    found: list[tuple[str, Rows, bytes]] = []
    notes: list[Value] = []
    try:
        # Most bundles are of envelopes of one event of one short item. Iterators over columns take half as long again
        # for many envelopes, and twice the time of this loop for one.
        for row in envelopes:
            envelope_id, events, note = row
            (event,) = events
            event_id, name, batches, *headers = event
            (batch,) = batches
            first, items, data, indices = batch
            if not (
                (type(row) is type(events) is type(event) is type(batches) is type(batch) is list)
                and (type(envelope_id) is type(event_id) is type(name) is str and note is not None)
                and (first == 0 and items == 1 and indices is None and type(data) is bytes)
                and (data[:1] == SHORT_BIN and data[1] + 2 == len(data))
            ):
                raise ValueError
            if headers:
                (of_event,) = headers
                if type(of_event) is dict:
                    packed_headers(of_event)
                elif of_event is not None:
                    raise ValueError
            found.append((envelope_id, events, data[2:]))
            notes.append(note)
    except (IndexError, TypeError, ValueError):
        # One of them is something else, or has a fault.
        return [*map(_read_whole, envelopes)]
    told = zip(found, checked_notes(notes), strict=True)
    return [WholeEnvelope(envelope_id, note, events, item) for (envelope_id, events, item), note in told]


def _read_whole(row: Rows) -> WholeEnvelope:
    if type(row) is not list or tuple(map(type, row)) not in _ENVELOPES:
        raise _wrong_form()
    envelope_id, rows, *note = row
    fit = [type(event) is list and tuple(map(type, event)) in _EVENTS for event in rows]
    if not all(fit) or len({event[0] for event in rows}) < len(rows):
        raise _wrong_form()
    _check_headers(rows)
    events = [(event_id, name, [*map(Batch.of_wire, batches)], *headers) for event_id, name, batches, *headers in rows]
    told = checked_notes(note[:1])[0] if note and note[0] is not None else NO_NOTE
    return WholeEnvelope(envelope_id, told, events)


def _check_headers(events: Rows) -> None:
    for headers in filter(None, chain.from_iterable(map(_HEADERS, events))):
        packed_headers(headers)


def take_all(
    calls: Calls, bundle: Sequence[WholeEnvelope], deliveries: OpenDeliveries, *, commits: bool = True
) -> list[BundleAnswer]:
    """Bring a bundle to the author's code, in their thread: one envelope after the other.

    Args:
        calls: the author's methods.
        bundle: the envelopes.
        deliveries: say whether the recipient is about to stop; then no other envelope is begun.
        commits: whether each is committed before the next one begins; otherwise it stays open for a decision. One that
            fails is rolled back.
    """
    answers: list[BundleAnswer] = []
    room = OUTPUT_BYTES
    take_item, has_commit = calls.take_item, calls.has_commit
    for whole in bundle:
        answer, event = TAKEN, None
        try:
            if whole.is_stopped:
                raise stopped()
            # Nearly all envelopes are of one item, and nearly all consumers take each by itself.
            if whole.item is not None and take_item is not None:
                ((event_id, name, _, *headers),) = whole.rows or ()
                whole.at = event = Event(event_id, name, whole)
                if headers and headers[0]:
                    event.read_headers(headers[0])
                try:
                    take_item(event, Item(whole.item, 0))
                except Refusal as refusal:
                    raise about(refusal, [0]) from refusal.__cause__
                event.taken = 1
            else:
                answer = whole.take(calls)
            if not commits:
                whole.is_prepared = answer is not _TOO_LARGE
            elif answer is not _TOO_LARGE:
                if has_commit or whole.files or whole.is_stopped:
                    calls.commit(whole)
                if event is not None:
                    # As ``let_go``, whose call each envelope would pay for.
                    whole.at = whole.rows = whole.item = None
                    calls.steps += 1 + event.reports
        except BaseException as error:
            answer = _answer_to(whole, error)
        answers.append(answer)
        if answer is not TAKEN:
            if answer[0] is not True and not whole.is_stopped:
                _roll_back(calls, whole)
            room -= whole.made_bytes
            if answer[0] is None or room < 0:
                break
        if deliveries.is_closing:
            break
    return answers + [()] * (len(bundle) - len(answers))


def commit_all(
    calls: Calls, prepared: Sequence[EnvelopeDelivery], following: Sequence[WholeEnvelope], deliveries: OpenDeliveries
) -> list[BundleAnswer]:
    """Commit prepared envelopes, in the author's thread; bring the next ones to the author's code.

    One that can't be committed stays open until it is stopped. Behind it none is committed, and none begun.

    Args:
        following: the next ones, which stay open for a decision.
        deliveries: as of ``take_all``.
    """
    answers: list[BundleAnswer] = []
    for delivery in prepared:
        try:
            went_wrong = delivery._error or delivery._refusal
            if went_wrong is not None:
                raise went_wrong
            if calls.has_commit or delivery.files or delivery.is_stopped:
                calls.commit(delivery)
            answers.append(TAKEN)
        except BaseException as error:
            answers.append(_answer_to(delivery, error))
            if answers[-1][0] is None:
                break
    if following and answers.count(TAKEN) == len(prepared) and not deliveries.is_closing:
        return answers + take_all(calls, following, deliveries, commits=False)
    return answers + [()] * (len(prepared) + len(following) - len(answers))


def _roll_back(calls: Calls, whole: WholeEnvelope) -> None:
    try:
        calls.rollback(whole)
    except (Exception, SystemExit) as error:
        # The broker has it rolled back once more before it comes again.
        log_rollback_failure(whole.id, error)


def _answer_to(delivery: EnvelopeDelivery, error: BaseException) -> BundleAnswer:
    """Make the answer for the broker to what the author's code has raised."""
    try:
        errors = delivery.errors_of(error)
        # What the wire has no form for would hide from the broker what was committed before it.
        pack(errors)
    except (CallError, ProtocolError) as failure:
        code, cause = failure.code, failure.cause
    except BaseException as failure:  # as of sys.exit() in the author's code: the others have answers of their own
        code, cause = "recipient_failed", f"the recipient's code raised {fault(failure)}"
    else:
        return (False, errors, _event_id(delivery))
    return (None, (plain(code, MOST_CHARACTERS), plain(cause, MOST_CHARACTERS)), _event_id(delivery))


def _event_id(delivery: EnvelopeDelivery) -> str | None:
    return None if delivery.at is None else delivery.at.id


def _wrong_form() -> Refused:
    return Refused(
        "an envelope of a bundle is not [envelope_id, [[event_id, type_name, batches], ...]], each event once",
        code="wrong_arguments",
    )
