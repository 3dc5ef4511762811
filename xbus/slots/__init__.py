"""The moments at which cron says that something is due, in the time of a zone; pure.

A slot is such a moment, in UTC. Slots are a function of the words alone: two programs that read the same words make the
same slots, wherever they begin. Daylight saving is that of Debian's cron: a job at a fixed time that the clock skips is
due when the clock has jumped, and one at a time that comes twice is due the first time; with ``*`` in minutes or hours
it is due whenever its fields match. The library cronsim computes them.
"""

from xbus.slots.missed import LATE, Due, Missed, decided_until, due_slots
from xbus.slots.schedule import Schedule

__all__ = ["LATE", "Due", "Missed", "Schedule", "decided_until", "due_slots"]
