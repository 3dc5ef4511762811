"""Finds the broker's address for a command."""

from pathlib import Path
from typing import Literal

from xbus.admin.program import load_config
from xbus.errors import ConfigurationError


def broker_address(socket: Literal["front", "back"], url: str | None, config_path: Path | None) -> str:
    """The address to call the broker at.

    Args:
        socket: which of its two.
        url: what the user gave; it stands.
        config_path: else the broker's own configuration file tells.

    Raises:
        ConfigurationError: neither of them tells.
    """
    if url is not None:
        return url
    zmq = load_config(config_path).zmq
    address = zmq.frontsocket if socket == "front" else zmq.backsocket
    return reachable(address, socket)


def reachable(bound: str, socket: str) -> str:
    """The address to call for one that was bound: on this machine where it was bound on all of them.

    Raises:
        ConfigurationError: the port is only known when the broker runs.
    """
    place, _, port = bound.rpartition(":")
    if bound.startswith("tcp://") and port in ("0", "*"):
        raise ConfigurationError(
            f"[zmq] {socket}socket = {bound} leaves the port to chance", f"give the {socket}'s real address"
        )
    for everywhere in ("tcp://*", "tcp://0.0.0.0"):
        if place == everywhere:
            return f"tcp://127.0.0.1:{port}"
    return f"tcp://[::1]:{port}" if place == "tcp://[::]" else bound
