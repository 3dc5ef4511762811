"""Addresses of ZeroMQ over TCP, and sockets that listen there.

Source: https://libzmq.readthedocs.io/en/latest/zmq_tcp.html
"""

import fcntl
import socket
import struct
import sys
from typing import NamedTuple

TCP = "tcp://"

_ANY = "*"
_BACKLOG = 1024
"""Connections that the system makes ahead of the program. Fewer are refused sooner where many come at once."""

_SIOCGIFADDR = 0x8915
"""Asks for the address of a network interface, linux/sockios.h."""

_INTERFACE_REQUEST = struct.Struct("=256s")
_ADDRESS_AT = slice(20, 24)


class TcpAddress(NamedTuple):
    """A place over TCP.

    Args:
        host: a name, or an address of IPv4 or IPv6; of one who listens also ``*`` or a network interface.
        port: 0 for a free one.
    """

    host: str
    port: int


def parse_way(address: str) -> tuple[TcpAddress | None, TcpAddress]:
    """Read ``tcp://host:port``, or ``tcp://source;host:port`` of one who connects from a place of its own.

    Returns:
        The source, None where the address names none, and the place.

    Raises:
        ValueError: the address has another form.
    """
    source, semicolon, place = address.removeprefix(TCP).rpartition(";")
    return (parse_tcp(TCP + source) if semicolon else None), parse_tcp(address if not semicolon else TCP + place)


def parse_tcp(address: str) -> TcpAddress:
    """Read ``tcp://host:port``; a port ``*`` is 0.

    Raises:
        ValueError: the address has another form.
    """
    host, colon, port = address.removeprefix(TCP).rpartition(":")
    if not address.startswith(TCP) or not colon or not host or "," in host:
        raise ValueError("Invalid argument")
    number = 0 if port == _ANY else int(port) if port.isascii() and port.isdigit() else -1
    if not 0 <= number < 2**16:
        raise ValueError("Invalid argument")
    return TcpAddress(host.removeprefix("[").removesuffix("]"), number)


def listen(address: str) -> socket.socket:
    """Listen at an address of ZeroMQ over TCP, without blocking.

    Raises:
        ValueError: the address has another form.
        OSError: nothing can listen there.
    """
    host, port = parse_tcp(address)
    family, place = _resolve(host, port)
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


def endpoint_of(listening: socket.socket) -> str:
    """Give the address at which a socket listens, with the port that it got."""
    host, port, *_ = listening.getsockname()
    return f"{TCP}[{host}]:{port}" if ":" in host else f"{TCP}{host}:{port}"


def _resolve(host: str, port: int) -> tuple[int, tuple[str, int]]:
    if host == _ANY:
        return socket.AF_INET, ("0.0.0.0", port)  # noqa: S104 - the asterisk means every network of the machine
    if host in [name for _, name in socket.if_nameindex()]:
        return socket.AF_INET, (_address_of_interface(host), port)
    family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    return family, (str(place[0]), port)


def _address_of_interface(name: str) -> str:
    if sys.platform != "linux":
        raise OSError(f"the address of the interface {name} is not known on this system")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        request = _INTERFACE_REQUEST.pack(name.encode())
        return socket.inet_ntoa(fcntl.ioctl(asking.fileno(), _SIOCGIFADDR, request)[_ADDRESS_AT])
