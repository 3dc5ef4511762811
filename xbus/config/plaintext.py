"""Tells which addresses of a configuration take connections without encryption, and which need keys. Pure."""

import ipaddress
from collections.abc import Iterator

from xbus.config.sections import Config
from xbus.errors import ConfigurationError

_LOCAL_NAMES = ("localhost", "lo")
"""The host and the network interface that never leave the machine."""


def is_local(address: str) -> bool:
    """Check whether only programs of this machine reach an address of ZeroMQ."""
    transport, _, place = address.partition("://")
    if transport != "tcp":
        return True
    host = place.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in _LOCAL_NAMES


def open_addresses(config: Config) -> Iterator[tuple[str, str]]:
    """Iterate over the addresses at which other machines may connect without encryption, each behind its option."""
    for option, address in (("frontsocket", config.zmq.frontsocket), ("backsocket", config.zmq.backsocket)):
        if not is_local(address):
            yield f"[zmq] {option}", address


def plaintext_problems(config: Config) -> Iterator[ConfigurationError]:
    """Find the addresses without encryption that nobody has allowed; each with its cure (``plaintext_refused``)."""
    if config.curve.allow_plaintext:
        return
    for option, address in open_addresses(config):
        yield ConfigurationError(
            f"{option} = {address} takes passwords and items from other machines without encryption",
            f"let it listen at 127.0.0.1 and give {option.removeprefix('[zmq] ')}.curve an address for other machines;"
            " or say [curve] allow_plaintext = true where the network is trusted",
            code="plaintext_refused",
        )


def has_encrypted_bell(config: Config) -> bool:
    """Check whether front and back ring each other over a network."""
    return not is_local(config.zmq.b2fsocket)


def needs_keys(config: Config) -> bool:
    """Check whether the broker needs its key pair."""
    return bool(config.zmq.encrypted_front or config.zmq.encrypted_back) or has_encrypted_bell(config)
