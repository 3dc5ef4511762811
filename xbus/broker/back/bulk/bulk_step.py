"""The step before a run that large events need: their outputs are made first, and the delivery waits for them."""

from collections.abc import Sequence
from typing import TypeAlias

from xbus.broker.back.bulk.attempt import WantedOutput
from xbus.broker.back.bulk.outputs import BulkOutputs
from xbus.broker.back.bulk.requirements import OutputRequirements
from xbus.broker.back.bulk.waiting import WaitingDeliveries
from xbus.broker.back.log import LogReader
from xbus.broker.back.recipients import ServedRole
from xbus.broker.journal.log.reading import LogEnvelope, LogEvent
from xbus.broker.journal.writes import DeliveryRow

MissingOutputs: TypeAlias = Sequence[tuple[LogEvent, WantedOutput]]


class BulkStep:
    """The view that the ordinary path has of bulk workers.

    Args:
        log: where it is read which items are brought otherwise than they were sent.
        requirements: know which outputs are to be ready before consumers are started.
        outputs: has bulk workers make them.
        waiting: the deliveries that wait for that.
    """

    def __init__(
        self, log: LogReader, requirements: OutputRequirements, outputs: BulkOutputs, waiting: WaitingDeliveries
    ) -> None:
        self._log = log
        self._requirements = requirements
        self._outputs = outputs
        self._waiting = waiting

    async def missing(
        self, envelope: LogEnvelope, recipient: ServedRole, *, on_its_own: bool = False
    ) -> MissingOutputs:
        """Find the outputs that a consumer needs first; most envelopes need none.

        Args:
            on_its_own: whether it gets the envelope by a row of its own, and thus with the corrections for its role.
        """
        overlays = await self._log.overlays(envelope, recipient.role.id if on_its_own else None)
        return await self._requirements.lacking(envelope, recipient.role.service, overlays.keys())

    def set_aside(
        self, envelope: LogEnvelope, missing: MissingOutputs, old: DeliveryRow | None, new: DeliveryRow
    ) -> None:
        """Have the missing outputs of a delivery made; it waits for them, and blocks no other.

        Args:
            old: its row; None where it has none yet.
            new: the same, or the row that it gets.
        """
        self._waiting.set_aside(envelope, old, new, [output for _, output in missing])
        self._outputs.make(envelope, missing)
