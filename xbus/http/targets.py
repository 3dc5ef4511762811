"""Decides to which addresses calls may go, and refuses the URL of a subscriber that is nowhere else."""

import asyncio
import socket
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import SplitResult, urlsplit

from xbus.errors import Refused

_EMBEDDING = IPv6Network("64:ff9b::/96")
"""Addresses of NAT64 (RFC 6052), which lead to the IPv4 address in their last four bytes."""

_PUBLIC = IPv6Network("2000::/3")
"""The only addresses of IPv6 that are given to anybody so far (RFC 4291, section 2.4)."""

LOOKUP_SECONDS = 2.0
"""Seconds for which a subscriber that subscribes waits for its name to be looked up. Fewer let more targets pass that
are refused when they are called, more keep the subscriber waiting."""

LOOKUPS_AT_ONCE = 4
"""Names that are looked up at once for those who subscribe. A name server that is silent holds a thread of these."""


class AllowedAddresses:
    """The addresses that calls may go to: public ones, and those of networks that an operator names.

    Args:
        networks: what ``[http] callback_hosts`` says.
    """

    def __init__(self, networks: Sequence[str]) -> None:
        self._networks = [ip_network(each, strict=False) for each in networks]

    def has(self, address: str) -> bool:
        """Check an address; one that wraps another counts as that."""
        found: IPv4Address | IPv6Address = ip_address(address.partition("%")[0])
        if any(found in network for network in self._networks):
            return True
        if isinstance(found, IPv6Address):
            inner = _wrapped(found)
            if inner is not None:
                return self.has(str(inner))
            if found not in _PUBLIC:
                return False
        return found.is_global and not found.is_multicast

    def chosen(self, host: str, addresses: Iterable[str]) -> list[str]:
        """Choose those of a host's addresses that calls may go to.

        Raises:
            Refused: calls may go to none of them (``callback_not_allowed``).
        """
        found = [*dict.fromkeys(addresses)]
        allowed = [each for each in found if self.has(each)]
        if not allowed:
            raise Refused(
                f"{host} is at {', '.join(found) or 'no address'}, which calls may not go to",
                "if that is meant, name the network in [http] callback_hosts",
                code="callback_not_allowed",
            )
        return allowed


def _wrapped(address: IPv6Address) -> IPv4Address | None:
    if address in _EMBEDDING:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (None if teredo is None else teredo[1])


class CallbackTargets:
    """Refuses the URLs of subscribers that calls may not go to, when they are given.

    A name may lead elsewhere later: so the address of each connection is looked at, too.

    Args:
        allowed: the addresses that calls may go to.
    """

    def __init__(self, allowed: AllowedAddresses) -> None:
        self._allowed = allowed
        self._lookups = ThreadPoolExecutor(LOOKUPS_AT_ONCE, thread_name_prefix="xbus names of new subscribers")

    async def check(self, url: str) -> None:
        """Let a URL pass whose host has an allowed address, or is not known now.

        Raises:
            Refused: calls may go to none of its addresses (``callback_not_allowed``).
        """
        host = urlsplit(url).hostname or ""
        try:
            async with asyncio.timeout(LOOKUP_SECONDS):
                looking = asyncio.get_running_loop().run_in_executor(self._lookups, _addresses_of, host)
                found = await looking
        except (OSError, UnicodeError, TimeoutError):
            return
        self._allowed.chosen(host, found)

    def close(self) -> None:
        """Look nothing up any more."""
        self._lookups.shutdown(wait=False, cancel_futures=True)


def _addresses_of(host: str) -> list[str]:
    return [str(each[4][0]) for each in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]


def https_parts(url: object) -> SplitResult | None:
    """Read an address of https; None for anything else, and for one with a user name or a password.

    Every reader of such an address would have the password, and programs differ about its host.
    """
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        is_https = parts.scheme == "https" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    return parts if is_https and "@" not in parts.netloc else None
