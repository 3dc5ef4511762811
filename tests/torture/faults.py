"""Which faults strike whom and when; pure, so that a seed always means the same ones."""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

SHORTEST_SECONDS, LONGEST_SECONDS = 1.2, 2.2
"""How long a cycle lasts, unless what was struck in it takes longer to come back."""

TWICE = 0.35
"""In which part of the cycles two faults strike."""

LONG = 0.15
"""Which part of the pauses is long: longer than the broker waits for signs of life."""

Targets = Mapping[str, Sequence[str]]
"""Whom a kind of fault may strike, by kind."""

EVERYTHING = "all"

RARE = (
    *("two_brokers", "leader-freeze", "leader-cut-off", "leader-silence", "leader-with-database"),
    *("read_only", "failover_sync", "disk_full", "failover_async"),
)
"""Kinds that strike first, where they can: by chance alone a run of few cycles would leave most of them out. A broker
may notice late that its journal went back. It does not end as a replaced one then, so that kind comes last."""

RARE_IN_CYCLE = 3
"""How many of them strike in a cycle. With fewer, a run of four cycles would have no room for the last of them."""


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault.

    Args:
        kind: what is done, such as ``broker-kill``.
        target: to whom.
        after: when, in seconds from the beginning of the cycle.
        lasts: how long until the target is started, goes on or can be reached again, in seconds.
    """

    kind: str
    target: str
    after: float
    lasts: float


@dataclass(frozen=True, slots=True)
class Cycle:
    """One or two faults, and how long the cycle lasts at least, in seconds."""

    seconds: float
    strikes: tuple[Strike, ...]


def chosen(names: str, known: Iterable[str]) -> list[str]:
    """The kinds of faults that are asked for.

    Args:
        names: ``all``, or some separated by commas.
        known: all that there are.

    Raises:
        ValueError: there is none of a name; says which there are.
    """
    all_kinds = list(known)
    if names == EVERYTHING:
        return all_kinds
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in all_kinds]
    if unknown or not wanted:
        raise ValueError(f"there is no fault {', '.join(unknown) or 'given'}: choose from {', '.join(all_kinds)}")
    return wanted


def plan(seed: int, cycles: int, targets: Targets) -> Iterator[Cycle]:
    """The cycles of a run: the first ones have the rare kinds, and chance chooses those of the others."""
    chance = random.Random(seed)
    kinds = sorted(targets)
    rare = [kind for kind in RARE if kind in targets]
    for number in range(cycles):
        seconds = chance.uniform(SHORTEST_SECONDS, LONGEST_SECONDS)
        of_cycle = rare[number * RARE_IN_CYCLE : (number + 1) * RARE_IN_CYCLE]
        choices = [[kind] for kind in of_cycle] or [kinds] * (1 + (chance.random() < TWICE))
        yield Cycle(seconds, tuple(_strike(chance, choice, targets, seconds) for choice in choices))


def _strike(chance: random.Random, kinds: Sequence[str], targets: Targets, seconds: float) -> Strike:
    kind = chance.choice(kinds)
    lasts = chance.uniform(1.5, 3) if chance.random() < LONG else chance.uniform(0, 0.6)
    return Strike(kind, chance.choice(targets[kind]), chance.uniform(0, seconds / 2), lasts)
