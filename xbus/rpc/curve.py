"""Encryption by CURVE: key pairs and their files, addresses that name keys, and the answers to libzmq who may connect.

It knows no verbs and begins no session. Servers, clients and the bell use it; emitters, recipients and commands have
it complete their logins.

An address is that of ZeroMQ, such as ``tcp://127.0.0.1:1984``, for a connection without encryption. Or it is
``xbus://login@host:port?key=...&client_key=FILE``:

- ``login``: whom the caller logs in as, unless the program says it.
- ``key``: the broker's public key; otherwise the environment variable ``XBUS_SERVER_KEY`` has it.
- ``client_key``: the caller's key file; otherwise ``XBUS_CLIENT_KEY`` names it.
- ``password_file``: a file with the password in its first line.

Several addresses with commas between them are those of brokers that stand by for each other, and have the same keys:
``tcp://a:1984,tcp://b:1984``.

A key is a text of 40 characters, 32 bytes in Z85 (https://rfc.zeromq.org/spec/32). A file has the form of ZeroMQ's
certificates, so that czmq and pyzmq read it, too (https://rfc.zeromq.org/spec/4). libzmq asks who may connect by ZAP
1.0 (https://rfc.zeromq.org/spec/27), once for each connection, before the socket hears anything of it. Nobody connects
where nobody answers.

Other sources: zmq_curve(7), zmq_setsockopt(3).
"""

import logging
import os
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

import zmq
from zmq.utils import z85

from xbus import private_files
from xbus.clock import Clock
from xbus.errors import ConfigurationError
from xbus.log_throttle import LogThrottle
from xbus.rpc.context import Context, router
from xbus.rpc.drain import Drain, send

log = logging.getLogger(__name__)


KEY_LENGTH = 40
"""The characters of a key."""

MOST_FILE_BYTES = 64 * 1024
"""The most bytes of a key file that are read; a pair takes some 200."""

_RESERVED = frozenset("%&#+")
"""The characters of Z85 that mean something else within an address."""

_LINE = re.compile(r'^\s+(public|secret)-key\s*=\s*"([^"\n]*)"\s*$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A public key, which others may know, and its secret key."""

    public: str
    secret: str = field(repr=False)


def new_pair() -> KeyPair:
    """Make a pair whose public key can be written into an address and a command as it is: one of seven pairs."""
    while True:
        public, secret = (key.decode("ascii") for key in zmq.curve_keypair())
        if _RESERVED.isdisjoint(public) and not public.startswith("-"):
            return KeyPair(public, secret)


def is_public_key(text: object) -> bool:
    """Check whether a text is a key in Z85."""
    if not isinstance(text, str) or len(text) != KEY_LENGTH or not text.isascii():
        return False
    try:
        z85.decode(text)
    except (KeyError, ValueError, struct.error):
        return False
    return True


def read_pair(file: Path) -> KeyPair:
    """Read the pair of a key file.

    Raises:
        ConfigurationError: ``key_file_unreadable``, ``key_file_open_to_others`` or ``bad_key_file``.
    """
    try:
        with file.open(encoding="utf-8") as opened:
            text = opened.read(MOST_FILE_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise ConfigurationError(
            f"the key file {file} can't be read ({reason})",
            "make one with: xbus keys new, or name another",
            code="key_file_unreadable",
        ) from error
    if private_files.is_open_to_others(file):
        raise ConfigurationError(
            f"others than its owner may use the key file {file}", f"chmod 600 {file}", code="key_file_open_to_others"
        )
    keys = dict(_LINE.findall(text))
    pair = KeyPair(keys.get("public", ""), keys.get("secret", ""))
    if not _belong_together(pair):
        raise ConfigurationError(
            f"the key file {file} has no public-key and secret-key that belong together",
            "make one with: xbus keys new",
            code="bad_key_file",
        )
    return pair


def write_pair(file: Path, pair: KeyPair) -> None:
    """Write a new key file, which its owner alone may read.

    Raises:
        ConfigurationError: ``key_file_exists``, or ``key_file_unwritable``.
    """
    text = (
        f'#   Keep this file to yourself.\ncurve\n    public-key = "{pair.public}"\n    secret-key = "{pair.secret}"\n'
    )
    try:
        with open(file, "x", encoding="utf-8", opener=private_files.opener) as opened:
            opened.write(text)
    except FileExistsError as error:
        raise ConfigurationError(
            f"{file} exists, and who knows its public key would lose its owner",
            "name another file, or move this one away",
            code="key_file_exists",
        ) from error
    except OSError as error:
        raise ConfigurationError(
            f"the key file {file} can't be written ({error.strerror})",
            "name a file in a folder that you may write to",
            code="key_file_unwritable",
        ) from error


def _belong_together(pair: KeyPair) -> bool:
    if not is_public_key(pair.public) or not is_public_key(pair.secret):
        return False
    return zmq.curve_public(pair.secret.encode("ascii")).decode("ascii") == pair.public


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
    if _BETWEEN.search(address):
        return ",".join(map(shown, _BETWEEN.split(address)))
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


def parse_addresses(addresses: str, environment: Mapping[str, str] = os.environ) -> list[BrokerAddress]:
    """Read the addresses of brokers that stand by for each other, as ``parse_address`` reads each.

    The first one names login and password file.
    """
    return [parse_address(address.strip(), environment) for address in _BETWEEN.split(addresses)]


_BETWEEN = re.compile(r",(?=\s*[a-z]+://)")


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


ENDPOINT = "inproc://zeromq.zap.01"
"""The address at which libzmq asks, by the specification."""

_VERSION = b"1.0"
_MECHANISM = b"CURVE"
_LET_IN, _REFUSED = b"200", b"400"

_ENVELOPE_FRAMES = 2
"""Who asks, and an empty frame."""

_REQUEST_FRAMES = 7
"""Version, request id, domain, address, routing id, mechanism, and the peer's public key."""


class Authenticator:
    """Lets the peers in that have a key which is allowed where they come.

    Args:
        context: whose sockets it guards; a context has one authenticator.
        clock: measures how often a refusal is logged.
    """

    def __init__(self, context: Context, clock: Clock) -> None:
        self._allowed: dict[str, Callable[[str], bool]] = {}
        self._refusals = LogThrottle(clock)
        self._socket = router(context)
        self._socket.set(zmq.LINGER, 0)
        self._socket.bind(ENDPOINT)
        self._drain = Drain(self._socket, self._answer)

    def admit(self, domain: str, allows: Callable[[str], bool]) -> None:
        """Say who may connect.

        Args:
            domain: of the addresses that are meant.
            allows: tells whether a public key may connect there.
        """
        self._allowed[domain] = allows

    def start(self) -> None:
        """Answer from now on; who asked before has waited."""
        self._drain.resume()

    def close(self) -> None:
        """Answer nobody any more: nobody connects."""
        self._drain.pause()
        self._socket.close()

    def _answer(self, frames: list[bytes]) -> None:
        asking, question = frames[:_ENVELOPE_FRAMES], frames[_ENVELOPE_FRAMES:]
        key = self._key(question)
        said = [_LET_IN, b"OK", key.encode(), b""] if key else [_REFUSED, b"this key is not allowed here", b"", b""]
        send(self._socket, [*asking, _VERSION, *question[1:2], *said])

    def _key(self, frames: list[bytes]) -> str:
        """Give the key that may connect; empty where none may."""
        if len(frames) != _REQUEST_FRAMES or frames[0] != _VERSION or frames[5] != _MECHANISM:
            return ""
        _, _, domain, address, _, _, bare = frames
        key = z85.encode(bare).decode("ascii")
        allows = self._allowed.get(domain.decode())
        if allows is not None and allows(key):
            return key
        # By their address, as a stranger may make a key for each try.
        if count := self._refusals.note(address.decode()):
            extra = {
                "action": "key_refused",
                "socket": domain.decode(),
                "peer": address.decode(),
                "key": key,
                "count": count,
            }
            log.warning("a key was refused", extra=extra)
        return ""


PASSWORD_VARIABLE = "XBUS_PASSWORD"  # noqa: S105 - the name of the variable


def complete_login(
    address: str, login: str, password: str, environment: Mapping[str, str] = os.environ
) -> tuple[str, str]:
    """Give login and password for a broker.

    Args:
        address: names what the program leaves out, see :mod:`xbus.rpc.curve`.
        login: as the program gives it; empty for that of the address.
        password: as the program gives it; empty for that in the address's ``password_file``, or in ``XBUS_PASSWORD``.
        environment: has that variable.

    Raises:
        ConfigurationError: ``login_missing``, ``password_missing``, or as ``parse_address`` says.
    """
    if login and password:
        return login, password
    broker = parse_addresses(address, environment)[0]
    login = login or broker.login
    if not login:
        raise ConfigurationError(
            f"nothing says the login for {shown(address)}", "write xbus://login@host:port", code="login_missing"
        )
    password = password or _password_of(broker, environment)
    if not password:
        raise ConfigurationError(
            f"nothing says the password of {login}",
            f"name a file in the address, password_file=FILE, or set {PASSWORD_VARIABLE}",
            code="password_missing",
        )
    return login, password


def _password_of(broker: BrokerAddress, environment: Mapping[str, str]) -> str:
    file = broker.password_file
    return environment.get(PASSWORD_VARIABLE, "") if file is None else read_password(file)


def read_password(file: Path) -> str:
    """Read the first line of a file.

    Raises:
        ConfigurationError: the file can't be read or its first line is empty.
    """
    try:
        return first_line(file.read_text(encoding="utf-8"), str(file))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise ConfigurationError(f"password file {file} can't be read ({reason})", "name a readable file") from error


def first_line(text: str, source: str) -> str:
    """Cut the first line of a text, without its end.

    Raises:
        ConfigurationError: it is empty.
    """
    password = text.partition("\n")[0].removesuffix("\r")
    if not password:
        raise ConfigurationError(f"{source} has no password in its first line", "write the password there")
    return password


def serve_encrypted(socket: "zmq.Socket[bytes]", pair: KeyPair, domain: str) -> None:
    """Encrypt what comes to the addresses that a socket binds next; those that it has stay as they are.

    Args:
        pair: of the server.
        domain: under which the authenticator knows who may connect.
    """
    socket.set(zmq.CURVE_SERVER, 1)
    socket.set(zmq.CURVE_SECRETKEY, pair.secret.encode("ascii"))
    socket.set(zmq.ZAP_DOMAIN, domain.encode())
    # Without an authenticator libzmq would let everybody in.
    socket.set(zmq.ZAP_ENFORCE_DOMAIN, 1)


def call_encrypted(socket: "zmq.Socket[bytes]", server_key: str, own: KeyPair) -> None:
    """Encrypt what goes to the addresses that a socket connects to next.

    Args:
        server_key: the public key of the server; nobody else can take its place.
        own: the pair by which the server knows the caller.
    """
    socket.set(zmq.CURVE_SERVERKEY, server_key.encode("ascii"))
    socket.set(zmq.CURVE_PUBLICKEY, own.public.encode("ascii"))
    socket.set(zmq.CURVE_SECRETKEY, own.secret.encode("ascii"))
