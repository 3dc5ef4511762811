"""Tables of figures in Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.report.figures import Figure, Figures
from benchmarks.report.numbers import written

WIDTH = 120
"""Characters of a line of the page, beside tables."""


@dataclass(frozen=True)
class Column:
    """A column of numbers.

    Attributes:
        heading: with the unit.
        name: of the number.
    """

    heading: str
    name: str


ACKNOWLEDGED = Column("acknowledged/s", "value")
RATES = (ACKNOWLEDGED, Column("delivered/s", "delivered_per_s"))
AGES = (Column("delivered p50 ms", "delivered_p50_ms"), Column("p99 ms", "delivered_p99_ms"))
PROCESSOR = (
    Column("broker CPU ms", "broker_cpu_ms"),
    Column("emitter CPU ms", "emitter_cpu_ms"),
    Column("consumer CPU ms", "consumer_cpu_ms"),
)
MEMORY = Column("broker peak MiB", "broker_peak_mib")
FLOORED = (Column("floor", "floor"), Column("part of floor", "ratio"))


def table(found: Figures, scenarios: Sequence[str], columns: Sequence[Column], with_unit: bool = False) -> list[str]:
    """Write a table with a row for each scenario and place; nothing where none was measured.

    Args:
        with_unit: whether a column says the unit of the value, as the scenarios differ in it.
    """
    figures = [figure for scenario in scenarios for figure in found.of(scenario)]
    if not figures:
        return []
    unit = ["unit"] if with_unit else []
    headings = ["scenario", "on", *unit, *(column.heading for column in columns)]
    return [
        _row(headings),
        _row(["---"] * (2 + len(unit)) + ["---:"] * len(columns)),
        *(
            _row([f"`{figure.scenario}`", figure.place, *_unit(figure, with_unit), *_cells(figure, columns)])
            for figure in figures
        ),
        "",
    ]


def _unit(figure: Figure, with_unit: bool) -> list[str]:
    return [figure.unit] if with_unit else []


def _cells(figure: Figure, columns: Sequence[Column]) -> list[str]:
    return [written(figure.numbers.get(column.name)) for column in columns]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
