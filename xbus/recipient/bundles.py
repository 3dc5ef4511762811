"""Bundles: whole small envelopes that come in one call, and are carried out one after the other in the author's thread.

Each envelope has an answer of its own. Behind an envelope that failed none is begun: the author's database may be away,
and all would fail alike. A refusal leaves the others alone.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeAlias

from xbus.errors import CallError, ProtocolError, Refused
from xbus.recipient.base import Recipient, Worker, kind_of
from xbus.recipient.bulk import BulkWorker
from xbus.recipient.calls import Calls
from xbus.recipient.delivery import EnvelopeDelivery, log_rollback_failure
from xbus.recipient.envelope import Event
from xbus.recipient.item import Batch
from xbus.recipient.outputs import WireBatch, wire_batches
from xbus.rpc.codec import Key, Value, pack
from xbus.texts import MOST_CHARACTERS, fault, plain

MOST_PREPARED = 128
"""The most envelopes that a consumer without anything to commit leaves open for a decision. More takes more memory."""

OUTPUT_BYTES = 1024 * 1024
"""A worker begins no further envelope of a bundle once it has made so much. More takes more memory on both sides."""

BundleAnswer: TypeAlias = tuple[object, ...]
"""``(True,)`` where all went well, from a worker with the batches that it made of each event; ``(False, errors,
event_id)`` of a refusal; ``(None, (code, cause), event_id)`` of a failure; ``()`` of an envelope that was not begun."""

BundleJob: TypeAlias = Callable[[], list[BundleAnswer]]


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


class WholeEnvelope:
    """An envelope of a bundle: its state here, and its events with their items.

    Args:
        value: ``[envelope_id, [[event_id, type_name, batches], ...]]``, with or without a note behind. Behind the
            batches of an event there may be its headers.

    Attributes:
        delivery: its state here.
        is_prepared: whether it stays open for a decision.
        made_bytes: the bytes of the items that a worker has made of it.

    Raises:
        Refused: the value has not that form (``wrong_arguments``), or its items do not fit together (``bad_items``).
    """

    __slots__ = ("_events", "delivery", "is_prepared", "made_bytes")

    def __init__(self, value: Value) -> None:
        # Not by patterns of match, which take longer than all else that is done for a small envelope here.
        if not isinstance(value, list) or len(value) not in (2, 3):
            raise _wrong_form()
        envelope_id, entries = value[:2]
        if not isinstance(envelope_id, str) or not isinstance(entries, list):
            raise _wrong_form()
        self.delivery = EnvelopeDelivery(envelope_id)
        self.is_prepared = False
        self.made_bytes = 0
        self._events: list[tuple[Event, list[Batch]]] = []
        if len(value) > 2:
            if not isinstance(note := value[2], list):
                raise _wrong_form()
            self.delivery.envelope.read_note(note)
        for entry in entries:
            self._events.append(self._read(entry))

    def _read(self, entry: Value) -> tuple[Event, list[Batch]]:
        if not isinstance(entry, list) or len(entry) not in (3, 4):
            raise _wrong_form()
        event_id, type_name, batches = entry[:3]
        if not isinstance(event_id, str) or not isinstance(type_name, str) or not isinstance(batches, list):
            raise _wrong_form()
        headers: dict[Key, Value] | None = None
        if len(entry) > 3:
            if not isinstance(told := entry[3], dict):
                raise _wrong_form()
            headers = told
        if self.delivery.has(event_id):
            raise _wrong_form()
        event = self.delivery.add_event(event_id, type_name, headers)
        return event, [Batch.of_wire(batch) for batch in batches]

    def carry_out(self, calls: Calls) -> BundleAnswer:
        """Bring the envelope to the author's code and commit it; roll it back where that fails."""
        return self._attempt(calls, partial(self._take, calls, commits=True))

    def prepare(self, calls: Calls) -> BundleAnswer:
        """Bring the envelope to the author's code, and leave it open for a decision; roll it back where that fails."""
        answer = self._attempt(calls, partial(self._take, calls, commits=False))
        self.is_prepared = answer[0] is True
        return answer

    def _attempt(self, calls: Calls, work: Callable[[], tuple[object, ...]]) -> BundleAnswer:
        answer = _answer_of(self.delivery, work)
        if self.made_bytes > OUTPUT_BYTES and answer[0] is True:
            answer = (None, ("output_too_large", "what was made of the envelope is too large for a bundle"), None)
        if answer[0] is not True and not self.delivery.envelope.is_stopped:
            self._roll_back(calls)
        return answer

    def _take(self, calls: Calls, *, commits: bool) -> tuple[()] | tuple[list[list[WireBatch]]]:
        made: list[list[WireBatch]] = []
        for event, batches in self._events:
            self.delivery.at = event
            _, items = calls.whole_event(event, batches)
            if calls.is_worker:
                self.made_bytes += sum([len(item.data) for item in items])
                made.append(wire_batches(items, OUTPUT_BYTES))
        if commits:
            calls.commit(self.delivery.envelope)
        return (made,) if calls.is_worker else ()

    def _roll_back(self, calls: Calls) -> None:
        try:
            calls.rollback(self.delivery.envelope)
        except Exception as error:
            # The broker has it rolled back once more before it comes again.
            log_rollback_failure(self.delivery.envelope.id, error)


def carry_out_all(calls: Calls, bundle: Sequence[WholeEnvelope], is_closing: Callable[[], bool]) -> BundleJob:
    """Make the job that carries out a bundle: each envelope is committed or rolled back before the next one begins.

    Args:
        calls: the author's methods.
        bundle: the envelopes.
        is_closing: whether the recipient is about to stop; then no other envelope is begun.
    """

    room, carried = OUTPUT_BYTES, iter(bundle)

    def is_over() -> bool:
        nonlocal room
        room -= next(carried).made_bytes
        return is_closing() or room < 0

    return lambda: _one_by_one([partial(whole.carry_out, calls) for whole in bundle], is_over)


def prepare_all(calls: Calls, bundle: Sequence[WholeEnvelope], is_closing: Callable[[], bool]) -> BundleJob:
    """Make the job that prepares a bundle: each envelope stays open for a decision, or is rolled back.

    Args:
        calls: the author's methods.
        bundle: the envelopes.
        is_closing: whether the recipient is about to stop; then no other envelope is begun.
    """
    return lambda: _one_by_one([partial(whole.prepare, calls) for whole in bundle], is_closing)


def commit_all(calls: Calls, deliveries: Sequence[EnvelopeDelivery]) -> BundleJob:
    """Make the job that commits prepared envelopes; one that can't be committed stays open until it is stopped."""
    return lambda: _one_by_one([partial(_commit, calls, delivery) for delivery in deliveries], lambda: False)


def _commit(calls: Calls, delivery: EnvelopeDelivery) -> BundleAnswer:
    def work() -> tuple[()]:
        calls.commit(delivery.envelope)
        return ()

    return _answer_of(delivery, work)


def _one_by_one(works: Iterable[Callable[[], BundleAnswer]], is_over: Callable[[], bool]) -> list[BundleAnswer]:
    answers: list[BundleAnswer] = []
    ended = False
    for work in works:
        answers.append(() if ended else work())
        ended = ended or answers[-1][0] is None or is_over()
    return answers


def _answer_of(delivery: EnvelopeDelivery, work: Callable[[], tuple[object, ...]]) -> BundleAnswer:
    """Do work on an envelope through the author's code, and make the answer for the broker of what comes of it."""
    try:
        answer = delivery.attempt(work)
        if answer[0]:
            return answer
        # What the wire has no form for would hide from the broker what was committed before it.
        pack(answer[1:])
    except (CallError, ProtocolError) as error:
        return _failure(delivery, error.code, error.cause)
    except BaseException as error:  # as of sys.exit() in the author's code: the others have answers of their own
        return _failure(delivery, "recipient_failed", f"the recipient's code raised {fault(error)}")
    return (False, answer[1], _event_id(delivery))


def _failure(delivery: EnvelopeDelivery, code: str, cause: str) -> BundleAnswer:
    return (None, (plain(code, MOST_CHARACTERS), plain(cause, MOST_CHARACTERS)), _event_id(delivery))


def _event_id(delivery: EnvelopeDelivery) -> str | None:
    return None if delivery.at is None else delivery.at.id


def _wrong_form() -> Refused:
    return Refused(
        "an envelope of a bundle is not [envelope_id, [[event_id, type_name, batches], ...]], each event once",
        code="wrong_arguments",
    )
