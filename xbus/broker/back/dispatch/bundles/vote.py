"""A bundle that several consumers decide about: all prepare its envelopes, then commit those that all of them took."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from xbus.broker.back.dispatch.bundles.workers import BundleWorkers, first_words
from xbus.broker.back.log import LogReader, SmallEnvelope
from xbus.broker.back.recipients import BundleResult, BundleStatus, FailureClass, RecipientFailed, RecipientProxy
from xbus.broker.back.run import together

Shares: TypeAlias = Mapping[RecipientProxy, Sequence[SmallEnvelope]]
"""The envelopes of a bundle that each consumer gets."""

Outcome: TypeAlias = Mapping[RecipientProxy, Sequence[BundleResult]]
"""What became of each of them."""


class BundleVote:
    """One such bundle. Each envelope is decided by itself, as a run decides.

    An envelope that a consumer refuses for good is stopped at all. A consumer that fails, is lost or silent gets the
    envelope alone later, and the others decide without it.

    Args:
        shares: what each consumer gets.
        log: has notes about envelopes.
        workers: say what was corrected since it was queued, and must not go as it is.
        trouble_after: a consumer that fails so often in a row is asked for nothing more.

    Attributes:
        results: for each consumer what became of its share.
    """

    def __init__(self, shares: Shares, log: LogReader, workers: BundleWorkers, trouble_after: int) -> None:
        self._shares = shares
        self._log = log
        self._trouble_after = trouble_after
        self.results: dict[RecipientProxy, list[BundleResult]] = {
            consumer: [
                BundleStatus.GOES_ALONE if workers.is_corrected(small.envelope) else BundleStatus.NOT_BEGUN
                for small in bundle
            ]
            for consumer, bundle in shares.items()
        }

    async def carry_out(self) -> None:
        """Prepare and decide. However this ends, each consumer is told to forget what it has not committed."""
        # One that was paused meanwhile has no vote: nothing has begun with it.
        voters = [consumer for consumer in self._shares if consumer.role.pause is None]
        try:
            await together(*(self._prepare(consumer) for consumer in voters))
            self._stop_refused()
            await together(*(self._commit(consumer) for consumer in self._shares))
        finally:
            self._stop_prepared()

    def fail(self, fault: RecipientFailed) -> None:
        """Have all that nothing came of failed."""
        for consumer in self._shares:
            for place in self._places(consumer, BundleStatus.NOT_BEGUN):
                self.results[consumer][place] = fault

    async def _prepare(self, consumer: RecipientProxy) -> None:
        """Ask a consumer for its votes. Behind a failure it begins none, and is asked again, as the others wait."""
        in_a_row = 0
        while open_places := self._places(consumer, BundleStatus.NOT_BEGUN):
            bundle = [self._shares[consumer][place] for place in open_places]
            words = await first_words(self._log, consumer, bundle)
            votes = await consumer.prepare_envelopes(bundle, words)
            self._note(consumer, open_places, votes)
            in_a_row = _failures_in_a_row(in_a_row, votes)
            if in_a_row >= self._trouble_after or all(vote is BundleStatus.NOT_BEGUN for vote in votes):
                return

    def _stop_refused(self) -> None:
        refusals: dict[int, RecipientFailed] = {}
        for consumer, bundle in self._shares.items():
            for small, vote in zip(bundle, self.results[consumer], strict=True):
                if isinstance(vote, RecipientFailed) and vote.failure_class is FailureClass.PERMANENT:
                    refusals.setdefault(small.position, vote)
        for consumer, bundle in self._shares.items():
            for place in self._places(consumer, BundleStatus.PREPARED):
                if (refusal := refusals.get(bundle[place].position)) is not None:
                    self._stop(consumer, place, refusal)

    async def _commit(self, consumer: RecipientProxy) -> None:
        places = self._places(consumer, BundleStatus.PREPARED)
        if places:
            results = await consumer.commit_envelopes([self._shares[consumer][place] for place in places])
            self._note(consumer, places, _failed_together(results))

    def _stop_prepared(self) -> None:
        for consumer in self._shares:
            for place in self._places(consumer, BundleStatus.PREPARED):
                self._stop(consumer, place, BundleStatus.NOT_BEGUN)

    def _stop(self, consumer: RecipientProxy, place: int, result: BundleResult) -> None:
        consumer.stop_envelope_soon(self._shares[consumer][place].envelope_id)
        self.results[consumer][place] = result

    def _places(self, consumer: RecipientProxy, status: BundleStatus) -> list[int]:
        return [place for place, result in enumerate(self.results[consumer]) if result is status]

    def _note(self, consumer: RecipientProxy, places: Iterable[int], results: Iterable[BundleResult]) -> None:
        for place, result in zip(places, results, strict=True):
            self.results[consumer][place] = result


def _failures_in_a_row(before: int, votes: Iterable[BundleResult]) -> int:
    for vote in votes:
        if isinstance(vote, RecipientFailed) and vote.failure_class is FailureClass.TRANSIENT:
            before += 1
        elif vote is not BundleStatus.NOT_BEGUN:
            before = 0
    return before


def _failed_together(results: Iterable[BundleResult]) -> list[BundleResult]:
    """Let what was not committed behind a failed commit have failed with it: it had been begun."""
    found: list[BundleResult] = []
    failure: BundleResult | None = None
    for result in results:
        if isinstance(result, RecipientFailed):
            failure = result
        found.append(failure if result is BundleStatus.NOT_BEGUN and failure is not None else result)
    return found
