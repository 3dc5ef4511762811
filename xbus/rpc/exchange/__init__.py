"""Calls and answers of one connection, whoever made it; no sockets.

``OwedCalls`` is the calling side, ``Answering`` the answering one. A ``Client`` and a ``Server`` have both: over the
connection that a recipient makes to the back, the recipient calls the back and the back calls the recipient.
"""

from xbus.rpc.exchange.answering import Answering
from xbus.rpc.exchange.call import Call
from xbus.rpc.exchange.call_queue import CallQueue
from xbus.rpc.exchange.callee import Callee, OverdueCall
from xbus.rpc.exchange.channels import Channels
from xbus.rpc.exchange.owed_calls import OwedCalls
from xbus.rpc.exchange.peer_client import PeerClient, PeerClients, PeerWire
from xbus.rpc.exchange.turns import SHARE_BYTES, Turns

__all__ = [
    "SHARE_BYTES",
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
]
