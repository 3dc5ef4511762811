"""The findings of ``xbus doctor``."""

from dataclasses import dataclass

from xbus.errors import XbusError


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One thing that needs a hand.

    Args:
        code: a stable name for it; ``docs/operating.md`` lists all.
        about: the file, address, login or name that it is about.
        cause: one sentence without a final full stop.
        next_step: the cure.
        is_problem: whether the bus suffers from it; else it is a note.
    """

    code: str
    about: str
    cause: str
    next_step: str
    is_problem: bool = True


def of_error(error: XbusError, about: str) -> DoctorFinding:
    """Make a finding of an error that some check has raised."""
    return DoctorFinding(error.code, about, error.cause, error.next_step)
