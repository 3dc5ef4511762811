"""What a scenario found."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Result:
    """A measured value and its floor, both in ``unit``."""

    value: float
    floor: float
    unit: str

    @classmethod
    def median(cls, rounds: Iterable[tuple[float, float]], unit: str) -> "Result":
        """The medians of several rounds, each a value and its floor."""
        values, floors = zip(*rounds, strict=True)
        return cls(median(values), median(floors), unit)

    def line(self, scenario: str, database: str) -> str:
        """It as a line of JSON; ``ratio`` is the value as a part of its floor."""
        return json.dumps(
            {
                "scenario": scenario,
                "database": database,
                "value": round(self.value, 1),
                "unit": self.unit,
                "floor": round(self.floor, 1),
                "ratio": round(self.value / self.floor, 3),
            }
        )
