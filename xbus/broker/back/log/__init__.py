"""The back's view of the log: sealed envelopes, whom they are owed to, and their items on the way through a run.

Reads only, by way of the journal. It never knows who is registered. All other packages of the back may import it.
"""

from xbus.broker.back.log.batch import RunBatch, check_given
from xbus.broker.back.log.note import NOTHING_SAID, DeliveryNote, FirstWords, headers_map
from xbus.broker.back.log.reader import RETRY_SECONDS, ArchiveDemand, LogPage, LogReader, LogSlices, OutputIncomplete
from xbus.broker.back.log.small import (
    SMALL_BYTES,
    BundleEntry,
    GroupPart,
    PagePart,
    Part,
    SmallEnvelope,
    WireEvent,
    WireNote,
    bundle_on_wire,
)

__all__ = [
    "NOTHING_SAID",
    "RETRY_SECONDS",
    "SMALL_BYTES",
    "ArchiveDemand",
    "BundleEntry",
    "DeliveryNote",
    "FirstWords",
    "GroupPart",
    "LogPage",
    "LogReader",
    "LogSlices",
    "OutputIncomplete",
    "PagePart",
    "Part",
    "RunBatch",
    "SmallEnvelope",
    "WireEvent",
    "WireNote",
    "bundle_on_wire",
    "check_given",
    "headers_map",
]
