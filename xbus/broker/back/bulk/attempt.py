"""An attempt of a bulk worker at an output, as the broker knows it."""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from xbus.broker.back.recipients import RecipientProxy
from xbus.errors import XbusError
from xbus.states import AttemptState


@dataclass(frozen=True, slots=True)
class WantedOutput:
    """An output that a bulk worker is to make: that of a node of a graph for an event."""

    event_id: UUID
    graph_id: int
    node: str


@dataclass(eq=False, slots=True)
class OutputAttempt:
    """An attempt to make an output.

    Args:
        envelope_id: the envelope of its event.
        role_id: the worker role that it was handed over to.
        started_at: when it began.
        deadline: by when its worker must have given a sign of life, in monotonic seconds.
        began: when it began, in monotonic seconds; None where that was in an earlier run of the broker.
        items: how many items it made; None unless it is ready.
        is_ending: whether it is being written down that it is over.
        report: the present check of its worker's report that it is ready.
        over: set when it is not building any more.
        maker: the program that makes it; None where the broker does not know, as after a restart.
    """

    id: UUID
    output: WantedOutput
    envelope_id: UUID
    role_id: int
    state: AttemptState
    started_at: datetime
    deadline: float
    event_items: int
    began: float | None = None
    progress: float = 0.0
    items: int | None = None
    is_ending: bool = False
    report: "asyncio.Task[bool | XbusError] | None" = None
    over: asyncio.Event = field(default_factory=asyncio.Event)
    maker: RecipientProxy | None = None

    @property
    def is_building(self) -> bool:
        """True while its worker still has something to report."""
        return self.state is AttemptState.BUILDING and not self.is_ending

    @property
    def is_in_hand(self) -> bool:
        """True while its worker makes it. Once the worker has reported it ready, only the journal's content counts."""
        return self.is_building and self.report is None
