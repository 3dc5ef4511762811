"""Takes bundles through the workers on their way to a consumer."""

from collections.abc import Sequence
from itertools import groupby

from xbus.broker.back.log import NOTHING_SAID, FirstWords, LogReader, SmallEnvelope
from xbus.broker.back.progress import RunResults
from xbus.broker.back.recipients import (
    Absent,
    AnyOf,
    BundleResult,
    BundleStatus,
    RecipientProxy,
    Slots,
    Transformed,
)
from xbus.broker.back.run import BackRunContext
from xbus.broker.journal.log.reading import LogEnvelope


class BundleWorkers:
    """Has workers transform bundles.

    It serves workers that keep nothing of an envelope, on a way that does not branch. What fails here goes alone, in a
    run, which tells whose fault it is.

    Args:
        log: where graphs are known.
        slots: which workers are there, and free.
        context: where they are given back.
        results: told of the workers that did their work.
    """

    def __init__(
        self, log: LogReader, slots: Slots[RecipientProxy], context: BackRunContext, results: RunResults
    ) -> None:
        self._log = log
        self._slots = slots
        self._context = context
        self._results = results

    def way(self, envelope: LogEnvelope, service: str) -> tuple[str, ...] | None:
        """The worker services that all events of an envelope pass, in order, before they reach a consumer service.

        Returns:
            None where there is no such way, or where nobody serves it who takes bundles.
        """
        ways = {self._way_of(graph_id, service) for graph_id in envelope.graph_ids}
        way = ways.pop() if len(ways) == 1 else None
        if way is None or not all(self._slots.is_present(_takes_bundles(worker)) for worker in way):
            return None
        return way

    def _way_of(self, graph_id: int, service: str) -> tuple[str, ...] | None:
        graph = self._log.known_graph(graph_id)
        return None if graph is None else graph.workers_before(service)

    def is_corrected(self, envelope: LogEnvelope) -> bool:
        """Check whether an envelope goes otherwise than it was sent, which only a run can do."""
        return self._log.is_corrected(envelope)

    async def transform(self, bundle: Sequence[SmallEnvelope], service: str) -> list[SmallEnvelope | BundleStatus]:
        """Bring a bundle to the workers before a consumer service.

        Returns:
            For each envelope what the last worker made of it, or why it did not get so far.
        """
        made: list[SmallEnvelope | BundleStatus] = []
        ways: dict[Sequence[int], tuple[str, ...] | None] = {}

        def way_now(small: SmallEnvelope) -> tuple[str, ...] | None:
            graph_ids = small.envelope.graph_ids
            if graph_ids not in ways:
                ways[graph_ids] = self.way(small.envelope, service)
            return None if self.is_corrected(small.envelope) else ways[graph_ids]

        for way, group in groupby(bundle, key=way_now):
            made += await self._along(way, list(group))
        return made

    async def _along(
        self, way: tuple[str, ...] | None, bundle: Sequence[SmallEnvelope]
    ) -> list[SmallEnvelope | BundleStatus]:
        if way is None:
            return [BundleStatus.GOES_ALONE] * len(bundle)
        made: list[SmallEnvelope | BundleStatus] = list(bundle)
        for service in way:
            going = [each for each in made if isinstance(each, SmallEnvelope)]
            if going:
                by_worker = iter(await self._by_worker(service, going))
                made = [next(by_worker) if isinstance(each, SmallEnvelope) else each for each in made]
        return made

    async def _by_worker(self, service: str, bundle: Sequence[SmallEnvelope]) -> list[SmallEnvelope | BundleStatus]:
        try:
            (worker,) = await self._slots.take([_takes_bundles(service)])
        except Absent:
            return [BundleStatus.GOES_ALONE] * len(bundle)
        worker.readiness.begin_work()
        try:
            # A run for another role may have one open there until it commits: brought twice at once it would be mixed.
            taken = worker.bringing.keys() & {small.envelope_id for small in bundle}
            going = [small for small in bundle if small.envelope_id not in taken]
            words = await first_words(self._log, worker, going)
            results = await worker.take_envelopes(going, words) if going else []
        finally:
            self._context.release(worker)
        if any(isinstance(result, Transformed) for result in results):
            self._results.worked(worker)
        made = iter([_made_of(small, result) for small, result in zip(going, results, strict=True)])
        return [BundleStatus.GOES_ALONE if small.envelope_id in taken else next(made) for small in bundle]


async def first_words(log: LogReader, recipient: RecipientProxy, bundle: Sequence[SmallEnvelope]) -> list[FirstWords]:
    """Collect what may be told of the envelopes of a bundle; nothing for a recipient that wants to be told nothing."""
    if not recipient.abilities.notes and not recipient.abilities.headers:
        return [NOTHING_SAID] * len(bundle)
    notes = await log.notes([small.envelope for small in bundle])
    return [FirstWords(note, small.envelope.head.headers) for small, note in zip(bundle, notes, strict=True)]


def _made_of(small: SmallEnvelope, result: BundleResult) -> SmallEnvelope | BundleStatus:
    match result:
        case Transformed() if not any(batch.event_type for batches in result.batches for batch in batches):
            return small.with_items(result.batches)
        case BundleStatus.NOT_BEGUN:
            return BundleStatus.NOT_BEGUN
    return BundleStatus.GOES_ALONE


def _takes_bundles(service: str) -> AnyOf:
    return AnyOf(service, lambda worker: worker.abilities.bundles and worker.abilities.bulk_items is None)
