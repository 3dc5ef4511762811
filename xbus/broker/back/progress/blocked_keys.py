"""Ordering keys that are blocked: an envelope waits for an earlier one of its key; pure.

A key of which an ordered role has delivery rows holds itself: the lowest of these rows goes first, whatever it waits
for, and later envelopes of the key get rows behind it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from xbus.broker.journal.log.reading import HeldKey, LogEnvelope
from xbus.broker.journal.writes import DeliveryRow
from xbus.states import DeliveryState


class First(Enum):
    """The lowest row of a key, as far as the broker knows it."""

    UNKNOWN = auto()
    """The row must be read: the one before it has just been settled, or a person has changed it."""
    FREE = auto()
    """The row was blocked, and nothing blocks it any more."""
    ON_ITS_OWN = auto()
    """It waits for its time, for a worker, or for the end of its run."""
    PARKED = auto()
    """It waits for a person."""


@dataclass(slots=True)
class _Key:
    lowest: int
    """None of its rows is below this position."""
    highest: int
    """Nor above this one."""
    first: First = First.UNKNOWN
    service: str | None = None
    """The worker service that its lowest row waits for."""


class BlockedKeys:
    """The keys of which an ordered role has rows. It grows with the number of keys, not of rows.

    Args:
        role_id: whose keys these are.
    """

    def __init__(self, role_id: int) -> None:
        self._role_id = role_id
        self.held: dict[str, _Key] = {}
        """The keys that hold later envelopes."""
        self._to_read: dict[str, None] = {}
        self.is_wanted = False
        """Whether the role wants order."""
        self.checked_at: float | None = None
        """When it was looked last whether a person has changed a key's lowest row, in monotonic seconds."""

    def want(self, is_wanted: bool) -> bool:
        """Take it that the role wants order, or wants none; whether it wants it now and did not before."""
        is_new = is_wanted and not self.is_wanted
        if not is_wanted:
            self.held.clear()
            self._to_read.clear()
        self.is_wanted = is_wanted
        return is_new

    def key(self, envelope: LogEnvelope) -> str | None:
        """Read the ordering key in the row of an envelope."""
        return (envelope.head.ordering_key or "") if self.is_wanted else None

    def keyed(self, row: DeliveryRow, envelope: LogEnvelope) -> DeliveryRow:
        """Set the ordering key that the role wants now; it may have changed since the row was read."""
        return replace(row, ordering_key=self.key(envelope))

    def blocks(self, envelope: LogEnvelope) -> bool:
        """Check whether an envelope has to wait until an earlier one of its key is settled."""
        known = self.held.get(envelope.head.ordering_key or "")
        return known is not None and known.lowest < envelope.position

    def blocked(self, keys: Sequence[str], positions: Sequence[int]) -> list[int]:
        """List the indexes of those of some envelopes that have to wait, by their keys and positions."""
        held = self.held
        pairs = zip(keys, positions, strict=True)
        return [index for index, (key, position) in enumerate(pairs) if key in held and held[key].lowest < position]

    def is_next(self, row: DeliveryRow) -> bool:
        """Check whether no known row has to go before a row."""
        known = self._known(row)
        if known is None or known.lowest == row.position:
            return True
        return known.first is First.UNKNOWN and known.lowest < row.position

    def to_read(self) -> list[HeldKey]:
        """List the keys whose lowest row is unknown, or free to be handed over."""
        keys = self.held
        return [HeldKey(self._role_id, key, keys[key].lowest, keys[key].highest) for key in self._to_read]

    def firsts(self, *which: First) -> list[int]:
        """List the positions of the known lowest rows, lowest first."""
        return sorted(key.lowest for key in self.held.values() if key.first in which)

    def coming(self, served: Collection[str]) -> list[int]:
        """List the positions of the lowest rows that may now be redelivered by themselves, lowest first.

        Args:
            served: the worker services that are there.
        """
        on_their_own = [key for key in self.held.values() if key.first is First.ON_ITS_OWN]
        return sorted(key.lowest for key in on_their_own if key.service is None or key.service in served)

    # -- what changes it -------------------------------------------------------------------------------------------

    def add(self, found: HeldKey) -> None:
        """Take up a key of which the journal has rows."""
        if self.is_wanted:
            self._widen(found.ordering_key, found.lowest, found.highest)
            self._doubt(found.ordering_key)

    def note(self, row: DeliveryRow) -> None:
        """Take notice of what has become of a delivery that has a row, or gets one."""
        if row.ordering_key is None or not self.is_wanted:
            return
        if row.state is DeliveryState.SETTLED:
            self._lose(row)
        else:
            known = self._widen(row.ordering_key, row.position, row.position)
            if known.lowest == row.position:
                self._take(row.ordering_key, row)

    def found(self, asked: HeldKey, lowest: DeliveryRow | None) -> None:
        """Note the lowest row of a key as it was read; a change since then is newer, and remains.

        Args:
            asked: the keys as they were known before.
            lowest: None where it had no rows.
        """
        known = self.held.get(asked.ordering_key)
        if known is None or known.first in (First.ON_ITS_OWN, First.PARKED) or known.lowest != asked.lowest:
            return
        if lowest is not None:
            known.lowest = lowest.position
            self._take(asked.ordering_key, lowest)
        elif known.highest == asked.highest:
            self._drop(asked.ordering_key)

    def take_up(self, row: DeliveryRow) -> bool:
        """Check whether a blocked row may be handed over now, as its key's lowest."""
        known = self._known(row)
        if known is None or row.ordering_key is None or not self.is_next(row):
            return False
        known.lowest = row.position
        self._take(row.ordering_key, row)
        return True

    def check(self, states: Mapping[int, DeliveryState]) -> None:
        """Doubt the lowest rows of keys that a person has changed meanwhile.

        Args:
            states: of the lowest rows, by position, as they are in the journal now.
        """
        for key, known in self.held.items():
            state = states.get(known.lowest)
            if state is None or (known.first is First.PARKED and state is not DeliveryState.PARKED):
                self._doubt(key)

    def _known(self, row: DeliveryRow) -> _Key | None:
        return None if row.ordering_key is None else self.held.get(row.ordering_key)

    def _widen(self, key: str, lowest: int, highest: int) -> _Key:
        known = self.held.setdefault(key, _Key(lowest, highest))
        known.lowest = min(known.lowest, lowest)
        known.highest = max(known.highest, highest)
        return known

    def _take(self, key: str, lowest: DeliveryRow) -> None:
        if lowest.state is DeliveryState.HELD:
            self._doubt(key)
            self.held[key].first = First.FREE
        else:
            is_parked = lowest.state is DeliveryState.PARKED
            self.held[key].first = First.PARKED if is_parked else First.ON_ITS_OWN
            self.held[key].service = lowest.service
            self._to_read.pop(key, None)

    def _doubt(self, key: str) -> None:
        self.held[key].first = First.UNKNOWN
        self._to_read[key] = None

    def _lose(self, row: DeliveryRow) -> None:
        known = self._known(row)
        if known is None or row.ordering_key is None or known.lowest != row.position:
            return
        if known.highest > row.position:
            known.lowest = row.position + 1
            self._doubt(row.ordering_key)
        else:
            self._drop(row.ordering_key)

    def _drop(self, key: str) -> None:
        del self.held[key]
        self._to_read.pop(key, None)
