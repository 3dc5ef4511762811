"""The table of all actions."""

from xbus.monitor.actions.action import Action
from xbus.monitor.actions.attachment import Attach, Detach
from xbus.monitor.actions.configuration import ApplyBusFile
from xbus.monitor.actions.logins import SetLoginPassword
from xbus.monitor.actions.pausing import Drain, Pause, ResumePaused

ACTIONS: tuple[type[Action], ...] = (*(Pause, Drain, ResumePaused, Detach, Attach, SetLoginPassword, ApplyBusFile),)
