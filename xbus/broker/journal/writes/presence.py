"""Writes about recipients, for operators to see."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from xbus.broker.journal.writes.write import Write
from xbus.states import PresenceState


@dataclass(frozen=True, slots=True)
class PresenceRow:
    """What operators see of a role's recipient: see ``model.presence``.

    Args:
        work: for each envelope that is being brought to it a map, to which its position is added; None for none.
    """

    role_id: int
    state: PresenceState
    since: datetime
    seen_at: datetime | None
    work: Sequence[Mapping[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class NotePresence(Write[None]):
    """What is known of recipients now, where it has changed."""

    rows: Sequence[PresenceRow]
    at: datetime
