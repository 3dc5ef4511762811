"""Reads the figures that runs have kept."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

LABELS = {"scenario", "database", "peer", "settings", "unit"}


class UnreadableFigures(Exception):
    """A line of the file is not one that a run writes."""


@dataclass(frozen=True)
class Figure:
    """What a scenario found on a database, or with a peer.

    Attributes:
        scenario: its name.
        place: the database or the peer.
        numbers: ``value``, ``floor`` and ``ratio`` where there are those, and all others by their names.
        unit: of the value and the floor.
        settings: of a peer, in words.
        run: the kind and the date of the run that found it.
    """

    scenario: str
    place: str
    numbers: Mapping[str, float]
    unit: str
    settings: str = ""
    run: tuple[str, str] = ("", "")


@dataclass
class Figures:
    """The newest of each kind.

    Attributes:
        about: what the machines of the runs are like, by the kind of run and its date; the newest of a date counts.
        left_out: why a peer was not measured.
        figures: by scenario and place.
    """

    about: dict[tuple[str, str], Mapping[str, object]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    figures: dict[tuple[str, str], Figure] = field(default_factory=dict)
    run: tuple[str, str] = ("", "")
    """The kind and the date of the run whose figures are read now."""

    def of(self, scenario: str) -> list[Figure]:
        """Give the figures of a scenario, in the order in which the places were first measured."""
        return [figure for figure in self.figures.values() if figure.scenario == scenario]

    def number(self, scenario: str, place: str, name: str) -> float | None:
        """Give one number; None where it was not measured."""
        figure = self.figures.get((scenario, place))
        return None if figure is None else figure.numbers.get(name)


def read(lines: Iterable[str]) -> Figures:
    """Read the lines of a file of figures.

    Raises:
        UnreadableFigures: a line is none that a run writes.
    """
    found = Figures()
    for number, line in enumerate(lines, start=1):
        try:
            _add(found, json.loads(line))
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise UnreadableFigures(f"line {number} is no figure: {error!r}") from error
    return found


def _add(found: Figures, told: dict[str, object]) -> None:
    if "about" in told:
        found.run = str(told.pop("about")), str(told["date"])
        found.about[found.run] = told
    elif "left_out" in told:
        found.left_out[str(told["left_out"])] = str(told["cause"])
    else:
        place = str(told["peer"] if "peer" in told else told["database"])
        numbers = {name: float(str(value)) for name, value in told.items() if name not in LABELS}
        labels = str(told["unit"]), str(told.get("settings", "")), found.run
        figure = Figure(str(told["scenario"]), place, numbers, *labels)
        found.figures[figure.scenario, place] = figure
        found.left_out.pop(place, None)
