"""Reads the address of a broker, with the keys for an encrypted connection.

An address is that of ZeroMQ, such as ``tcp://127.0.0.1:1984``, for a connection without encryption. Or it is
``xbus://login@host:port?key=...&client_key=FILE``:

- ``login``: whom the caller logs in as, unless the program says it.
- ``key``: the broker's public key; otherwise the environment variable ``XBUS_SERVER_KEY`` has it.
- ``client_key``: the caller's key file; otherwise ``XBUS_CLIENT_KEY`` names it.
- ``password_file``: a file with the password in its first line.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from xbus.errors import ConfigurationError
from xbus.rpc.curve.keys import KeyPair, is_public_key, read_pair

SCHEME = "xbus://"

SERVER_KEY_VARIABLE = "XBUS_SERVER_KEY"
CLIENT_KEY_VARIABLE = "XBUS_CLIENT_KEY"

KEY_VARIABLES = (SERVER_KEY_VARIABLE, CLIENT_KEY_VARIABLE)
"""The variables by which a program finds its keys; neither has a secret key in it."""

PARAMETERS = ("key", "client_key", "password_file")

EXAMPLE = "write xbus://login@host:port?key=...&client_key=FILE; xbus keys show prints the key"


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """The way to a broker, or from a broker to a recipient.

    Args:
        endpoint: for ZeroMQ.
        login: that the address names; empty for none.
        password_file: the file that the address names.
        server_key: the public key of the other side; empty for no encryption.
        own: the caller's keys, with encryption.
    """

    endpoint: str
    login: str = ""
    password_file: Path | None = None
    server_key: str = ""
    own: KeyPair | None = None


def shown(address: str) -> str:
    """Write an address for people: its host and port, without what somebody may have written beside them."""
    if not address.startswith(SCHEME):
        return address
    return SCHEME + address.removeprefix(SCHEME).partition("?")[0].rpartition("@")[2]


def parse_address(address: str, environment: Mapping[str, str] = os.environ) -> BrokerAddress:
    """Read an address, and the key file that it names.

    Args:
        address: of ZeroMQ, or ``xbus://...``.
        environment: names what the address leaves out.

    Raises:
        ConfigurationError: ``bad_address``, or as ``read_pair`` says.
    """
    if not address.startswith(SCHEME):
        return BrokerAddress(address)
    parts = _split(address)
    given = _parameters(address, parts.query)
    server_key = given.get("key") or environment.get(SERVER_KEY_VARIABLE, "")
    if not is_public_key(server_key):
        told = "is no key" if server_key else "is missing"
        raise _bad(address, f"the broker's public key {told}", f"{EXAMPLE}; for no encryption write tcp://host:port")
    client_key = given.get("client_key") or environment.get(CLIENT_KEY_VARIABLE, "")
    if not client_key:
        raise _bad(
            address, "the key file of this program is missing", f"add client_key=FILE or set {CLIENT_KEY_VARIABLE}"
        )
    password_file = given.get("password_file")
    return BrokerAddress(
        f"tcp://{parts.netloc.rpartition('@')[2]}",
        unquote(parts.username or ""),
        None if password_file is None else Path(password_file),
        server_key,
        read_pair(Path(client_key)),
    )


def _split(address: str) -> SplitResult:
    try:
        parts = urlsplit(address)
        is_whole = bool(parts.hostname and parts.port) and parts.path in ("", "/") and not parts.fragment
    except ValueError:
        is_whole = False
    if not is_whole:
        raise _bad(address, "it has no host and port, or more than that", EXAMPLE)
    if parts.password is not None:
        raise _bad(address, "others see a password in it", "use password_file=FILE, or XBUS_PASSWORD")
    return parts


def _parameters(address: str, query: str) -> dict[str, str]:
    # Not parse_qsl: a plus sign is a character of keys.
    pairs = [part.partition("=") for part in query.split("&") if part]
    given = {name: unquote(value) for name, _, value in pairs}
    for name in given:
        if name not in PARAMETERS:
            raise _bad(address, f"it has an unknown parameter {name!r:.40}", f"there are {', '.join(PARAMETERS)}")
    return given


def _bad(address: str, cause: str, next_step: str) -> ConfigurationError:
    return ConfigurationError(f"{shown(address)} can't be used: {cause}", next_step, code="bad_address")
