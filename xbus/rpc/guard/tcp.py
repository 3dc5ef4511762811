"""The system counts the bytes of a TCP connection, which is known by its descriptor; Linux alone."""

import fcntl
import socket
import struct
import sys
import termios
from collections.abc import Container
from typing import NamedTuple

_COUNTED = struct.Struct("=QQ")
_COUNTED_AT = 120
"""The place of ``tcpi_bytes_acked`` and ``tcpi_bytes_received`` in ``struct tcp_info``, linux/tcp.h, from Linux 4.1."""

_INFO_BYTES = _COUNTED_AT + _COUNTED.size
_NO_LINGER = struct.pack("=ii", 1, 0)
_INT = struct.Struct("=i")


class Carried(NamedTuple):
    """The bytes that the other side has acknowledged, and those that came from there."""

    acknowledged: int
    received: int


def carried(descriptor: int) -> Carried | None:
    """Count the bytes of a connection; None where nobody counts, or the connection is gone."""
    if sys.platform != "linux":
        return None
    try:
        with _Borrowed(descriptor) as connection:
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    except OSError:
        return None
    return Carried(*_COUNTED.unpack_from(info, _COUNTED_AT)) if len(info) == _INFO_BYTES else None


def unread_by_program(descriptor: int) -> int:
    """Count the received bytes that still wait in the system."""
    try:
        (waiting,) = _INT.unpack(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(_INT.size)))
    except OSError:
        return 0
    return int(waiting)


def local_port(descriptor: int) -> int:
    """Give the port of ours to which a connection was made; 0 where it has none, or is gone."""
    try:
        with _Borrowed(descriptor) as connection:
            return _port(connection.getsockname())
    except OSError:
        return 0


def cut_off(descriptor: int, ports: Container[int]) -> str | None:
    """End a connection that was made to a port of ours.

    The port is checked, as the descriptor may belong to something else meanwhile.

    Returns:
        The address of the peer; None where the connection was not there any more.
    """
    try:
        with _Borrowed(descriptor) as connection:
            if _port(connection.getsockname()) not in ports:
                return None
            peer, *_ = connection.getpeername()
            # The peer learns of it at once, and the system keeps nothing for it.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return None
    return str(peer)


def _port(name: object) -> int:
    """Give the port in the name of a socket; 0 for those within the machine, which have none."""
    match name:
        case (_, int(port), *_):
            return port
    return 0


class _Borrowed(socket.socket):
    """A connection that belongs to libzmq, and stays open at the end of a ``with``."""

    def __init__(self, descriptor: int) -> None:
        # With its kind named Python asks the system nothing.
        super().__init__(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=descriptor)

    def __exit__(self, *_: object) -> None:
        self.detach()
