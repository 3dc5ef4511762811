"""Immediate replies: events delivered at their end, ahead of their envelope, because their emitter waits.

It uses dispatch and progress as an envelope's ordinary delivery does; nothing but the assembly imports it.
"""

from xbus.broker.back.replies.early_delivery import EarlyDelivery
from xbus.broker.back.replies.left_behind import LeftBehind
from xbus.broker.back.replies.records import ReplyRecords
from xbus.broker.back.replies.service import ReplyService

__all__ = [
    "EarlyDelivery",
    "LeftBehind",
    "ReplyRecords",
    "ReplyService",
]
