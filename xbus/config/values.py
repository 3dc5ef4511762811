"""The values of options: read from text with their checks, and written as text again. Pure.

A check raises ValueError with the rest of the sentence "<value> ...".
"""

import configparser
import logging
import math
import re
import shlex
from ipaddress import ip_network
from pathlib import Path
from urllib.parse import unquote, urlsplit

from xbus.config.hosts import server_and_port

LARGEST_NUMBER = 2**53
"""No option needs more, and up to here a float keeps whole numbers exact."""

LEAST_LARGE = 64 * 1024
"""Bytes below which data is never large: the database keeps such values faster."""

LARGEST_DAYS = 36_500
"""A hundred years."""

LARGEST_HOURS = LARGEST_DAYS * 24
LARGEST_MINUTES = LARGEST_HOURS * 60


def switch(value: str) -> bool:
    """Read true or false."""
    try:
        return configparser.ConfigParser.BOOLEAN_STATES[value.lower()]
    except KeyError:
        raise ValueError("is neither true nor false") from None


def count(value: str) -> int:
    """Read a whole number of at least 1; ``1_000_000`` may be written for readability."""
    try:
        number = int(value)
    except ValueError:
        raise ValueError("is not a whole number") from None
    if not 1 <= number <= LARGEST_NUMBER:
        raise ValueError(f"is not between 1 and {LARGEST_NUMBER}")
    return number


def limit(value: str) -> int:
    """Read a number as :func:`count` does, or 0 for no limit."""
    return 0 if value == "0" else count(value)


def large(value: str) -> int:
    """Read from how many bytes on data is large; each object costs two waits for the disk."""
    number = count(value)
    if number < LEAST_LARGE:
        raise ValueError(f"is less than {LEAST_LARGE}, from which on a file for each pays")
    return number


def _number(value: str, fault: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ValueError(fault) from None


def days(value: str) -> float:
    """Read a number of days, or 0 for ever."""
    number = _number(value, "is not a number of days")
    if not 0 <= number <= LARGEST_DAYS:  # false for "nan" as well
        raise ValueError(f"is not a number of days between 0 and {LARGEST_DAYS}")
    return number


def seconds(value: str) -> float:
    """Read a number of seconds above 0."""
    number = _number(value, "is not a number of seconds")
    if not 0 < number <= LARGEST_NUMBER:  # false for "nan" as well
        raise ValueError("is not a number of seconds above 0")
    return number


def part(value: str) -> float:
    """Read a number from 0 to 1."""
    number = _number(value, "is not a number from 0 to 1")
    if not 0 <= number <= 1:
        raise ValueError("is not a number from 0 to 1")
    return number


def seconds_or_never(value: str) -> float:
    """Read a number of seconds; 0 for never."""
    return 0.0 if re.fullmatch(r"0+\.?0*|\.0+", value) else seconds(value)


def minutes_from_0_or_never(value: str) -> float:
    """Read a number of minutes, 0 for at once, or ``never``, which is infinite."""
    return _or_never(value, "minutes", LARGEST_MINUTES, may_be_0=True)


def minutes_or_never(value: str) -> float:
    """Read a number of minutes above 0, or ``never``, which is infinite."""
    return _or_never(value, "minutes", LARGEST_MINUTES)


def hours_or_never(value: str) -> float:
    """Read a number of hours above 0, or ``never``, which is infinite."""
    return _or_never(value, "hours", LARGEST_HOURS)


def _or_never(value: str, unit: str, largest: int, *, may_be_0: bool = False) -> float:
    if value == "never":
        return math.inf
    number = _number(value, f"is neither a number of {unit} nor the word never")
    if not (0 < number <= largest or (may_be_0 and number == 0)):  # refuses "nan" as well
        bounds = f"between 0 and {largest}" if may_be_0 else f"above 0, up to {largest},"
        raise ValueError(f"is neither a number of {unit} {bounds} nor the word never")
    return number


def file(value: str) -> Path | None:
    """Read a path; nothing means none."""
    return Path(value) if value else None


def log_format(value: str) -> str:
    """Read the form of the log."""
    if value.lower() not in ("text", "json"):
        raise ValueError("is neither text nor json")
    return value.lower()


def level(value: str) -> str:
    """Read a level of the log."""
    if value.upper() not in logging.getLevelNamesMapping():
        raise ValueError("is not one of DEBUG, INFO, WARNING, ERROR, CRITICAL")
    return value.upper()


def socket(value: str) -> str:
    """Read an address of ZeroMQ."""
    transport, separator, place = value.partition("://")
    if transport not in ("tcp", "ipc", "inproc") or not separator or not place:
        raise ValueError("is not an address such as tcp://127.0.0.1:1984, ipc:///run/xbus.socket or inproc://#name")
    if transport == "tcp" and not _is_port(place.rpartition(":")[2]):
        raise ValueError("has no port between 0 and 65535 at its end")
    return value


def _is_port(text: str) -> bool:
    return text == "*" or (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65535)


def served_socket(value: str) -> str:
    """Read an address of ZeroMQ that other programs can reach."""
    if value.startswith("inproc://"):
        raise ValueError("is an address inside the broker, where nobody else can call")
    return socket(value)


def encrypted_socket(value: str) -> str:
    """Read an address for encrypted connections; nothing means none."""
    if value and not value.startswith("tcp://"):
        raise ValueError("is not an address such as tcp://*:1985")
    return socket(value) if value else value


def needed_file(value: str) -> Path:
    """Read a path that must be named."""
    if not value:
        raise ValueError("names no file")
    return Path(value)


def hosts(value: str) -> tuple[str, ...]:
    """Read names of hosts, addresses and networks with commas between them; ``*`` is every host."""
    entries = tuple(entry.strip() for entry in value.split(",") if entry.strip())
    for entry in entries:
        if entry != "*" and not _is_host(entry):
            raise ValueError("is not a list such as shop.example.com, 10.0.0.7, 10.1.0.0/16")
    return entries


def networks(value: str) -> tuple[str, ...]:
    """Read addresses and networks with commas between them."""
    entries = tuple(entry.strip() for entry in value.split(",") if entry.strip())
    for entry in entries:
        try:
            ip_network(entry, strict=False)
        except ValueError:
            raise ValueError("is not a list of addresses and networks such as 10.0.0.7, 10.1.0.0/16") from None
    return entries


def _is_host(entry: str) -> bool:
    """Check a name, an address or a network; what looks like one of the latter has to be one."""
    if re.fullmatch(r"[\d./]+|[^/]*/.*|.*:.*", entry) is None:
        return re.fullmatch(r"[\w.-]+", entry, re.ASCII) is not None
    try:
        ip_network(entry, strict=False)
    except ValueError:
        return False
    return True


def http_listen(value: str) -> str:
    """Read ``host:port`` to listen at by HTTP; nothing means none."""
    if value:
        host, port = host_and_port(value)
        if not host or not 0 <= port <= 65535:
            raise ValueError("is not a host and a port, such as 127.0.0.1:9180, [::1]:9180 or *:9180")
    return value


def server_address(value: str) -> str:
    """Read ``host:port`` of a server; nothing means none."""
    if value:
        host, port = host_and_port(value)
        if not host or host == "*" or not 0 < port <= 65535:
            raise ValueError("is not a host and a port, such as 127.0.0.1:8125")
    return value


def host_and_port(value: str) -> tuple[str, int]:
    """Split ``host:port``; the port is -1 where it is no number."""
    host, _, port = value.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""  # an IPv6 address without brackets: nobody can say where its port begins
    return host, int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else -1


def command(value: str) -> str:
    """Read a command line; nothing means none. It is split as a shell would, and no shell runs it."""
    try:
        words = shlex.split(value)
    except ValueError as error:
        raise ValueError(f"is not a command line ({error})") from None
    if value and not words:
        raise ValueError("names no program")
    return value


def webhook(value: str) -> str:
    """Read the address of a webhook; nothing means none."""
    if not value:
        return value
    try:
        parts = urlsplit(value)
        is_complete = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_complete = False
    if not is_complete or not value.isascii() or not value.isprintable() or " " in value:
        raise ValueError("is not an address such as https://chat.example/hooks/xbus")
    return value


def place(value: str) -> str:
    """Read a folder, or the address of one; nothing means none."""
    if has_secrets(value):
        raise ValueError(
            "contains a key or a password, which everybody would see who may read the journal; give it by the storage's"
            " own means, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    if "\0" in value:
        raise ValueError("is neither a folder nor an address such as s3://bucket/archive")
    return value


def database(value: str) -> str:
    """Read an SQLAlchemy URL; the short names of PostgreSQL mean the driver that the bus brings along."""
    scheme, separator, rest = value.partition("://")
    if not separator or not scheme:
        raise ValueError("is not a database address such as sqlite:///xbus.db or postgresql://user:password@host/name")
    if scheme in ("postgres", "postgresql"):
        scheme = "postgresql+psycopg2"
    if scheme.partition("+")[0] not in ("postgresql", "sqlite"):
        raise ValueError("is neither an sqlite nor a postgresql address")
    if scheme.startswith("sqlite") and rest.partition("?")[0] in ("", "/", "/:memory:"):
        raise ValueError("is a database in memory, which would be gone with the program")
    found = _ADDRESS.fullmatch(value)
    if found is not None:
        for server in found["place"].partition("/")[0].split(","):
            server_and_port(server)
    # Written for a reader with interpolation, a percent sign is doubled; in a URL two in a row mean nothing.
    return f"{scheme}://{rest.replace('%%', '%')}"


HIDDEN = "***"
"""The replacement of a secret."""

_ADDRESS = re.compile(
    r"[^:]*://(?:(?P<user>[^:/?#@]*)(?::(?P<password>[^@]*))?@)?(?P<place>[^@?]*)(?:\?(?P<query>[^@]*))?", re.DOTALL
)
"""An address of which everybody can tell the parts; the characters between them are written as %40 and the like."""

_TELLING = re.compile("pass|secret|token|key", re.IGNORECASE)
"""Names of an address's parameters whose values are secrets."""


def written(value: object) -> str:
    """Write a value as a configuration file would."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ", ".join(value)
    if isinstance(value, float):
        return "never" if math.isinf(value) else str(int(value)) if value.is_integer() else str(value)
    return str(value)


def without_secrets(address: str) -> str:
    """Write the address of a database without its password, and without other secrets among its parameters.

    Nothing of a token is written. Of a webhook only the machine is written, as each other part may be its password.
    """
    if not address:
        return ""
    scheme, separator, _ = address.partition("://")
    if not separator:  # a token, or an address that lacks its beginning
        return HIDDEN
    if scheme in ("http", "https"):
        return f"{scheme}://{urlsplit(address).hostname}/{HIDDEN}"
    found = _ADDRESS.fullmatch(address)
    if found is None:  # nobody can say which part of it is the password
        return f"{scheme}://{HIDDEN}"
    login = "" if found["user"] is None else f"{found['user']}{'' if found['password'] is None else f':{HIDDEN}'}@"
    query = "" if found["query"] is None else f"?{'&'.join(map(_parameter, found['query'].split('&')))}"
    return f"{scheme}://{login}{found['place']}{query}"


def has_secrets(value: str) -> bool:
    """Check whether a value is an address with a password or another secret, or one of which nobody can tell."""
    if "://" not in value:
        return False
    found = _ADDRESS.fullmatch(value)
    return found is None or found["password"] is not None or any(map(_is_telling, (found["query"] or "").split("&")))


def without_password(address: str) -> str:
    """Write the address of a database so that it still leads there, without its password and other secrets."""
    found = _ADDRESS.fullmatch(address)
    if found is None:
        # A path leads there by itself. Of anything else nobody can say which part of it is the password.
        return HIDDEN if "://" in address or "@" in address or _TELLING.search(address) else address
    scheme = address.partition("://")[0]
    login = "" if found["user"] is None else f"{found['user']}@"
    kept = [pair for pair in (found["query"] or "").split("&") if pair and not _is_telling(pair)]
    return f"{scheme}://{login}{found['place']}{'?' if kept else ''}{'&'.join(kept)}"


def _is_telling(pair: str) -> bool:
    return _TELLING.search(unquote(pair.partition("=")[0])) is not None


def _parameter(pair: str) -> str:
    return f"{pair.partition('=')[0]}={HIDDEN}" if _is_telling(pair) else pair
