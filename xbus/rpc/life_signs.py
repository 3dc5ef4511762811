"""Signs of life of a connection, beneath the calls: a machine that vanishes sends no goodbye."""

import socket as sockets
from dataclasses import dataclass

import zmq

MISSES = 3
"""The most signs of life that may be missing."""


@dataclass(frozen=True, slots=True)
class LifeSigns:
    """Seconds after which one side of a connection notices that nobody is at the other end.

    Fewer notice sooner and cost messages.

    Args:
        heartbeat_seconds: how often ZMTP asks the server for a sign of life; three times that without one and the
            connection counts as lost. 0 for never, as it must be where the server's libzmq may be older than 4.2: that
            hands the question to aiozmq as if it were a call, and does not answer it.
        keepalive_seconds: the same asked by TCP, which every server's machine answers.
        handshake_seconds: a connection that is taken and says nothing, as by a proxy before a server that is away, is
            abandoned after this.
    """

    heartbeat_seconds: float = 0
    keepalive_seconds: int = 0
    handshake_seconds: float = 3.0


NO_SIGNS = LifeSigns()
"""Nothing is asked beneath the calls."""


def ask_for_life(socket: "zmq.Socket[bytes]", signs: LifeSigns) -> None:
    """Have a socket ask for signs of life; to be called before it connects or binds."""
    socket.set(zmq.HANDSHAKE_IVL, int(signs.handshake_seconds * 1000))
    # A machine that is gone refuses nothing: the system would wait for two minutes.
    socket.set(zmq.CONNECT_TIMEOUT, int(signs.handshake_seconds * 1000))
    heartbeat_ms, keepalive_seconds = int(signs.heartbeat_seconds * 1000), signs.keepalive_seconds
    if heartbeat_ms:
        socket.set(zmq.HEARTBEAT_IVL, heartbeat_ms)
        socket.set(zmq.HEARTBEAT_TIMEOUT, MISSES * heartbeat_ms)
    if keepalive_seconds:
        socket.set(zmq.TCP_KEEPALIVE, 1)
        socket.set(zmq.TCP_KEEPALIVE_IDLE, keepalive_seconds)
        socket.set(zmq.TCP_KEEPALIVE_INTVL, keepalive_seconds)
        socket.set(zmq.TCP_KEEPALIVE_CNT, MISSES)
        # TCP does not ask while something that it sent is unacknowledged.
        socket.set(zmq.TCP_MAXRT, MISSES * keepalive_seconds * 1000)


def keep_alive(connected: sockets.socket, signs: LifeSigns) -> None:
    """Have TCP ask for signs of life over a connection of our own; Linux alone knows how often."""
    if not signs.keepalive_seconds:
        return
    connected.setsockopt(sockets.SOL_SOCKET, sockets.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", signs.keepalive_seconds),
        ("TCP_KEEPINTVL", signs.keepalive_seconds),
        ("TCP_KEEPCNT", MISSES),
        ("TCP_USER_TIMEOUT", MISSES * signs.keepalive_seconds * 1000),
    ):
        if hasattr(sockets, option):
            connected.setsockopt(sockets.IPPROTO_TCP, getattr(sockets, option), value)
