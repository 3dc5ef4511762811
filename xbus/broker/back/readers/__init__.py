"""Serves readers: shares their ranges among programs, hands batches out, and settles them.

It never delivers, and knows nothing of cursors, runs or registrations. The journal keeps places and leases; which
program is alive is known here alone.
"""

from xbus.broker.back.readers.behind import AbsentReaders, BehindReaders
from xbus.broker.back.readers.calls import (
    MOST_WAIT_SECONDS,
    BatchCall,
    FailedCall,
    ReadingProgram,
    Settlement,
    read_batch_call,
    read_failed_call,
    read_program,
    read_settings,
    read_settlement,
)
from xbus.broker.back.readers.desk import ReaderDesk
from xbus.broker.back.readers.desks import ReaderDesks
from xbus.broker.back.readers.failing import FailingBatches
from xbus.broker.back.readers.sharing import RangeLease, RangeSharing
from xbus.broker.back.readers.subscriptions import Subscriptions

__all__ = [
    "MOST_WAIT_SECONDS",
    "AbsentReaders",
    "BatchCall",
    "BehindReaders",
    "FailedCall",
    "FailingBatches",
    "RangeLease",
    "RangeSharing",
    "ReaderDesk",
    "ReaderDesks",
    "ReadingProgram",
    "Settlement",
    "Subscriptions",
    "read_batch_call",
    "read_failed_call",
    "read_program",
    "read_settings",
    "read_settlement",
]
