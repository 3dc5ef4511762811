"""The step before a run that large events need: their outputs are made first, and the delivery waits for them."""

from collections.abc import Collection, Sequence
from typing import TypeAlias
from uuid import UUID

from xbus.broker.back.bulk.attempt import WantedOutput
from xbus.broker.back.bulk.outputs import BulkOutputs
from xbus.broker.back.bulk.requirements import OutputRequirements
from xbus.broker.back.bulk.waiting import WaitingDeliveries
from xbus.broker.journal.log.reading import LogEnvelope, LogEvent
from xbus.broker.journal.writes import DeliveryRow

MissingOutputs: TypeAlias = Sequence[tuple[LogEvent, WantedOutput]]


class BulkStep:
    """All that the ordinary path knows of bulk workers.

    Args:
        needs: which outputs are to be ready before consumers are started.
        outputs: has bulk workers make them.
        awaiting: the deliveries that wait for that.
    """

    def __init__(self, needs: OutputRequirements, outputs: BulkOutputs, awaiting: WaitingDeliveries) -> None:
        self._needs = needs
        self._outputs = outputs
        self._awaiting = awaiting

    async def missing(self, envelope: LogEnvelope, service: str, overlaid: Collection[UUID] = ()) -> MissingOutputs:
        """The outputs that a consumer service needs first; of most envelopes there are none.

        Args:
            overlaid: the events that it is to get otherwise than they were sent.
        """
        return await self._needs.lacking(envelope, service, overlaid)

    def set_aside(
        self, envelope: LogEnvelope, missing: MissingOutputs, old: DeliveryRow | None, new: DeliveryRow
    ) -> None:
        """Have what a delivery lacks made; it waits for that, and holds nobody.

        Args:
            old: its row; None where it has none yet.
            new: the same, or the row that it gets.
        """
        self._awaiting.set_aside(envelope, old, new, [output for _, output in missing])
        self._outputs.make(envelope, missing)
