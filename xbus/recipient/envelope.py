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
        """Say how far a long piece of work is, from any thread; it tells the bus that this is not stuck.

        Only a method that works on many items at once, or long on one, needs it: items that ``on_item`` takes are
        counted anyway. What is told is shown to operators::

            for number, page in enumerate(pages):
                event.progress(number, len(pages))

        Args:
            done: how much is done, in any unit.
            of: how much there is to do, where that is known.
        """
        self._told = (done, of)
        self._steps += 1

    @property
    def steps(self) -> int:
        """Grows with all that shows that the author's code gets on."""
        return self.taken + self._steps

    @property
    def told(self) -> tuple[int, int | None]:
        """How much is done, and of how much: as the author told, else the items taken."""
        return self._told or (self.taken, None)
