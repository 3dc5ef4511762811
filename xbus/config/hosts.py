"""Addresses of databases that name several servers, as libpq writes them: ``postgresql://h1:5432,h2:5432/name``."""

import re
from urllib.parse import quote

_SEVERAL = re.compile(
    r"(?P<before>postgres(?:ql)?(?:\+\w+)?://(?:[^/?#@]*@)?)(?P<hosts>[^/?#@]*,[^/?#@]*)(?P<path>/[^?]*)?"
    r"(?:\?(?P<query>.*))?",
    re.DOTALL,
)
_HOST = re.compile(r"(?P<host>[^:\[\],]*|\[[^\[\],]*\])(?::(?P<port>[^:,]*))?", re.DOTALL)
"""A name, a number, or an address in brackets; behind it perhaps a port."""


def with_hosts_apart(address: str) -> str:
    """Write an address that names several servers as SQLAlchemy reads it; give any other as it is.

    Raises:
        ValueError: one of the servers is none.

    Example:
        >>> with_hosts_apart("postgresql://me@h1:5432,h2/xbus")
        'postgresql://me@/xbus?host=h1%2Ch2&port=5432%2C'
    """
    found = _SEVERAL.fullmatch(address)
    if found is None:
        return address
    servers = [server_and_port(server) for server in found["hosts"].split(",")]
    hosts = ",".join(host.strip("[]") for host, _ in servers)
    ports = ",".join(port for _, port in servers)
    parameters = [f"host={quote(hosts, safe='')}", f"port={quote(ports, safe='')}", *filter(None, [found["query"]])]
    return f"{found['before']}{found['path'] or '/'}?{'&'.join(parameters)}"


def server_and_port(server: str) -> tuple[str, str]:
    """Read a server of an address: nothing, a host, or a host and a port, which is empty where none is given.

    Raises:
        ValueError: it is something else.
    """
    found = _HOST.fullmatch(server)
    if found is None:
        raise ValueError(f"has {server!r:.40} where a host belongs; an IPv6 address stands in brackets")
    port = found["port"]
    if port is not None and not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise ValueError(f"has {port!r:.20} where a port belongs")
    return found["host"], port or ""
