"""Judges the calls of a subscriber against what a shop was told is durable; pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Call:
    """A call that the subscriber has kept: the id of its batch, and the numbers of its items."""

    id: str
    numbers: tuple[int, ...]


@dataclass(slots=True)
class CallRuling:
    """The figures of a trial, and each promise that was broken."""

    batches: int = 0
    repeats: int = 0
    violations: list[str] = field(default_factory=list)


def judge_calls(acknowledged: Sequence[int], calls: Sequence[Call]) -> CallRuling:
    """Judge a trial that has come to rest.

    Args:
        acknowledged: the numbers in the order in which the shop was told that each is durable.
        calls: in the order in which the subscriber kept them.
    """
    batches: dict[str, tuple[int, ...]] = {}
    violations = []
    for call in calls:
        if batches.setdefault(call.id, call.numbers) != call.numbers:
            violations.append(f"{call.id} came as {list(batches[call.id])}, then as {list(call.numbers)}")
    violations += _of_numbers(acknowledged, [number for numbers in batches.values() for number in numbers])
    return CallRuling(len(batches), len(calls) - len(batches), violations)


def _of_numbers(acknowledged: Sequence[int], came: Sequence[int]) -> Iterator[str]:
    """Check that each number came in one batch, and for the first time in its order."""
    if lost := sorted(set(acknowledged) - set(came)):
        yield f"{lost} were acknowledged, and never came"
    if invented := sorted(set(came) - set(acknowledged)):
        yield f"{invented} came, and nobody sent them"
    if twice := sorted({number for number in came if came.count(number) > 1}):
        yield f"{twice} came in several batches"
    if sorted(came) != [*came]:
        yield "batches came in another order than that of the log"
