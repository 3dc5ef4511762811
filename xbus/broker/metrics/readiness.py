"""Says whether a process of the broker can do its work now, and why not; pure."""

from typing import TypedDict

from xbus.supervision.health import Health

PREVENTING = ("journal_unavailable", "journal_unreadable", "journal_full")
"""The codes of problems with which the broker refuses work. Work that is parked or absent keeps nobody from working."""


class Reason(TypedDict):
    """A reason why a process is not ready."""

    code: str
    cause: str
    next_step: str


STARTING = Reason(code="starting", cause="the broker is starting", next_step="wait, and see its log")
STOPPING = Reason(code="stopping", cause="the broker is stopping", next_step="start it again")


class ProcessReadiness:
    """The readiness of a process, from its start to its end.

    Args:
        health: has the problems of the process.
    """

    def __init__(self, health: Health) -> None:
        self._health = health
        self._phase: Reason | None = STARTING

    def started(self) -> None:
        """Note that calls are taken from now on."""
        self._phase = None

    def stopping(self) -> None:
        """Note that nothing new is taken any more."""
        self._phase = STOPPING

    def reasons(self) -> list[Reason]:
        """List why it is not ready; nothing if it is."""
        preventing = [problem for problem in self._health.problems if problem.code in PREVENTING]
        return [
            *([] if self._phase is None else [self._phase]),
            *(Reason(code=each.code, cause=each.cause, next_step=each.next_step) for each in preventing),
        ]
