"""The envelopes of a bundle, carried out one after the other in the author's thread."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from xbus.errors import CallError, ProtocolError
from xbus.recipient.bundles.whole import WholeEnvelope
from xbus.recipient.calls import Calls
from xbus.recipient.delivery import EnvelopeDelivery, log_rollback_failure
from xbus.recipient.envelope import Event
from xbus.recipient.item import Batch
from xbus.recipient.outputs import WireBatch, wire_batches
from xbus.rpc.codec import pack
from xbus.texts import MOST_CHARACTERS, fault, plain

OUTPUT_BYTES = 1024 * 1024
"""A worker begins no further envelope of a bundle once it has made so much. More takes more memory on both sides."""

BundleAnswer: TypeAlias = tuple[object, ...]
"""``(True,)`` where all went well, from a worker with the batches that it made of each event; ``(False, errors,
event_id)`` of a refusal; ``(None, (code, cause), event_id)`` of a failure; ``()`` of an envelope that was not begun."""


class BundleStep:
    """Carries one envelope of a bundle out, in the author's thread.

    Args:
        calls: the author's methods.
        delivery: the envelope's state here.
        whole: its content.

    Attributes:
        delivery: the same.
        is_prepared: whether it stays open for a decision.
        made_bytes: the bytes of the items that a worker has made.
    """

    def __init__(self, calls: Calls, delivery: EnvelopeDelivery, whole: WholeEnvelope) -> None:
        self.delivery = delivery
        self.is_prepared = False
        self.made_bytes = 0
        self._calls = calls
        self._events = [
            (delivery.add_event(event.id, event.type_name, event.headers), event.batches) for event in whole.events
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
        answer = answer_of(self.delivery, work)
        if answer[0] is True and self.made_bytes > OUTPUT_BYTES:
            answer = (None, ("output_too_large", "what was made of the envelope is too large for a bundle"), None)
        if answer[0] is not True and not self.delivery.envelope.is_stopped:
            self._roll_back()
        return answer

    def _take_and_commit(self) -> tuple[object, ...]:
        made = self._take()
        self._calls.commit(self.delivery.envelope)
        return made

    def _take(self) -> tuple[()] | tuple[list[list[WireBatch]]]:
        made = [self._carry_out_event(event, batches) for event, batches in self._events]
        return (made,) if self._calls.is_worker else ()

    def _carry_out_event(self, event: Event, batches: Sequence[Batch]) -> list[WireBatch]:
        self.delivery.at = event
        calls = self._calls
        calls.start_event(event)
        made = [item for batch in batches for item in calls.batch(event, batch) or ()]
        made += calls.end_event(event)[1]
        self.made_bytes += sum(len(item.data) for item in made)
        return wire_batches(made, OUTPUT_BYTES)

    def _roll_back(self) -> None:
        try:
            self._calls.rollback(self.delivery.envelope)
        except Exception as error:
            # The broker has it rolled back once more before it comes again.
            log_rollback_failure(self.delivery.envelope.id, error)


def answer_of(delivery: EnvelopeDelivery, work: Callable[[], tuple[object, ...]]) -> BundleAnswer:
    """Do work on an envelope through the author's code, and make the answer for the broker of what comes of it."""
    try:
        taken, *said = delivery.attempt(work)
        if not taken:
            # What the wire has no form for would hide from the broker what was committed before it.
            pack(said)
    except (CallError, ProtocolError) as error:
        return _failure(delivery, error.code, error.cause)
    except BaseException as error:  # as of sys.exit() in the author's code: the others have answers of their own
        return _failure(delivery, "recipient_failed", f"the recipient's code raised {fault(error)}")
    return (True, *said) if taken else (False, said[0], _event_id(delivery))


def _failure(delivery: EnvelopeDelivery, code: str, cause: str) -> BundleAnswer:
    return (None, (plain(code, MOST_CHARACTERS), plain(cause, MOST_CHARACTERS)), _event_id(delivery))


def _event_id(delivery: EnvelopeDelivery) -> str | None:
    return None if delivery.at is None else delivery.at.id
