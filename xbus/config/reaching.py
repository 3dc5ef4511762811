"""Tells at which address a program of this machine reaches a bound socket. Pure."""

from xbus.errors import ConfigurationError


def reachable(bound: str, socket: str) -> str:
    """Turn the address of a bound socket into one to call: on all networks means this machine.

    Args:
        bound: the address of the configuration.
        socket: ``front`` or ``back``, for the error.

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
