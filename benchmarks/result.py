"""What a scenario found."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

SMALL = 100


@dataclass(frozen=True)
class Result:
    """A measured value and its floor, both in ``unit``.

    Attributes:
        floor: what the bare thing does; None where no floor makes sense.
        more: further figures of the same measurement, each with its unit at the end of its name.
    """

    value: float
    floor: float | None
    unit: str
    more: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def median(cls, rounds: Iterable[tuple[float, float]], unit: str) -> "Result":
        """The medians of several rounds, each a value and its floor."""
        values, floors = zip(*rounds, strict=True)
        return cls(median(values), median(floors), unit)

    def line(self, scenario: str, database: str) -> str:
        """It as a line of JSON; ``ratio`` is the value as a part of its floor."""
        return self.labelled(scenario=scenario, database=database)

    def labelled(self, **labels: str) -> str:
        """It as a line of JSON that says by these what was measured."""
        told: dict[str, object] = {**labels, "value": _rounded(self.value), "unit": self.unit}
        if self.floor is not None:
            told |= {"floor": _rounded(self.floor), "ratio": round(self.value / self.floor, 3)}
        return json.dumps(told | {name: _rounded(value) for name, value in self.more.items()})


def _rounded(value: float) -> float:
    """Keep one digit behind the point, and three of what is small."""
    return round(value, 1 if abs(value) >= SMALL else 3)
