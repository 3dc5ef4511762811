"""The table of all actions."""

from xbus.monitor.actions.action import Action

ACTIONS: tuple[type[Action], ...] = ()
