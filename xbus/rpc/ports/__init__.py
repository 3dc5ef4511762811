"""The ports of a server: a socket each, with what reads it, guards it and sends.

Plain connections over TCP have a STREAM socket, and ZMTP 3 is spoken here, so that a message is bounded while it
arrives. A ROUTER socket keeps a message until its last frame has come, however many frames it has, and hands out
nothing else before them. It also lets peers claim ids. Encrypted connections have a ROUTER socket, as CURVE adds 33
bytes to each frame and lets nobody in without a key; so have those over ipc, whose file says who may come.
"""

from xbus.rpc.ports.port import Port, PortOwner, plain_port, router_port

__all__ = ["Port", "PortOwner", "plain_port", "router_port"]
