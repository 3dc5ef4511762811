"""Envelopes that emitters ask for again: repeated over the stored items, and brought back from the archive."""

from xbus.broker.front.replay.archive_restore import ArchiveRestore
from xbus.broker.front.replay.replay import Replay, event_unknown

__all__ = [
    "ArchiveRestore",
    "Replay",
    "event_unknown",
]
