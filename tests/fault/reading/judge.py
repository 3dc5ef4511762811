"""Judges what programs of a reader were given, against what was sent and what the journal calls settled; pure.

For each key the batches have one order, whatever the clocks of the programs say: by range, as children of a split or a
merge have higher numbers, then by the counter of the lease, then as the program wrote them down.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any


@dataclass(slots=True)
class Handed:
    """A batch that a program was given.

    Args:
        program: its number.
        at: when, in seconds of the machine's clock.
        events: key and position of each.

    Attributes:
        settling_at: when the program called it done; None where it died before.
        fate: ``settled`` or ``lost``, as the program was told; empty where it was not told.
    """

    program: int
    at: float
    range: int
    counter: int
    begin: str
    end: str
    is_repeated: bool
    events: tuple[tuple[str, int], ...]
    settling_at: float | None = None
    fate: str = ""

    @property
    def bounds(self) -> tuple[object, ...]:
        """The range with both places, and the events, as a merge may make two batches with the same places."""
        return self.range, self.begin, self.end, self.events

    @property
    def lease(self) -> tuple[int, int]:
        """The range and the counter: who has a higher one of the same range came later."""
        return self.range, self.counter

    def positions(self, key: str) -> list[int]:
        """The positions of a key's events."""
        return [position for each, position in self.events if each == key]


def read_handed(program: int, said: Iterable[Mapping[str, Any]]) -> list[Handed]:
    """Read the batches in the lines of a program, in order."""
    found: list[Handed] = []
    for line in said:
        match line["what"]:
            case "got":
                if found and not found[-1].fate:
                    found[-1].fate = "settled"
                events = tuple((key, position) for key, position in line["events"])
                told = (line["range"], line["counter"], line["begin"], line["end"], line["repeated"], events)
                found.append(Handed(program, line["at"], *told))
            case "settling":
                found[-1].settling_at = line["at"]
            case "lost":
                found[-1].fate = "lost"
    return found


@dataclass(frozen=True)
class ReaderHistory:
    """All that is known of a trial.

    Args:
        sent: the positions of each key, in their order.
        handed: of all programs.
        settled: the positions that the journal says are settled, each as often as it was settled.
    """

    sent: Mapping[str, Sequence[int]]
    handed: Sequence[Handed]
    settled: Mapping[int, int]

    def is_settled(self, handed: Handed) -> bool:
        """Tell whether the journal has all of a batch as settled."""
        return all(position in self.settled for _, position in handed.events)


@dataclass(slots=True)
class Ruling:
    """What came out.

    Attributes:
        repeats: batches that came again.
        late: checkpoints of batches that another program had got meanwhile; each was refused.
    """

    batches: int = 0
    items: int = 0
    repeats: int = 0
    late: int = 0
    violations: list[str] = field(default_factory=list)


def judge(history: ReaderHistory) -> Ruling:
    """Judge a trial that has come to rest."""
    ordered = sorted(enumerate(history.handed), key=lambda pair: (pair[1].lease, pair[0]))
    handed = [each for _, each in ordered]
    ruling = Ruling(len(handed), sum(len(each.events) for each in handed))
    ruling.violations += _inside(handed)
    ruling.violations += _bounds(history, handed)
    ruling.violations += [
        f"position {position} was settled {times} times" for position, times in history.settled.items() if times > 1
    ]
    by_key: defaultdict[str, list[Handed]] = defaultdict(list)
    for each in handed:
        for key in dict(each.events):
            by_key[key].append(each)
    for key in history.sent.keys() | by_key.keys():
        ruling.violations += _of_key(history, key, by_key[key])
    taken = _first_of_each_lease(handed)
    for each in handed:
        later = [at for counter, at in taken[each.range] if counter > each.counter]
        if each.settling_at is None or not later or min(later) > each.settling_at:
            continue
        if each.fate == "settled":
            ruling.violations.append(f"{_name(each)}: its late checkpoint was accepted")
        ruling.late += each.fate == "lost"
    ruling.repeats = len(handed) - len({each.bounds for each in handed})
    return ruling


def _first_of_each_lease(handed: Sequence[Handed]) -> Mapping[int, list[tuple[int, float]]]:
    taken: defaultdict[int, list[tuple[int, float]]] = defaultdict(list)
    for each in handed:
        taken[each.range].append((each.counter, each.at))
    return taken


def _inside(handed: Iterable[Handed]) -> Iterator[str]:
    for each in handed:
        positions = [position for _, position in each.events]
        if positions != sorted(positions):
            yield f"{_name(each)}: its positions {positions} are in no order"


def _bounds(history: ReaderHistory, handed: Sequence[Handed]) -> Iterator[str]:
    """Check that what comes again of a range is the same batch and says so."""
    for one, next_one in pairwise(handed):
        if one.range != next_one.range:
            continue
        if one.bounds != next_one.bounds:
            if not history.is_settled(one):
                yield f"{_name(next_one)}: it came, and {_name(one)} is not settled"
        elif not next_one.is_repeated:
            yield f"{_name(next_one)}: it came again, and is not called repeated"


def _of_key(history: ReaderHistory, key: str, handed: Sequence[Handed]) -> Iterator[str]:
    """Check that a key keeps its order without a gap, and that only what is not settled comes again."""
    former: Handed | None = None
    known: list[int] = []
    for each in handed:
        if each.fate == "settled" and not history.is_settled(each):
            yield f"{_name(each)}: it was accepted as settled, and the journal does not know"
        if former is not None and each.positions(key) == former.positions(key):
            if former.fate == "settled":
                yield f"{_name(each)}: {key} came again after it was settled"
        else:
            if former is not None and not history.is_settled(former):
                yield f"{_name(each)}: {key} went on, and {_name(former)} is not settled"
            known += each.positions(key)
        former = each
    if known != [*history.sent.get(key, ())]:
        yield f"{key}: {[*history.sent.get(key, ())]} were sent, and for the first time came {known}"
    if former is not None and not history.is_settled(former):
        yield f"{key}: {_name(former)} was never settled"


def _name(handed: Handed) -> str:
    return f"batch {handed.begin} to {handed.end} of range {handed.range}, counter {handed.counter}, at {handed.at:.2f}"
