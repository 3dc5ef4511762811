"""Bounds the memory that connections take in libzmq, where no option of libzmq does: in bytes, both ways.

libzmq counts messages, not bytes, and counts a message only when its last frame has come. The guard compares what TCP
has carried with what the server has read and sent. It cuts off connections that go too far. It needs Linux and TCP;
elsewhere it does nothing.
"""

from xbus.rpc.guard.cuts import BROKEN_PROTOCOL, KEY_REVOKED, CutLog
from xbus.rpc.guard.limits import ENDLESS, UNREAD_ANSWERS, TrafficLimits
from xbus.rpc.guard.server_limits import MESSAGE_ROOM_BYTES, ServerLimits
from xbus.rpc.guard.watch import ConnectionGuard

__all__ = [
    "BROKEN_PROTOCOL",
    "ENDLESS",
    "KEY_REVOKED",
    "MESSAGE_ROOM_BYTES",
    "UNREAD_ANSWERS",
    "ConnectionGuard",
    "CutLog",
    "ServerLimits",
    "TrafficLimits",
]
