"""Bounds what a server takes in and keeps: of one peer, and of all of them."""

import math
from dataclasses import dataclass

from xbus.rpc.guard.limits import TrafficLimits

LARGEST_AHEAD = 4
"""The same in largest messages; a peer that has more of them read ahead is disconnected.

More let a peer keep more in flight while the server does not read, and take more memory.
"""

STRANGERS_BYTES = 16 * 1024 * 1024
"""The bytes of unfinished messages of all peers together that have not proven who calls; the largest go first.

Frames of two bytes take 32 times as much memory. Less would cut off honest clients that go on with a large item after
their connection was lost: their token is in front of it, and nobody can read it before the end.
"""

MESSAGE_ROOM_BYTES = 1024 * 1024
"""The bytes of a message beside its largest frame, and those that are under way between libzmq's threads."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Bounds of what a server takes in and keeps, for one peer or for all.

    Args:
        max_message_bytes: a peer that sends a larger frame is disconnected by libzmq; -1 for no limit.
        max_unanswered_bytes: while the calls that wait for their answers hold more than this, nothing is read.
        max_call_bytes: a larger call is refused. The answers of peers that we call may be larger.
        replies_unread: replies that one peer may leave unread; further ones to it are dropped.
        max_unsent_bytes: a peer that leaves more than this unread is disconnected.
        max_strangers_bytes: the unfinished messages of all peers together that have not proven who calls.
        share_bytes: the calls of a peer that are carried out at a time while others call, see ``Turns``.
    """

    max_message_bytes: int
    max_unanswered_bytes: float = math.inf
    max_call_bytes: float = math.inf
    replies_unread: int = 100_000
    max_unsent_bytes: float = math.inf
    max_strangers_bytes: float = STRANGERS_BYTES
    share_bytes: float = math.inf

    @property
    def frame_bytes(self) -> float:
        """The bytes of a frame."""
        return math.inf if self.max_message_bytes < 0 else self.max_message_bytes

    @property
    def traffic(self) -> TrafficLimits:
        """The bytes that libzmq may hold of a connection."""
        message = self.frame_bytes + MESSAGE_ROOM_BYTES
        return TrafficLimits(
            message, min(self.max_strangers_bytes, message), ahead=LARGEST_AHEAD * message, unsent=self.max_unsent_bytes
        )
