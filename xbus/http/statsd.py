"""Sends metrics to a server of statsd by UDP, with the tags of DogStatsD, which Datadog's agent and others read.

The source of the format is https://docs.datadoghq.com/developers/dogstatsd/datagram_shell. Nothing waits for the
server, and nothing notices whether it is there.
"""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

from xbus.config import host_and_port
from xbus.http.counters import PREFIX, Gauge, RoutemasterCounters, Tags

log = logging.getLogger(__name__)

REPORT_SECONDS = 10.0
"""Seconds between reports, as Routemaster has them."""

MOST_DATAGRAM_BYTES = 1_400
"""Bytes of a datagram, which fits into a packet of Ethernet."""

_SPECIAL = re.compile(r"[^\w./-]")


class StatsdReports:
    """Reports what was counted since the last report, and gauges.

    Args:
        address: of the server, host and port.
        counters: what is counted.
        look: gives the gauges of this moment.
        seconds: between reports.
    """

    def __init__(
        self,
        address: str,
        counters: RoutemasterCounters,
        look: Callable[[], Awaitable[Sequence[Gauge]]],
        seconds: float = REPORT_SECONDS,
    ) -> None:
        self._address = host_and_port(address)
        self._counters = counters
        self._look = look
        self._seconds = seconds
        self._told: Counter[tuple[str, Tags]] = Counter()

    async def run(self) -> None:
        """Report for ever, and once more when it is cancelled."""
        try:
            while True:
                await asyncio.sleep(self._seconds)
                try:
                    await self._report(await self._look())
                except Exception:
                    # Nobody's request may end for a report.
                    log.exception("a report to statsd failed", extra={"action": "statsd_fault"})
        finally:
            await self._report(())

    async def _report(self, found: Iterable[Gauge]) -> None:
        counts = self._counters.counts.copy()
        grown = counts - self._told
        lines = [
            *(_line(each.name, each.value, "g", each.tags) for each in found),
            *(_line(name, number, "c", _with_queue(tags)) for (name, tags), number in sorted(grown.items())),
        ]
        try:
            loop = asyncio.get_running_loop()
            transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=self._address)
        except (OSError, UnicodeError) as error:
            # What was not told comes with the next report.
            log.warning("no metrics to statsd: %s", error, extra={"action": "statsd_unreachable"})
            return
        for datagram in datagrams(lines):
            transport.sendto(datagram)
        transport.close()
        self._told = counts


def datagrams(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Join lines to datagrams that fit into a packet."""
    kept: list[bytes] = []
    size = 0
    for line in lines:
        if kept and size + len(line) + 1 > MOST_DATAGRAM_BYTES:
            yield b"\n".join(kept)
            kept, size = [], 0
        kept.append(line)
        size += len(line) + 1
    if kept:
        yield b"\n".join(kept)


def _with_queue(tags: Tags) -> Tags:
    """Tag a subscriber as Routemaster's document and as its server do, which calls it the queue."""
    return tags + tuple(("queue", value) for name, value in tags if name == "subscriber")


def _line(name: str, value: float, kind: str, tags: Tags) -> bytes:
    told = ",".join(f"{name}:{_SPECIAL.sub('_', value)}" for name, value in tags)
    return f"{PREFIX}.{name}:{value:.15g}|{kind}|#{told}".encode()
