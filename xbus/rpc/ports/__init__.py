"""The ports of a server: they take connections, bound the memory of each, read and send.

Plain connections over TCP are sockets of the event loop, and ZMTP 3 is spoken here: each byte is bounded where it
arrives, and no message changes threads. Encrypted connections have a ROUTER socket of libzmq. CURVE adds 33 bytes to
each frame, and lets nobody in without a key. Connections over ipc have one, too: the file of the socket says who may
come.
"""

from xbus.rpc.ports.plain import PlainPort
from xbus.rpc.ports.port import CallerConnection, PeerIsFull, PeerIsGone, Port, PortOwner
from xbus.rpc.ports.router import RouterPort

__all__ = ["CallerConnection", "PeerIsFull", "PeerIsGone", "PlainPort", "Port", "PortOwner", "RouterPort"]
