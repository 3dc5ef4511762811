"""Says where a command finds the broker, and how long the command insists."""

from pathlib import Path
from typing import Literal

import click

from xbus.admin.program import load_config
from xbus.emitter import Options
from xbus.errors import ConfigurationError

timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=Options.retry_seconds,
    show_default=True,
    metavar="SECONDS",
    help="How long to insist while the bus does not answer or takes nothing.",
)
"""For commands that send."""


def broker_address(socket: Literal["front", "back"], url: str | None, config_path: Path | None) -> str:
    """Find the address of the broker for a call.

    Args:
        socket: one of its two sockets.
        url: the address that the user gave, if any; it wins.
        config_path: otherwise the broker's own configuration file names it.

    Raises:
        ConfigurationError: neither of them names an address.
    """
    if url is not None:
        return url
    zmq = load_config(config_path).zmq
    address = zmq.frontsocket if socket == "front" else zmq.backsocket
    return reachable(address, socket)


def reachable(bound: str, socket: str) -> str:
    """Turn the address of a bound socket into one to call: on all networks means this machine.

    Raises:
        ConfigurationError: the port is only known when the broker runs.
    """
    place, _, port = bound.rpartition(":")
    if bound.startswith("tcp://") and port in ("0", "*"):
        raise ConfigurationError(
            f"[zmq] {socket}socket = {bound} has no fixed port", f"give the {socket}'s real address"
        )
    for everywhere in ("tcp://*", "tcp://0.0.0.0"):
        if place == everywhere:
            return f"tcp://127.0.0.1:{port}"
    return f"tcp://[::1]:{port}" if place == "tcp://[::]" else bound
