"""The next row of a delivery that could not be made in its turn; pure.

Each function makes the role's next delivery row.
"""

from dataclasses import replace
from datetime import datetime

from xbus.broker.back.recipients import FailureClass, RecipientFailed
from xbus.broker.journal.log.deliveries import OUTPUT_NOT_READY, RESUMED, WORKER_ABSENT, worker_absent
from xbus.broker.journal.log.reading import LogEnvelope
from xbus.broker.journal.writes import PAUSED, DeliveryRow, PauseEntry
from xbus.states import DeliveryState

ISOLATED = "isolated"
"""The code of a delivery that continues without refused items, which are parked alone."""

BEGUN_CODES = (RESUMED, ISOLATED)
"""Its recipient may have something left of it, though no attempt counts."""


def before_its_turn(role_id: int, envelope: LogEnvelope, ordering_key: str | None, *, attempts: int) -> DeliveryRow:
    """Make the delivery of an envelope that has no row yet.

    Args:
        ordering_key: "" for none; None where the role wants no order.
        attempts: how often it was handed over: 0, or 1 where its turn has just gone wrong.
    """
    return DeliveryRow(
        role_id,
        envelope.envelope_id,
        envelope.position,
        DeliveryState.RETRY,
        attempts,
        code="",
        cause="",
        ordering_key=ordering_key,
    )


def after_crash(delivery: DeliveryRow, *, is_blocked: bool) -> DeliveryRow:
    """Redeliver on its own an envelope that may have been handed over before the crash.

    Args:
        is_blocked: whether an earlier one of its ordering key goes first.
    """
    return replace(
        delivery,
        state=DeliveryState.HELD if is_blocked else DeliveryState.RETRY,
        attempts=1,
        code="broker_stopped",
        cause="it may have been handed over when the broker went down",
    )


def after_reply(delivery: DeliveryRow) -> DeliveryRow:
    """Deliver the rest of an envelope on its own: a part was handed over ahead, for an immediate reply."""
    return replace(
        delivery,
        attempts=1,
        code="reply_given",
        cause="it began with an immediate reply, ahead of its turn",
    )


def held(delivery: DeliveryRow) -> DeliveryRow:
    """Block a row until an earlier one of its ordering key is settled."""
    return replace(
        delivery,
        state=DeliveryState.HELD,
        code="held",
        cause="an earlier envelope of its ordering key is not settled yet",
    )


def begun(delivery: DeliveryRow) -> DeliveryRow:
    """Begin a blocked row whose turn has come; it is not written before the hand-over, see ``in_doubt``."""
    return replace(delivery, attempts=delivery.attempts + 1)


def in_doubt(delivery: DeliveryRow) -> DeliveryRow:
    """Doubt a blocked row that may have been handed over before the crash."""
    return replace(after_crash(delivery, is_blocked=True), attempts=max(delivery.attempts, 1))


def waiting_for(delivery: DeliveryRow, service: str, pause: PauseEntry | None = None) -> DeliveryRow:
    """Let a row wait until a worker of ``service`` registers, or its pause ends."""
    if pause is not None:
        return _waiting(delivery, PAUSED, pause.told, service)
    return _waiting(delivery, WORKER_ABSENT, worker_absent(service), service)


def paused(attempt: DeliveryRow, pause: PauseEntry | None) -> DeliveryRow:
    """Redeliver an envelope when its role is resumed: nothing had begun, and no attempt counts.

    Args:
        pause: the pause; None where it has ended already.
    """
    cause = "it was paused when its turn came" if pause is None else pause.told
    return _redelivered(attempt, PAUSED, cause, attempts=max(attempt.attempts - 1, 0))


def waiting_for_output(delivery: DeliveryRow, node: str) -> DeliveryRow:
    """Let a row wait until a bulk worker has made the output of a node."""
    return _waiting(delivery, OUTPUT_NOT_READY, f'the output of node "{node}" is not made yet')


def _waiting(delivery: DeliveryRow, code: str, cause: str, service: str | None = None) -> DeliveryRow:
    return replace(
        delivery,
        # The code of the first hand-over is lost: an envelope that may have begun counts from here on.
        attempts=max(delivery.attempts, 1 if delivery.code in BEGUN_CODES else 0),
        state=DeliveryState.WAITING,
        code=code,
        cause=cause,
        service=service,
        due_at=None,
    )


def after_output(delivery: DeliveryRow) -> DeliveryRow:
    """Let a row go on whose output is ready, or is to be requested again."""
    return replace(
        delivery,
        state=DeliveryState.RETRY,
        code="output_known",
        cause="the output that it waited for is ready, or is to be asked for again",
        due_at=None,
    )


def next_attempt(delivery: DeliveryRow) -> DeliveryRow:
    """Begin another attempt; count it before the hand-over, so that a crash can't lose count."""
    return replace(delivery, state=DeliveryState.RETRY, attempts=delivery.attempts + 1, service=None, due_at=None)


def may_have_begun(attempt: DeliveryRow) -> bool:
    """Check whether its recipient may have leftovers of an earlier attempt, to be forgotten first.

    Args:
        attempt: the delivery, with the coming attempt counted.
    """
    return attempt.attempts > 1 or attempt.code in BEGUN_CODES


def probe(delivery: DeliveryRow) -> DeliveryRow:
    """Begin a hand-over to a recipient in trouble: this is no attempt, though the envelope may have begun then."""
    return replace(next_attempt(delivery), attempts=max(delivery.attempts, 1))


def not_counted(attempt: DeliveryRow) -> DeliveryRow:
    """Take an attempt back that failed for a reason outside the envelope."""
    return replace(attempt, attempts=max(attempt.attempts - 1, 1))


def put_off(attempt: DeliveryRow, failure: RecipientFailed, *, due_at: datetime | None) -> DeliveryRow:
    """Redeliver an envelope because its recipient, or a worker before it, was leaving; no attempt counts.

    Args:
        due_at: when it may be redelivered; None for as soon as they are registered.
    """
    counted = not_counted(attempt).attempts
    return _redelivered(attempt, failure.code, failure.cause, attempts=counted, due_at=due_at)


def isolated(attempt: DeliveryRow, cause: str) -> DeliveryRow:
    """Redeliver an envelope at once without refused items, which are parked alone; the attempt does not count.

    Args:
        cause: the items and the reasons, in a sentence.
    """
    return _redelivered(attempt, ISOLATED, cause, attempts=max(attempt.attempts - 1, 0))


def after_failure(
    attempt: DeliveryRow, failure: RecipientFailed, *, attempts: int | None, due_at: datetime | None
) -> DeliveryRow:
    """Redeliver an envelope if that may help and attempts are left; park it otherwise.

    Args:
        attempt: the delivery, with the failed attempt counted.
        failure: the failure of the attempt.
        attempts: the number of attempts in all; None if attempts don't count now.
        due_at: when the next one may begin; None for at once.
    """
    comes_again = failure.failure_class is FailureClass.TRANSIENT and (attempts is None or attempt.attempts < attempts)
    return replace(
        attempt,
        state=DeliveryState.RETRY if comes_again else DeliveryState.PARKED,
        code=failure.code,
        cause=failure.cause,
        service=None,
        due_at=due_at if comes_again else None,
    )


def _redelivered(
    attempt: DeliveryRow, code: str, cause: str, *, attempts: int, due_at: datetime | None = None
) -> DeliveryRow:
    """Redeliver an envelope on its own; it waits for no worker."""
    return replace(
        attempt, state=DeliveryState.RETRY, attempts=attempts, code=code, cause=cause, service=None, due_at=due_at
    )


def settled(delivery: DeliveryRow) -> DeliveryRow:
    """Settle a delivered envelope: its row goes."""
    return replace(delivery, state=DeliveryState.SETTLED)
