"""Bundles: small envelopes that come whole and together, and are carried out one after the other."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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

OUTPUT_BYTES = 1024 * 1024
"""A worker begins no further envelope of a bundle once it has made so much. More takes more memory on both sides."""

BundleAnswer: TypeAlias = tuple[object, ...]
"""``(True,)`` of a commit, from a worker with the batches that it made of each event; ``(False, errors, event_id)`` of
a refusal; ``(None, (code, cause), event_id)`` of a failure; ``()`` of an envelope that was not begun."""


@dataclass(frozen=True, slots=True)
class WholeEvent:
    """An event with all of its items."""

    id: str
    type_name: str
    batches: Sequence[Batch]
    headers: Mapping[Key, Value] | None = None


@dataclass(frozen=True, slots=True)
class WholeEnvelope:
    """An envelope with all of its events, and what the broker tells of it."""

    id: str
    events: Sequence[WholeEvent]
    note: list[Value] | None = None

    @classmethod
    def of_wire(cls, value: Value) -> "WholeEnvelope":
        """The envelope in ``[envelope_id, [[event_id, type_name, batches], ...]]``, with or without a note behind.

        Behind the batches of an event there may be its headers.

        Raises:
            Refused: it has not that form (``wrong_arguments``), or its items do not fit together (``bad_items``).
        """
        note: list[Value] | None = None
        match value:
            case [str(envelope_id), list(entries)]:
                pass
            case [str(envelope_id), list(entries), list(note)]:
                pass
            case _:
                raise _wrong_form()
        events = [_event_of_wire(entry) for entry in entries]
        if len({event.id for event in events}) < len(events):
            raise _wrong_form()
        return cls(envelope_id, events, note)


def _event_of_wire(value: Value) -> WholeEvent:
    match value:
        case [str(event_id), str(type_name), list(batches)]:
            return WholeEvent(event_id, type_name, [Batch.of_wire(batch) for batch in batches])
        case [str(event_id), str(type_name), list(batches), dict(headers)]:
            return WholeEvent(event_id, type_name, [Batch.of_wire(batch) for batch in batches], headers)
    raise _wrong_form()


def _wrong_form() -> Refused:
    return Refused(
        "an envelope of a bundle is not [envelope_id, [[event_id, type_name, batches], ...]], each event once",
        code="wrong_arguments",
    )


class BundleStep:
    """Carries one envelope of a bundle out, in the author's thread: it is committed or rolled back when this returns.

    Args:
        calls: the author's methods.
        delivery: the envelope's state here.
        whole: its content.
    """

    def __init__(self, calls: Calls, delivery: EnvelopeDelivery, whole: WholeEnvelope) -> None:
        self._calls = calls
        self._delivery = delivery
        self._events = [
            (delivery.add_event(event.id, event.type_name, event.headers), event.batches) for event in whole.events
        ]
        self.made_bytes = 0
        """The bytes of the items that a worker has made."""

    def carry_out(self) -> BundleAnswer:
        """Bring the envelope to the author's code and commit it; roll it back where that fails."""
        answer = self._attempt()
        if answer[0] is not True and not self._delivery.envelope.is_stopped:
            self._roll_back()
        return answer

    def _attempt(self) -> BundleAnswer:
        try:
            taken, *said = self._delivery.attempt(self._step)
            if not taken:
                # What the wire has no form for would hide from the broker what was committed before it.
                pack(said)
        except (CallError, ProtocolError) as error:
            return (None, (error.code, error.cause), self._event_id)
        except BaseException as error:  # as of sys.exit() in the author's code: the others have answers of their own
            return (None, ("recipient_failed", f"the recipient's code raised {error!r}"), self._event_id)
        if self.made_bytes > OUTPUT_BYTES:
            return (None, ("output_too_large", "what was made of the envelope is too large for a bundle"), None)
        return (True, *said) if taken else (False, said[0], self._event_id)

    def _step(self) -> tuple[()] | tuple[list[list[WireBatch]]]:
        made = [self._carry_out_event(event, batches) for event, batches in self._events]
        self._calls.commit(self._delivery.envelope)
        return (made,) if self._calls.is_worker else ()

    def _carry_out_event(self, event: Event, batches: Sequence[Batch]) -> list[WireBatch]:
        self._delivery.at = event
        calls = self._calls
        calls.start_event(event)
        made = [item for batch in batches for item in calls.batch(event, batch) or ()]
        made += calls.end_event(event)[1]
        self.made_bytes += sum(len(item.data) for item in made)
        return wire_batches(made, OUTPUT_BYTES)

    @property
    def _event_id(self) -> str | None:
        at = self._delivery.at
        return None if at is None else at.id

    def _roll_back(self) -> None:
        try:
            self._calls.rollback(self._delivery.envelope)
        except Exception as error:
            # The broker has it rolled back once more before it comes again.
            log_rollback_failure(self._delivery.envelope.id, error)


def carry_out_all(steps: Sequence[BundleStep], is_closing: Callable[[], bool]) -> Callable[[], list[BundleAnswer]]:
    """The job that carries out a bundle, for the author's thread: one envelope after the other.

    Behind an envelope that failed none is begun: the author's database may be away, and all would fail alike. A refusal
    leaves the others alone.

    Args:
        is_closing: whether the recipient is about to stop; then no other envelope is begun.
    """

    def job() -> list[BundleAnswer]:
        answers: list[BundleAnswer] = []
        for step in steps:
            answers.append(step.carry_out())
            has_made_enough = sum(step.made_bytes for step in steps) > OUTPUT_BYTES
            if answers[-1][0] is None or has_made_enough or is_closing():
                break
        return answers + [()] * (len(steps) - len(answers))

    return job


def takes_bundles(recipient: Recipient) -> bool:
    """Check whether each envelope can be ended before the next one begins, whatever becomes of it elsewhere.

    A worker commits before it is known whether the consumers take what it made. It must have nothing to take back.
    """
    cls = type(recipient)
    keeps_nothing = cls.commit is Recipient.commit and cls.rollback is Recipient.rollback
    is_plain_worker = isinstance(recipient, Worker) and not isinstance(recipient, BulkWorker) and keeps_nothing
    return is_plain_worker or kind_of(recipient) == "consumer"
