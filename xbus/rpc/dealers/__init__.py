"""The calling end of a connection: it connects, connects anew when the connection was lost, and carries messages.

A plain connection over TCP is a socket of the event loop. libzmq has those that are encrypted, and those over ipc.
"""

from xbus.rpc.dealers.dealer import ConnectionRefusal, Dealer, DealerOwner
from xbus.rpc.dealers.libzmq import LibzmqDealer
from xbus.rpc.dealers.plain import PlainDealer

__all__ = ["ConnectionRefusal", "Dealer", "DealerOwner", "LibzmqDealer", "PlainDealer"]
