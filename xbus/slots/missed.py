"""The slots that are due at a look, and those that were missed before it."""

from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice
from typing import NamedTuple

from xbus.slots.schedule import Schedule

LATE = timedelta(seconds=60)
"""A slot that nobody looked at for so long was missed. More has a bus that was busy or restarted count as awake."""


class Missed(StrEnum):
    """The choices for slots at which nobody could look: the broker was away, or the bot was paused."""

    ONCE = "once"
    """The last of them is made up for."""
    ALL = "all"
    """Each of them is."""
    SKIP = "skip"
    """None is."""


class Due(NamedTuple):
    """The slots that are due now.

    Args:
        slots: the oldest first.
        until: all slots up to here are decided.
    """

    slots: tuple[datetime, ...]
    until: datetime


def decided_until(until: datetime, now: datetime) -> datetime:
    """Give the moment up to which slots are decided.

    A clock that was ahead for a while has decided about slots that are still to come: these are decided anew.

    Args:
        until: as noted.
        now: the present moment.
    """
    return until if until - now <= LATE else now - LATE


def due_slots(schedule: Schedule, after: datetime, now: datetime, missed: Missed, most: int) -> Due:
    """Decide about the slots that came since the last look.

    Args:
        after: slots up to here are decided.
        now: the present moment.
        missed: what becomes of those that are older than ``LATE``.
        most: so many at once; the next look goes on.
    """
    on_time = max(after, now - LATE)
    if missed is Missed.ALL:
        slots = tuple(islice(schedule.between(after, now), most))
    else:
        made_up = schedule.last(after, on_time) if missed is Missed.ONCE and after < on_time else None
        slots = (*([made_up] if made_up is not None else []), *islice(schedule.between(on_time, now), most))
    return Due(slots, slots[-1] if len(slots) >= most else now)
