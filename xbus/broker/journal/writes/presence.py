"""Writes about recipients, for operators to see."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NotRequired, TypedDict

from xbus.broker.journal.writes.write import Write
from xbus.states import PresenceState


class PresenceWork(TypedDict):
    """An envelope that is being brought to a recipient, or an output that it makes: see ``model.presence``.

    ``position`` is added when this is written down, ``event_id`` is told of outputs alone, and the rest of recipients
    that tell by heartbeats how far they are.
    """

    envelope_id: str
    event_id: NotRequired[str]
    verb: str
    since: str
    progress: NotRequired[int]
    done: NotRequired[int | None]
    of: NotRequired[int | None]
    position: NotRequired[int | None]


class PresenceInstance(TypedDict):
    """A program that is registered for a role that may have several.

    ``uri`` is the address at which the broker reaches it, ``state`` one of ``PresenceState``; moments are in ISO 8601.
    """

    uri: str
    state: str
    since: str
    seen_at: str
    work: Sequence[PresenceWork] | None


@dataclass(frozen=True, slots=True)
class PresenceRow:
    """The view of a role's recipient for operators: see ``model.presence``.

    Args:
        work: for each envelope that is being brought to it a map, to which its position is added; None for none.
        instances: the programs that are registered, with their work; None for a role that has place for one alone.
    """

    role_id: int
    state: PresenceState
    since: datetime
    seen_at: datetime | None
    work: Sequence[PresenceWork] | None = None
    instances: Sequence[PresenceInstance] | None = None


@dataclass(frozen=True, slots=True)
class NotePresence(Write[None]):
    """Write down what has changed about recipients."""

    rows: Sequence[PresenceRow]
    at: datetime
