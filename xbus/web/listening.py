"""Opens the port of a program that serves HTTP, says where it is, and ends the program at a signal."""

import signal
import socket
import sys
from pathlib import Path

from xbus.config import host_and_port
from xbus.errors import ConfigurationError


def open_port(section: str, address: str) -> socket.socket:
    """Open the port that a section of the configuration names by its option ``listen``.

    Raises:
        ConfigurationError: the address can't be taken (``address_in_use``).
    """
    host, port = host_and_port(address)
    try:
        return socket.create_server(
            ("" if host == "*" else host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
    except OSError as error:
        raise ConfigurationError(
            f"[{section}] listen = {address} can't be taken ({error.strerror})",
            "see which program has the port, or give another",
            code="address_in_use",
        ) from error


def served_address(address: str, listening: socket.socket, certificate: Path | None) -> str:
    """Write the address by which clients reach an open port.

    Args:
        address: of the configuration.
        listening: the open port, whose number may have been chosen by the system.
        certificate: of the server; None where it speaks plain HTTP.
    """
    host, port = host_and_port(address)[0], listening.getsockname()[1]
    scheme = "http" if certificate is None else "https"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def stop_at_signal() -> None:
    """Have SIGTERM and SIGINT end the program with 0."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
