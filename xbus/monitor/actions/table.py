"""The table of all actions."""

from xbus.monitor.actions.action import Action
from xbus.monitor.actions.parked import CorrectItem, DropParked, ResumeAllParked, ResumeParked

ACTIONS: tuple[type[Action], ...] = (
    ResumeParked,
    ResumeAllParked,
    CorrectItem,
    DropParked,
)
