"""Calls and answers of one connection, whoever made it; no sockets.

``OwedCalls`` is the calling side, ``Answering`` the answering one. A ``Client`` and a ``Server`` have both: over the
connection that a recipient makes to the back, the recipient calls the back and the back calls the recipient.
"""

from xbus.rpc.exchange.answering import Answering, Call, Channels, Unanswered
from xbus.rpc.exchange.calling import (
    AnswerTaker,
    Callee,
    OverdueCall,
    OwedCalls,
    PeerClient,
    PeerClients,
    pass_on,
)

__all__ = [
    "AnswerTaker",
    "Answering",
    "Call",
    "Callee",
    "Channels",
    "OverdueCall",
    "OwedCalls",
    "PeerClient",
    "PeerClients",
    "Unanswered",
    "pass_on",
]
