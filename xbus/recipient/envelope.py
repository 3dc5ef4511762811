"""Envelopes and events as the author of a recipient sees them."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False, slots=True)
class Envelope:
    """An envelope that is being delivered.

    Attributes:
        id: its UUID as text; the same each time that it comes.
        state: the author's own, empty at first: a transaction, an open file, a count.
    """

    id: str
    state: dict[str, Any] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Event:
    """An event that is being delivered.

    Attributes:
        id: its UUID as text; the same each time that it comes.
        type_name: its event type.
        envelope: the envelope that it belongs to.
        state: the author's own, empty at first.
    """

    id: str
    type_name: str
    envelope: Envelope
    state: dict[str, Any] = field(default_factory=dict)
