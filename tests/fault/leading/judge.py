"""Judges what was sent, what the journal has and what was taken; pure."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

MEASURES = ("leads", "delivers")
"""What is measured of a strike: the seconds until another broker leads, and then until there is a delivery."""


class Taken(NamedTuple):
    """An envelope that the consumer had not taken before, in the order of its lines."""

    id: str
    number: int
    position: int


@dataclass(slots=True)
class StandbyBooks:
    """All that was looked at so far.

    Args:
        lanes: number ``n`` has the ordering key ``n`` modulo this.
    """

    lanes: int
    positions: dict[str, int] = field(default_factory=dict)
    """By id, as the journal has them."""
    taken: dict[int, int] = field(default_factory=dict)
    """Positions of the numbers that were taken."""
    _last: dict[int, int] = field(default_factory=dict)
    """By lane the position that was taken last."""

    def look(
        self, acknowledged: Mapping[int, int], taken: Iterable[Taken], journal: Sequence[tuple[int, str]]
    ) -> list[str]:
        """Judge what came since the last look, and give each promise that was broken.

        Args:
            acknowledged: the position of each number, before ``taken`` was read.
            taken: in order; all that was acknowledged should be here by now.
            journal: position and id of each envelope that came since the last look, read last of all.
        """
        return [*self._of_journal(journal), *self._of_taken(taken), *self._of_acknowledged(acknowledged)]

    def _of_journal(self, journal: Sequence[tuple[int, str]]) -> Iterator[str]:
        for position, envelope_id in journal:
            if position != (expected := len(self.positions) + 1):
                yield f"gap: position {position} follows {expected - 1}"
            self.positions[envelope_id] = position

    def _of_taken(self, taken: Iterable[Taken]) -> Iterator[str]:
        for each in taken:
            lane = each.number % self.lanes
            if self.positions.get(each.id) != each.position:
                yield f"invented: {each}, and the journal has it at {self.positions.get(each.id)}"
            if each.number in self.taken:
                yield f"doubled: {each.number} was taken at {self.taken[each.number]} and at {each.position}"
            if each.position < self._last.get(lane, 0):
                yield f"reordered: {each.position} was taken behind {self._last[lane]} in lane {lane}"
            self.taken[each.number] = self._last[lane] = each.position

    def _of_acknowledged(self, acknowledged: Mapping[int, int]) -> Iterator[str]:
        for number, position in acknowledged.items():
            if self.taken.get(number) != position:
                yield f"lost: {number} has a receipt for {position}, and was taken at {self.taken.get(number)}"


def summary(strikes: Iterable[Mapping[str, object]]) -> dict[str, dict[str, object]]:
    """By kind of strike how many there were, and the usual, the 95th of 100 and the longest time of each measure."""
    of_kind: dict[str, dict[str, list[float]]] = {}
    for strike in strikes:
        measured = of_kind.setdefault(str(strike["kind"]), {each: [] for each in MEASURES})
        for each, found in measured.items():
            # One that broke a promise has no measures.
            found += [float(str(strike[each]))] if each in strike else []
    return {
        kind: {"strikes": len(measured["delivers"]), **{each: _spread(found) for each, found in measured.items()}}
        for kind, measured in sorted(of_kind.items())
    }


def _spread(found: Iterable[float]) -> dict[str, float]:
    ordered = sorted(found) or [math.nan]
    return {
        "p50": ordered[(len(ordered) - 1) // 2],
        "p95": ordered[max(0, -(-len(ordered) * 95 // 100) - 1)],
        "most": ordered[-1],
    }
