"""Takes the reports of bulk workers about the outputs that they make.

The attempts in the journal are the truth. So a worker may report, and repeat a report, after it or the broker has come
back.
"""

import asyncio
import logging
from collections.abc import Callable
from uuid import UUID

from xbus.broker.back.bulk.attempt import OutputAttempt
from xbus.broker.back.bulk.attempts import OutputAttempts
from xbus.broker.back.bulk.outputs import BulkOutputs
from xbus.broker.back.recipients import RecipientFailed, failure_of_report, no_output
from xbus.broker.journal.bulk.outputs import MISMATCH, Totals, read_totals
from xbus.broker.journal.bulk.part_writer import Adoption
from xbus.broker.journal.database.compression import DAMAGED
from xbus.broker.journal.journal import Journal
from xbus.errors import Failed, JournalError, JournalUnavailable, Refused, XbusError
from xbus.states import AttemptState

log = logging.getLogger(__name__)


class OutputReports:
    """One method for each of the workers' verbs about outputs.

    Args:
        journal: has the outputs, and takes them over.
        attempts: the attempts that count.
        outputs: takes note of failures; outputs are checked beside it.
        on_ready: called with each attempt that has become ready.
    """

    def __init__(
        self,
        journal: Journal,
        attempts: OutputAttempts,
        outputs: BulkOutputs,
        on_ready: Callable[[OutputAttempt], None],
    ) -> None:
        self._journal = journal
        self._attempts = attempts
        self._outputs = outputs
        self._on_ready = on_ready

    def renew(self, role_id: int, attempt_id: str, progress: object) -> bool:
        """Take note of a sign of life; whether the output is still wanted."""
        attempt = self._found(role_id, attempt_id)
        if attempt is None or attempt.state is not AttemptState.BUILDING:
            return False
        if attempt.is_building:
            self._attempts.renew(attempt, _fraction(progress))
        return True

    async def ready(self, role_id: int, attempt_id: str, told: object) -> bool:
        """Check an output that its worker reports as ready, once also for repeated reports; True if it is ready.

        Raises:
            Refused: the report has another form (``bad_report``).
            JournalUnavailable: the database can't be read now.
        """
        announced = _totals(told)
        attempt = self._found(role_id, attempt_id)
        if attempt is None:
            return False
        if attempt.state is AttemptState.READY:
            return True
        if attempt.report is None and attempt.is_building:
            attempt.report = self._outputs.spawn(self._check(attempt, announced), "check of an output")
        return False if attempt.report is None else await _outcome(attempt.report)

    async def failed(self, role_id: int, attempt_id: str, told: object) -> bool:
        """Note that an output can't be made; whether anybody waited for it."""
        attempt = self._found(role_id, attempt_id)
        if attempt is None:
            return False
        if attempt.report is not None:
            await _outcome(attempt.report)
        failure = failure_of_report(role_id, attempt.output.event_id, told)
        was_making = await self._outputs.fail(attempt, failure, AttemptState.FAILED)
        if was_making and failure.code == DAMAGED:
            # The worker reads past the broker, which would find the damage in the next slow round only.
            cause = f"a worker met it in event {attempt.output.event_id}: {failure.errors[0].message}"
            self._journal.tell_damage(JournalError(cause, code=DAMAGED))
        return was_making

    async def _check(self, attempt: OutputAttempt, announced: Totals) -> bool | XbusError:
        """Check an output, and return an error instead of raising it: an exception of a task ends the broker."""
        try:
            return await self._take_over(attempt, announced)
        except JournalUnavailable as error:
            # The worker repeats its report.
            return error
        except JournalError as error:
            return await self._mismatch(attempt, error.cause)
        finally:
            attempt.report = None

    async def _take_over(self, attempt: OutputAttempt, announced: Totals) -> bool:
        adoption = Adoption(attempt.id)
        while await self._journal.run(adoption.step):
            pass
        found = await self._journal.read(read_totals, attempt.id)
        if found != announced:
            return await self._mismatch(
                attempt,
                f"{found.items} items in {found.data_bytes} bytes are there where {announced.items} in "
                f"{announced.data_bytes} bytes were announced; or others",
            )
        is_ready = await self._attempts.end(
            attempt,
            AttemptState.READY,
            items=found.items,
            data_bytes=found.data_bytes,
            hash=found.hash,
        )
        if is_ready:
            extra = {"action": "output_ready", "attempt_id": attempt.id, "items": found.items}
            log.info("output ready", extra={**extra, "bytes": found.data_bytes})
            self._on_ready(attempt)
        return is_ready

    async def _mismatch(self, attempt: OutputAttempt, cause: str) -> bool:
        failure: RecipientFailed = no_output(attempt.role_id, attempt.output.event_id, MISMATCH, cause)
        await self._outputs.fail(attempt, failure, AttemptState.FAILED)
        return False

    def _found(self, role_id: int, attempt_id: str) -> OutputAttempt | None:
        """Find an attempt of this role that counts."""
        try:
            attempt = self._attempts.by_id(UUID(attempt_id))
        except ValueError:
            raise Refused("the attempt's id is no UUID", "give the id of the hand-over", code="bad_report") from None
        return attempt if attempt is not None and attempt.role_id == role_id else None


async def _outcome(report: "asyncio.Task[bool | XbusError]") -> bool:
    try:
        outcome = await asyncio.shield(report)
    except asyncio.CancelledError:
        if not report.cancelled():
            raise
        raise Failed(
            "the broker is stopping", "report it again when the broker is back", code="broker_stopping"
        ) from None
    if isinstance(outcome, XbusError):
        raise outcome
    return outcome


def _totals(told: object) -> Totals:
    match told:
        case {"items": int(items), "bytes": int(data_bytes), "hash": bytes(digest)}:
            return Totals(items, data_bytes, digest)
    raise Refused("the report about the output is not a map of items, bytes and hash", code="bad_report")


def _fraction(progress: object) -> float:
    return min(1.0, max(0.0, float(progress))) if type(progress) is int or type(progress) is float else 0.0
