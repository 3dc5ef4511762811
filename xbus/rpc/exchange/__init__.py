"""Calls and answers of one connection, whoever made it; no sockets.

``OwedCalls`` is the calling side, ``Answering`` the answering one. A ``Client`` and a ``Server`` have both: over the
connection that a recipient makes to the back, the recipient calls the back and the back calls the recipient.
"""

from xbus.rpc.exchange.answering import Answering, Call, Channels
from xbus.rpc.exchange.call_queue import SHARE_BYTES, CallQueue, Turns
from xbus.rpc.exchange.calling import (
    AnswerTaker,
    Callee,
    OverdueCall,
    OwedCalls,
    PeerClient,
    PeerClients,
    PeerWire,
    pass_on,
)

__all__ = [
    "SHARE_BYTES",
    "AnswerTaker",
    "Answering",
    "Call",
    "CallQueue",
    "Callee",
    "Channels",
    "OverdueCall",
    "OwedCalls",
    "PeerClient",
    "PeerClients",
    "PeerWire",
    "Turns",
    "pass_on",
]
