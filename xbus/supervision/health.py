"""The problems of a process of the broker just now, as its parts report them; no database, no waiting."""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from xbus.clock import Clock
from xbus.rpc.messages import HealthPause, HealthReport
from xbus.texts import MOST_CHARACTERS, plain

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that an operator should look at.

    Args:
        code: a stable name in snake case.
        about: what it concerns, where a code can hold for several at once: the login of a role or an emitter, or the
            name of a service; empty elsewhere.
        cause: the fault, one sentence without a final full stop.
        since: when it began.
        next_step: what to do about it.
    """

    code: str
    about: str
    cause: str
    since: datetime
    next_step: str


Listener: TypeAlias = Callable[[Problem, bool], None]
"""Gets a problem, and whether it is over."""


class Health:
    """The problems of the moment. Parts may report from any thread.

    Args:
        name: which process this is: ``front``, ``back``, or ``broker`` for both in one.
        clock: tells since when.

    Example:
        >>> health.trouble("journal_unavailable", "the database is away", "see that it runs")     # doctest: +SKIP
        >>> health.over("journal_unavailable")                                                     # doctest: +SKIP
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self._clock = clock
        self._since = clock.now()
        self._problems: dict[tuple[str, str], Problem] = {}
        self._listeners: list[Listener] = []
        self.pauses: Sequence[HealthPause] = ()
        """The pauses of operators: a pause is no problem, and good to know."""

    @property
    def healthy(self) -> bool:
        """True while it has no problem."""
        return not self._problems

    @property
    def problems(self) -> list[Problem]:
        """The problems, the oldest first."""
        return sorted(self._problems.copy().values(), key=lambda problem: problem.since)

    def on_change(self, listener: "Listener") -> None:
        """Have ``listener`` called in the thread that reports, whenever a problem begins or ends."""
        self._listeners.append(listener)

    def trouble(
        self, code: str, cause: str, next_step: str = "", *, about: str = "", since: datetime | None = None
    ) -> None:
        """Report a problem; one that is known already keeps its beginning, and says the new cause.

        Args:
            since: when it began, where that is known better.
        """
        cause, next_step = plain(cause, MOST_CHARACTERS), plain(next_step, MOST_CHARACTERS)
        known = self._problems.get((code, about))
        now = self._clock.now()
        if known is None:
            log.warning("trouble: %s", cause, extra={"action": "trouble", "code": code, "about": about})
        if self.healthy:
            self._since = now
        began = since or (now if known is None else known.since)
        problem = self._problems[code, about] = Problem(code, about, cause, began, next_step)
        if known is None:
            self._tell(problem, is_over=False)

    def over(self, code: str, *, about: str = "") -> None:
        """Report that a problem is no more; one that was not known changes nothing."""
        problem = self._problems.pop((code, about), None)
        if problem is None:
            return
        log.info("trouble is over", extra={"action": "trouble_over", "code": code, "about": about})
        if self.healthy:
            self._since = self._clock.now()
        self._tell(problem, is_over=True)

    def _tell(self, problem: Problem, *, is_over: bool) -> None:
        for listener in self._listeners:
            listener(problem, is_over)

    def replace(self, codes: Collection[str], problems: Iterable[Problem]) -> None:
        """Report all problems of some codes; any other problem of these codes is over."""
        found = {(problem.code, problem.about): problem for problem in problems}
        for code, about in self._problems.keys() - found.keys():
            if code in codes:
                self.over(code, about=about)
        for (code, about), problem in found.items():
            self.trouble(code, problem.cause, problem.next_step, about=about, since=problem.since)

    def report(self) -> HealthReport:
        """Make the answer of the verb ``xbus.health``."""
        return {
            "healthy": self.healthy,
            "name": self.name,
            "since": self._since.isoformat(),
            "problems": [
                {
                    "code": problem.code,
                    "about": problem.about,
                    "cause": problem.cause,
                    "since": problem.since.isoformat(),
                    "next_step": problem.next_step,
                }
                for problem in self.problems
            ],
            "pauses": list(self.pauses),
        }
