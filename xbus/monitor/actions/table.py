"""The table of all actions."""

from xbus.monitor.actions.action import Action
from xbus.monitor.actions.attachment import Attach, Detach
from xbus.monitor.actions.batches import DropBatches, ResumeBatches
from xbus.monitor.actions.bots import FireBot, ReleaseBot
from xbus.monitor.actions.clearing import ClearItem
from xbus.monitor.actions.configuration import ApplyBusFile
from xbus.monitor.actions.failures import AssignFailures, CommentFailures, ReleaseFailures, TrackFailures
from xbus.monitor.actions.logins import SetLoginPassword
from xbus.monitor.actions.parked import CorrectItem, DropParked, ResumeAllParked, ResumeParked
from xbus.monitor.actions.pausing import DrainAndPause, Pause, ResumePaused
from xbus.monitor.actions.people import (
    AddPerson,
    AddToken,
    ChangeOwnPassword,
    DisablePerson,
    EnablePerson,
    EndSessions,
    RemoveToken,
    SetPassword,
    SetRights,
)
from xbus.monitor.actions.readers import MergeRanges, MoveReader, SplitRange, UndoMove
from xbus.monitor.actions.subscriptions import ResumeSubscription

ACTIONS: tuple[type[Action], ...] = (
    ResumeParked,
    ResumeAllParked,
    CorrectItem,
    DropParked,
    TrackFailures,
    AssignFailures,
    ReleaseFailures,
    CommentFailures,
    ClearItem,
    Pause,
    DrainAndPause,
    ResumePaused,
    Detach,
    Attach,
    MoveReader,
    UndoMove,
    SplitRange,
    MergeRanges,
    ResumeBatches,
    DropBatches,
    ResumeSubscription,
    FireBot,
    ReleaseBot,
    SetLoginPassword,
    ApplyBusFile,
    AddPerson,
    SetRights,
    SetPassword,
    DisablePerson,
    EnablePerson,
    EndSessions,
    AddToken,
    RemoveToken,
    ChangeOwnPassword,
)
