"""Reads the pages of the log for a lane, one ahead of the lane, so that nobody waits for the database meanwhile."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from types import TracebackType
from typing import NamedTuple, Protocol

from xbus.broker.back.log import LogReader, SmallEnvelope
from xbus.broker.back.progress import Lane
from xbus.broker.back.recipients import ServedRole
from xbus.broker.journal.log.reading import LogEnvelope


class BundleRules(Protocol):
    """Says who may get bundles."""

    def may_bundle(self, envelope: LogEnvelope, recipient: ServedRole) -> bool:
        """Check whether a recipient may get envelopes of the same graphs as this one together, if they are small."""


class LanePage(NamedTuple):
    """Some of the log, as a lane needs it.

    Args:
        envelopes: in position order.
        upto: nobody of the lane is owed anything else up to this position.
        services: the consumer services to which graphs lead, by the graphs of an envelope.
        small: the small envelopes that may go in a bundle, by position.
    """

    envelopes: Sequence[LogEnvelope]
    upto: int
    services: Mapping[Sequence[int], Collection[str]]
    small: Mapping[int, SmallEnvelope]


class PageReader:
    """Reads the next page while the lane hands out the one before; a page is bounded in bytes.

    A page that was read ahead may be old when it is handed out. So is what waits in queues: whoever hands it out looks
    at cursors, corrections and recipients as they are then.

    Args:
        log: what is read.
        rules: say of which envelopes the items are read too.
        lane: for which it is read. It stays in its order: nobody joins it while it reads.
    """

    def __init__(self, log: LogReader, rules: BundleRules, lane: Lane) -> None:
        self._log = log
        self._rules = rules
        self._lane = lane
        self._ahead: asyncio.Task[LanePage] | None = None

    async def __aenter__(self) -> "PageReader":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._ahead is not None:
            self._ahead.cancel()
            await asyncio.wait([self._ahead])

    async def next(self) -> LanePage:
        """Give the page behind the lane's position, and begin to read the one behind it if the log goes on there."""
        ahead, self._ahead = self._ahead, None
        page = await (self._read(self._lane.position) if ahead is None else ahead)
        if page.upto < self._log.head:
            self._ahead = asyncio.create_task(self._read(page.upto), name=f"page behind {page.upto}")
        return page

    async def _read(self, after: int) -> LanePage:
        page = await self._log.page(after, list(self._lane.services))
        services = await self._services(page.envelopes)
        small = await self._log.small(self._travelling_small(page.envelopes, services))
        return LanePage(page.envelopes, page.upto, services, small)

    async def _services(self, envelopes: Sequence[LogEnvelope]) -> Mapping[Sequence[int], Collection[str]]:
        found: dict[Sequence[int], Collection[str]] = {}
        for envelope in envelopes:
            if (graph_ids := envelope.graph_ids) not in found:
                graphs = await self._log.graphs(envelope)
                found[graph_ids] = dict.fromkeys(chain.from_iterable(graph.consumer_services for graph in graphs))
        return found

    def _travelling_small(
        self, envelopes: Sequence[LogEnvelope], services: Mapping[Sequence[int], Collection[str]]
    ) -> list[LogEnvelope]:
        """Those whose graphs let them go in a bundle."""
        found: list[LogEnvelope] = []
        may_travel: dict[Sequence[int], bool] = {}
        for envelope in envelopes:
            if (graph_ids := envelope.graph_ids) not in may_travel:
                served = self._lane.of_services(services[graph_ids])
                may_travel[graph_ids] = any(self._rules.may_bundle(envelope, each) for each in served)
            if may_travel[graph_ids]:
                found.append(envelope)
        return found
