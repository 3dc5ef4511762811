"""ZMTP 3 without encryption over plain sockets of the event loop.

A plain connection over TCP needs no thread and no queue of libzmq: what comes is read when the loop has time for it,
and what goes is sent by the loop. So each byte is bounded where it arrives, and a message changes no thread.
``Incoming`` is the codec, ``ZmtpStream`` a connection. The meaning of a message is the business of others.
"""

from xbus.rpc.zmtp.addresses import TCP, TcpAddress, endpoint_of, listen, parse_way
from xbus.rpc.zmtp.codec import DEALER, PING, PONG, ROUTER, Incoming, MessageLimits
from xbus.rpc.zmtp.stream import HAS_EPOLL, SocketWatch, ZmtpStream, watch_of_clients

__all__ = [
    "DEALER",
    "HAS_EPOLL",
    "PING",
    "PONG",
    "ROUTER",
    "TCP",
    "Incoming",
    "MessageLimits",
    "SocketWatch",
    "TcpAddress",
    "ZmtpStream",
    "endpoint_of",
    "listen",
    "parse_way",
    "watch_of_clients",
]
