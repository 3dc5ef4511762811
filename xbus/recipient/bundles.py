"""Bundles: several whole small envelopes that come in one call, and are carried out one after the other.

Each envelope has an answer of its own. Behind one that failed none is begun: the author's database may be away, and all
would fail alike. A refusal leaves the others alone.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from xbus.errors import CallError, ProtocolError, Refused
from xbus.recipient.base import Recipient, Worker, kind_of
from xbus.recipient.bulk import BulkWorker
from xbus.recipient.calls import Calls
from xbus.recipient.delivery import EnvelopeDelivery, log_rollback_failure
from xbus.recipient.item import Batch, Item
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

WholeEvent: TypeAlias = tuple[str, str, Sequence[Batch], Mapping[Key, Value] | None]
"""The id of an event, the name of its type, its items, and its headers."""


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


# -- what comes ------------------------------------------------------------------------------------------------------


class WholeEnvelope(NamedTuple):
    """An envelope with all of its events, and what the broker tells of it."""

    id: str
    events: Sequence[WholeEvent]
    note: list[Value] | None


def read_bundle(envelopes: Iterable[Value]) -> list[WholeEnvelope]:
    """Read ``[[envelope_id, [[event_id, type_name, batches], ...]], ...]``, each with or without a note behind.

    Behind the batches of an event there may be its headers.

    Raises:
        Refused: it has not that form (``wrong_arguments``), or its items do not fit together (``bad_items``).
    """
    found: list[WholeEnvelope] = []
    for envelope in envelopes:
        match envelope:
            case [str(envelope_id), list(entries)]:
                note: list[Value] | None = None
            case [str(envelope_id), list(entries), list(note)]:
                pass
            case _:
                raise _wrong_form()
        events: list[WholeEvent] = []
        for entry in entries:
            match entry:
                case [str(event_id), str(type_name), list(batches)]:
                    events.append((event_id, type_name, [*map(Batch.of_wire, batches)], None))
                case [str(event_id), str(type_name), list(batches), dict(headers)]:
                    events.append((event_id, type_name, [*map(Batch.of_wire, batches)], headers))
                case _:
                    raise _wrong_form()
        if len(events) > 1 and len({event_id for event_id, *_ in events}) < len(events):
            raise _wrong_form()
        found.append(WholeEnvelope(envelope_id, events, note))
    return found


def _wrong_form() -> Refused:
    return Refused(
        "an envelope of a bundle is not [envelope_id, [[event_id, type_name, batches], ...]], each event once",
        code="wrong_arguments",
    )


# -- what is done, in the author's thread ----------------------------------------------------------------------------


class BundleStep:
    """Carries one envelope of a bundle out.

    Args:
        calls: the author's methods.
        delivery: the envelope's state here.
        whole: its content.

    Attributes:
        delivery: the same.
        is_prepared: whether it stays open for a decision.
        made_bytes: the bytes of the items that a worker has made.
    """

    __slots__ = ("_calls", "_events", "delivery", "is_prepared", "made_bytes")

    def __init__(self, calls: Calls, delivery: EnvelopeDelivery, whole: WholeEnvelope) -> None:
        self.delivery = delivery
        self.is_prepared = False
        self.made_bytes = 0
        self._calls = calls
        self._events = [
            (delivery.add_event(event_id, type_name, headers), batches)
            for event_id, type_name, batches, headers in whole.events
        ]

    def carry_out(self) -> BundleAnswer:
        """Bring the envelope to the author's code and commit it; roll it back where that fails."""
        return self._attempt(self._take_and_commit)

    def prepare(self) -> BundleAnswer:
        """Bring the envelope to the author's code, and leave it open for a decision; roll it back where that fails."""
        answer = self._attempt(self._take)
        self.is_prepared = answer[0] is True
        return answer

    def _attempt(self, work: Callable[[], tuple[object, ...]]) -> BundleAnswer:
        answer = _answer_of(self.delivery, work)
        if self.made_bytes > OUTPUT_BYTES and answer[0] is True:
            answer = (None, ("output_too_large", "what was made of the envelope is too large for a bundle"), None)
        if answer[0] is not True and not self.delivery.envelope.is_stopped:
            self._roll_back()
        return answer

    def _take_and_commit(self) -> tuple[object, ...]:
        made = self._take()
        self._calls.commit(self.delivery.envelope)
        return made

    def _take(self) -> tuple[()] | tuple[list[list[WireBatch]]]:
        calls, delivery = self._calls, self.delivery
        of_events: list[list[WireBatch]] = []
        for event, batches in self._events:
            delivery.at = event
            calls.start_event(event)
            made: list[Item] = []
            for batch in batches:
                made += calls.batch(event, batch) or ()
            made += calls.end_event(event)[1]
            if calls.is_worker:
                self.made_bytes += sum([len(item.data) for item in made])
                of_events.append(wire_batches(made, OUTPUT_BYTES))
        return (of_events,) if calls.is_worker else ()

    def _roll_back(self) -> None:
        try:
            self._calls.rollback(self.delivery.envelope)
        except Exception as error:
            # The broker has it rolled back once more before it comes again.
            log_rollback_failure(self.delivery.envelope.id, error)


def carry_out_all(steps: Sequence[BundleStep], is_closing: Callable[[], bool]) -> BundleJob:
    """Make the job that carries out a bundle: each envelope is committed or rolled back before the next one begins.

    Args:
        is_closing: whether the recipient is about to stop; then no other envelope is begun.
    """

    def answers() -> Iterator[BundleAnswer]:
        room = OUTPUT_BYTES
        for step in steps:
            yield step.carry_out()
            room -= step.made_bytes
            if room < 0:
                return

    return lambda: _one_by_one(answers(), len(steps), is_closing)


def prepare_all(steps: Sequence[BundleStep], is_closing: Callable[[], bool]) -> BundleJob:
    """Make the job that prepares a bundle: each envelope stays open for a decision, or is rolled back.

    Args:
        is_closing: whether the recipient is about to stop; then no other envelope is begun.
    """
    return lambda: _one_by_one(map(BundleStep.prepare, steps), len(steps), is_closing)


def commit_all(calls: Calls, deliveries: Sequence[EnvelopeDelivery]) -> BundleJob:
    """Make the job that commits prepared envelopes; one that can't be committed stays open until it is stopped."""
    return lambda: _one_by_one(map(partial(_commit, calls), deliveries), len(deliveries), lambda: False)


def _commit(calls: Calls, delivery: EnvelopeDelivery) -> BundleAnswer:
    def work() -> tuple[()]:
        calls.commit(delivery.envelope)
        return ()

    return _answer_of(delivery, work)


def _one_by_one(answers: Iterator[BundleAnswer], number: int, is_over: Callable[[], bool]) -> list[BundleAnswer]:
    """Collect the answers for so many envelopes, each of which is carried out when its answer is asked for."""
    found: list[BundleAnswer] = []
    for answer in answers:
        found.append(answer)
        if answer[0] is None or is_over():
            break
    return found + [()] * (number - len(found))


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
