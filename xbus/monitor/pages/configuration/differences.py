"""The difference between two texts in lines, and the changes of a plan with theirs; pure."""

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from xbus.admin import bus_file
from xbus.admin.bus_file.change import PlannedChange
from xbus.broker.journal.configuration import BusSpec, Change, Move
from xbus.broker.journal.configuration.owed import Arrears

MOST_LINES = 200
"""The most lines of a difference that are shown; nobody reads more in a page."""


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line; ``sign`` is ``+`` for a new one, ``-`` for a removed one, else a blank."""

    sign: str
    text: str


@dataclass(frozen=True, slots=True)
class ShownChange:
    """A change of a plan, its lines in the bus file, and what is owed because of it."""

    change: Change
    lines: Sequence[DiffLine]
    owed: Sequence[Arrears]


def shown_changes(planned: PlannedChange) -> list[ShownChange]:
    """Give each change with its lines."""
    return [ShownChange(each, _lines(each), list(planned.owed_by(each))) for each in planned.plan.changes]


def differences(before: str, after: str) -> list[DiffLine]:
    """Compare two texts."""
    return list(_compared(before, after))[:MOST_LINES]


def _lines(change: Change) -> list[DiffLine]:
    after = bus_file.write(BusSpec.holding(change.section, change.name, change.entry))
    match change.move:
        case Move.RENAME:
            return []
        case Move.REMOVE:
            return differences(after, "")
        case Move.CHANGE if change.before is not None:
            return differences(bus_file.write(BusSpec.holding(change.section, change.name, change.before)), after)
    return differences("", after)


def _compared(before: str, after: str) -> Iterator[DiffLine]:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=3)
    # The first two name the files. A text may have lines that look like them.
    for line in islice(lines, 2, None):
        if line[:1] in "+- ":
            yield DiffLine(line[:1], line[1:])
