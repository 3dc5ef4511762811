"""Says where a command finds the broker, and how long the command insists."""

from pathlib import Path
from typing import Literal

import click

from xbus.admin.program import FiniteRange
from xbus.config import load
from xbus.config.reaching import reachable
from xbus.emitter import Emitter, Options

timeout_option = click.option(
    "--timeout",
    type=FiniteRange(0, min_open=True),
    default=Options.retry_seconds,
    show_default=True,
    metavar="SECONDS",
    help="How long to insist while the bus does not answer, takes nothing or is paused.",
)
"""For commands that send."""

back_option = click.option(
    "--back", "back_url", metavar="URL", help="The back's address; by default that of the configuration file."
)
"""For programs that serve."""


def command_emitter(address: str, login: str, password: str, seconds: float = Options.retry_seconds) -> Emitter:
    """Make the emitter of a command. Its person waits no longer for a pause than for a bus that does not answer."""
    return Emitter(address, login, password, retry_seconds=seconds, pause_seconds=seconds)


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
    zmq = load(config_path).zmq
    address = zmq.frontsocket if socket == "front" else zmq.backsocket
    return reachable(address, socket)
