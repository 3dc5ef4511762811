"""Reads the log for programs that ask from any place on, without lease and checkpoint.

It never writes, and knows nothing of deliveries.
"""

from xbus.broker.back.reading.log_reading import LogReading
from xbus.broker.back.reading.maps import event_map
from xbus.broker.back.reading.options import LogQuestion, read_question
from xbus.broker.back.reading.reader_types import ReaderTypes

__all__ = ["LogQuestion", "LogReading", "ReaderTypes", "event_map", "read_question"]
