"""Envelopes and events as the author of a recipient sees them."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False, slots=True)
class Envelope:
    """An envelope that is being delivered.

    Attributes:
        id: its UUID as text; the same each time that it comes.
        state: the author's own, empty at first: a transaction, an open file, a count.
        is_stopped: set as soon as the envelope is to be rolled back, while a method may still work on it: what is long
            may end then.
    """

    id: str
    state: dict[str, Any] = field(default_factory=dict)
    is_stopped: bool = False


@dataclass(eq=False, slots=True)
class Event:
    """An event that is being delivered.

    Attributes:
        id: its UUID as text; the same each time that it comes.
        type_name: its event type.
        envelope: the envelope that it belongs to.
        state: the author's own, empty at first.
        taken: how many of its items have been through the author's code.
    """

    id: str
    type_name: str
    envelope: Envelope
    state: dict[str, Any] = field(default_factory=dict)
    taken: int = 0
    _told: tuple[int, int | None] | None = None
    _steps: int = 0

    def progress(self, done: int, of: int | None = None) -> None:
        """Report the progress of a long piece of work, from any thread, as a sign of life.

        Only a method that works on many items at once, or long on one, needs it: ``on_item`` counts its items anyway.
        Operators see the report::

            for number, page in enumerate(pages):
                event.progress(number, len(pages))

        Args:
            done: the work done, in any unit.
            of: the whole work, if it is known.
        """
        self._told = (done, of)
        self._steps += 1

    @property
    def steps(self) -> int:
        """Grows while the author's code advances."""
        return self.taken + self._steps

    @property
    def told(self) -> tuple[int, int | None]:
        """The work done, and the whole of it: as the author reported, otherwise the items taken."""
        return self._told or (self.taken, None)
