"""Brings bundles to consumers whose slots are taken: to one that decides alone, or to several that decide together."""

import logging
from collections.abc import Iterable

from xbus.broker.back.dispatch.bundles.vote import BundleVote, Outcome, Shares
from xbus.broker.back.dispatch.bundles.workers import BundleWorkers, first_words
from xbus.broker.back.log import LogReader, SmallEnvelope
from xbus.broker.back.progress import DeliveryLedger
from xbus.broker.back.recipients import BundleResult, BundleStatus, RecipientFailed, RecipientProxy, fault_among_many

log = logging.getLogger(__name__)


class BundleCalls:
    """Makes the calls for a bundle, and notes nothing.

    Args:
        log: has notes about envelopes.
        ledger: where hand-overs are reserved.
        workers: transform what must not reach the consumer as it is.
        trouble_after: a consumer that fails so often in a row has no vote any more.
    """

    def __init__(self, log: LogReader, ledger: DeliveryLedger, workers: BundleWorkers, trouble_after: int) -> None:
        self._log = log
        self._ledger = ledger
        self._workers = workers
        self._trouble_after = trouble_after

    async def carry_out(self, shares: Shares) -> Outcome:
        """Bring each consumer its share of a bundle.

        Returns:
            What became of each envelope. One that can't go in a bundle any more is with nobody.
        """
        if len(shares) > 1:
            return await self._to_several(shares)
        return {consumer: await self._to_one(consumer, list(bundle)) for consumer, bundle in shares.items()}

    async def _to_one(self, consumer: RecipientProxy, bundle: list[SmallEnvelope]) -> list[BundleResult]:
        if not bundle:
            # What waited was left to others while the slot was waited for.
            return []
        if not consumer.abilities.bundles:
            # Another program of the role does, and this one has come since they were queued.
            return [BundleStatus.GOES_ALONE] * len(bundle)
        try:
            await self._ledger.reserve([consumer.role.id], max(small.position for small in bundle))
            made = await self._workers.transform(bundle, consumer.role.service)
            if consumer.role.pause is not None:
                # It was paused while a worker was waited for: nothing has begun with it.
                return [BundleStatus.NOT_BEGUN if isinstance(each, SmallEnvelope) else each for each in made]
            going = [each for each in made if isinstance(each, SmallEnvelope)]
            words = await first_words(self._log, consumer, going)
            results = iter(await consumer.take_envelopes(going, words) if going else ())
            return [next(results) if isinstance(each, SmallEnvelope) else each for each in made]
        except Exception as error:
            # A fault of ours with one of them: each goes alone now, and shows whether it is the one.
            return [_fault(error, [consumer])] * len(bundle)

    async def _to_several(self, shares: Shares) -> Outcome:
        """Have several consumers decide about a bundle that reaches each as it was sent."""
        if not all(consumer.abilities.prepares > 1 for consumer in shares):
            return {consumer: [BundleStatus.GOES_ALONE] * len(bundle) for consumer, bundle in shares.items()}
        highest = max((small.position for bundle in shares.values() for small in bundle), default=0)
        vote = BundleVote(shares, self._log, self._workers, self._trouble_after)
        try:
            await self._ledger.reserve([consumer.role.id for consumer in shares], highest)
            await vote.carry_out()
        except Exception as error:
            vote.fail(_fault(error, shares))
        return vote.results


def _fault(error: Exception, consumers: Iterable[RecipientProxy]) -> RecipientFailed:
    roles = ", ".join(consumer.role.login for consumer in consumers)
    log.error("a bundle died", exc_info=error, extra={"action": "bundle_died", "role": roles})
    return fault_among_many(error)
