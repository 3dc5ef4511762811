"""Reading at one's own pace: ``Reader`` for ordinary programs, ``AsyncReader`` for those that run an asyncio loop.

A program asks the back for batches and says when each is done; several programs of a reader share its ranges by
themselves. ``at`` and ``for_key`` read any part of the log, and leave no trace. It needs pyzmq and msgpack alone.
"""

from xbus.reader.asynchronous import AsyncLogView, AsyncReader
from xbus.reader.batch import EventBatch, ReaderBatch, ReadEvent, ReadItem
from xbus.reader.options import ReaderOptions
from xbus.reader.synchronous import Reader

__all__ = [
    "AsyncLogView",
    "AsyncReader",
    "EventBatch",
    "ReadEvent",
    "ReadItem",
    "Reader",
    "ReaderBatch",
    "ReaderOptions",
]
