"""Reads the pages of the log for a lane, one page ahead, so that nobody waits for the database."""

import asyncio
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from types import TracebackType
from typing import NamedTuple, Protocol, TypeAlias

from xbus.broker.back.log import LogReader, SmallEnvelope
from xbus.broker.back.progress import Lane
from xbus.broker.back.recipients import ServedRole
from xbus.broker.journal.log.reading import LogEnvelope


class BundleRules(Protocol):
    """Says who may get bundles."""

    def may_bundle(self, envelope: LogEnvelope, recipients: Sequence[ServedRole]) -> bool:
        """Check whether a recipient of an envelope may get small ones of the same graphs together."""


Way: TypeAlias = tuple[tuple[int, ...], frozenset[int] | None]
"""The graphs that an envelope takes, and the roles that it is for: envelopes of one way have the same recipients."""


class LanePage(NamedTuple):
    """Some of the log, as a lane needs it.

    Args:
        envelopes: in position order.
        upto: nobody of the lane is owed anything else up to this position.
        services: the consumer services to which graphs lead, by the graphs of an envelope.
        ways: of the envelopes.
        small: each of the envelopes with its items; None for one that goes in no bundle.
        alone: the places of those that go in no bundle.
    """

    envelopes: Sequence[LogEnvelope]
    upto: int
    services: Mapping[Sequence[int], Collection[str]]
    ways: Sequence[Way]
    small: Sequence[SmallEnvelope | None]
    alone: Sequence[int]

    def small_from(self, place: int) -> list[SmallEnvelope]:
        """Give the small envelopes from a place on, up to the first that goes in no bundle."""
        found = bisect_left(self.alone, place)
        end = self.alone[found] if found < len(self.alone) else len(self.small)
        return [small for small in self.small[place:end] if small is not None]


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
        """Give the page behind the lane's position, and begin to read the next one if there is one."""
        ahead, self._ahead = self._ahead, None
        page = await (self._read(self._lane.position) if ahead is None else ahead)
        if page.upto < self._log.head:
            self._ahead = asyncio.create_task(self._read(page.upto), name=f"page behind {page.upto}")
        return page

    async def _read(self, after: int) -> LanePage:
        page = await self._log.page(after, list(self._lane.services))
        services = await self._services(page.envelopes)
        if unknown := {envelope.emitter_id for envelope in page.envelopes} - self._log.known_logins.keys():
            # Whoever hands envelopes over waits for nothing.
            await self._log.emitter_logins(unknown)
        travel = self._travelling(page.envelopes, services)
        if page.small is None:
            read = await self._log.small([envelope for envelope in page.envelopes if envelope.graph_ids in travel])
            small = [read.get(envelope.position) for envelope in page.envelopes]
        else:
            pairs = zip(page.envelopes, page.small, strict=True)
            small = [each if envelope.graph_ids in travel else None for envelope, each in pairs]
        alone = [place for place, each in enumerate(small) if each is None]
        ways = [(envelope.graph_ids, envelope.only_roles) for envelope in page.envelopes]
        return LanePage(page.envelopes, page.upto, services, ways, small, alone)

    async def _services(self, envelopes: Sequence[LogEnvelope]) -> Mapping[Sequence[int], Collection[str]]:
        found: dict[Sequence[int], Collection[str]] = {}
        for graph_ids, envelope in _one_of_each(envelopes).items():
            graphs = await self._log.graphs(envelope)
            found[graph_ids] = dict.fromkeys(chain.from_iterable(graph.consumer_services for graph in graphs))
        return found

    def _travelling(
        self, envelopes: Sequence[LogEnvelope], services: Mapping[Sequence[int], Collection[str]]
    ) -> Collection[Sequence[int]]:
        """The graphs whose small envelopes may go in a bundle."""
        return {
            graph_ids
            for graph_ids, envelope in _one_of_each(envelopes).items()
            if self._rules.may_bundle(envelope, self._lane.of_services(services[graph_ids]))
        }


def _one_of_each(envelopes: Sequence[LogEnvelope]) -> Mapping[tuple[int, ...], LogEnvelope]:
    """Give an envelope of each graphs."""
    return {envelope.graph_ids: envelope for envelope in envelopes}
