"""The calls for envelopes that need more than one of each consumer: by workers, with traces, and votes that differ."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import compress, groupby
from operator import itemgetter
from typing import TypeAlias
from uuid import UUID

from xbus import tracing
from xbus.broker.back.dispatch.parties import WorkerCall
from xbus.broker.back.log import LogReader, SmallEnvelope
from xbus.broker.back.progress import DeliveryLedger, RunResults
from xbus.broker.back.recipients import (
    Absent,
    AnyOf,
    BundleResult,
    BundleStatus,
    FailureClass,
    RecipientFailed,
    RecipientProxy,
    ServedRole,
    Slots,
    Transformed,
    fault_among_many,
)
from xbus.broker.back.run import BackRunContext, together
from xbus.clock import Clock

log = logging.getLogger(__name__)

Shares: TypeAlias = Mapping[RecipientProxy, Sequence[SmallEnvelope]]
"""The envelopes of a bundle that each consumer gets."""

Outcome: TypeAlias = Mapping[RecipientProxy, Sequence[BundleResult]]
"""What became of each of them."""


class BundleWorkers:
    """Has workers transform bundles, once for all consumers that get them, and ahead of these.

    It serves workers that keep nothing of an envelope, on a way that does not branch before a consumer. What fails here
    goes alone, in a run, which tells whose fault it is.

    Args:
        log: where graphs are known.
        ledger: where hand-overs are reserved.
        slots: which workers are there, and free.
        context: where they are given back.
        results: told of the workers that did their work.
        clock: says how long calls take.
    """

    def __init__(
        self,
        log: LogReader,
        ledger: DeliveryLedger,
        slots: Slots[RecipientProxy],
        context: BackRunContext,
        results: RunResults,
        clock: Clock,
    ) -> None:
        self._log = log
        self._ledger = ledger
        self._slots = slots
        self._context = context
        self._results = results
        self._clock = clock
        self._turns: set[asyncio.Lock] = set()
        """The turns of the envelopes that are at workers in bundles."""

    def way(self, graph_ids: Sequence[int], service: str) -> tuple[str, ...] | None:
        """The worker services that all events of some graphs pass, in order, before they reach a consumer service.

        Returns:
            None where there is no such way, or where nobody serves it who takes bundles.
        """
        ways = {self._way_of(graph_id, service) for graph_id in graph_ids}
        way = ways.pop() if len(ways) == 1 else None
        if way is None or not all(self._slots.is_present(_takes_bundles(worker)) for worker in way):
            return None
        return way

    def _way_of(self, graph_id: int, service: str) -> tuple[str, ...] | None:
        graph = self._log.known_graphs.get(graph_id)
        return None if graph is None else graph.workers_before(service)

    async def carry_out(self, call: WorkerCall, go_on: Callable[[], None]) -> None:
        """Have the envelopes of a call transformed, in the order of the log.

        Args:
            go_on: called each time that some of them may go to the consumers of their party.
        """
        party = call.party
        try:
            await self._ledger.reserve([role.id for role in party.roles], call.bundle[-1].position)
            while call in party.at_workers and BundleStatus.NOT_BEGUN in call.made:
                began = self._clock.monotonic()
                places = [place for place, made in enumerate(call.made) if made is BundleStatus.NOT_BEGUN]
                made = await self._transform([call.bundle[place] for place in places], party.recipients)
                for place, each in zip(places, made, strict=True):
                    call.made[place] = each
                if made.count(BundleStatus.NOT_BEGUN) == len(made):
                    # A worker that begins nothing is not asked for ever.
                    call.made[places[0]] = BundleStatus.GOES_ALONE
                begun, has_failed = len(made) - made.count(BundleStatus.NOT_BEGUN), BundleStatus.GOES_ALONE in made
                party.worker_size.learn(begun, self._clock.monotonic() - began, has_failed=has_failed)
                party.take_made()
                go_on()
        finally:
            party.note_change()

    async def _transform(
        self, bundle: Sequence[SmallEnvelope], recipients: Sequence[ServedRole]
    ) -> Sequence[SmallEnvelope | BundleStatus]:
        """Bring a bundle to the workers before some consumers, which are the same for all of these.

        Returns:
            For each envelope what the last worker made of it, or why it did not get so far.
        """
        logins = ", ".join([recipient.role.login for recipient in recipients])
        try:
            with tracing.following("transform", _traced(bundle), {"xbus.roles": logins}):
                return await self._by_ways(bundle, recipients[0].role.service)
        except Exception as error:
            # A fault of ours with one of them: each goes alone now, and shows whether it is the one.
            _say_died(error, logins)
            return [BundleStatus.GOES_ALONE] * len(bundle)

    async def _by_ways(self, bundle: Sequence[SmallEnvelope], service: str) -> Sequence[SmallEnvelope | BundleStatus]:
        found = {small.envelope.graph_ids for small in bundle}
        ways = {graph_ids: self.way(graph_ids, service) for graph_ids in found}
        of_each = [ways[small.envelope.graph_ids] for small in bundle]
        if self._log.has_corrections:
            pairs = zip(of_each, bundle, strict=True)
            of_each = [None if self._log.is_corrected(small.envelope) else way for way, small in pairs]
        made: list[SmallEnvelope | BundleStatus] = []
        for way, group in groupby(zip(of_each, bundle, strict=True), key=itemgetter(0)):
            made += await self._along(way, [small for _, small in group])
        return made

    async def _along(
        self, way: tuple[str, ...] | None, bundle: Sequence[SmallEnvelope]
    ) -> list[SmallEnvelope | BundleStatus]:
        if not way:
            return [BundleStatus.GOES_ALONE] * len(bundle) if way is None else list(bundle)
        turns = [self._context.turn(small.envelope.id) for small in bundle]
        # Where a run for another role is under way, that of this role follows it. Another bundle is waited for.
        are_free = [turn in self._turns or not turn.locked() for turn in turns]
        pairs = zip(bundle, are_free, strict=True)
        made: list[SmallEnvelope | BundleStatus] = [
            small if is_free else BundleStatus.GOES_ALONE for small, is_free in pairs
        ]
        async with AsyncExitStack() as held:
            for turn in compress(turns, are_free):
                await held.enter_async_context(turn)
                self._turns.add(turn)
                held.callback(self._turns.discard, turn)
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
            # One may be open there for an early reply: brought twice at once it would be mixed.
            taken = worker.bringing.keys() & {small.envelope.id for small in bundle}
            going = [small for small in bundle if small.envelope.id not in taken]
            results = await worker.take_envelopes(going, await emitters_of(self._log, going)) if going else []
        finally:
            self._context.release(worker)
        if any(isinstance(result, Transformed) for result in results):
            self._results.worked(worker)
        made = iter([_made_of(small, result) for small, result in zip(going, results, strict=True)])
        return [BundleStatus.GOES_ALONE if small.envelope.id in taken else next(made) for small in bundle]


class BundleVote:
    """One such bundle. Each envelope is decided by itself, as a run decides.

    An envelope that a consumer with a vote refuses for good is stopped at all of these. A consumer that fails, is lost
    or silent gets the envelope alone later, and the others decide without it.

    Args:
        shares: what each consumer gets.
        log: knows the emitters, and what was corrected since it was queued and must not go as it is.
        trouble_after: a consumer that fails so often in a row is asked for nothing more.
        votes: the first ones of all consumers, where these were asked already.

    Attributes:
        results: for each consumer what became of its share.
    """

    def __init__(self, shares: Shares, log: LogReader, trouble_after: int, votes: Outcome | None = None) -> None:
        self._shares = shares
        self._log = log
        self._trouble_after = trouble_after
        self._votes = votes or {}
        self.results: dict[RecipientProxy, list[BundleResult]] = {
            consumer: list(self._votes[consumer])
            if consumer in self._votes
            else [
                BundleStatus.GOES_ALONE if log.is_corrected(small.envelope) else BundleStatus.NOT_BEGUN
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
        votes = self._votes.get(consumer, ())
        in_a_row = _failures_in_a_row(0, votes)
        while open_places := self._places(consumer, BundleStatus.NOT_BEGUN):
            has_begun_none = bool(votes) and all(vote is BundleStatus.NOT_BEGUN for vote in votes)
            if in_a_row >= self._trouble_after or has_begun_none:
                return
            bundle = [self._shares[consumer][place] for place in open_places]
            votes = await consumer.prepare_envelopes(bundle, await emitters_of(self._log, bundle))
            self._note(consumer, open_places, votes)
            in_a_row = _failures_in_a_row(in_a_row, votes)

    def _stop_refused(self) -> None:
        refusals: dict[int, RecipientFailed] = {}
        # What a consumer refuses whose failures are its own is no affair of the others.
        voting = {consumer: bundle for consumer, bundle in self._shares.items() if not consumer.role.own}
        for consumer, bundle in voting.items():
            for small, vote in zip(bundle, self.results[consumer], strict=True):
                if isinstance(vote, RecipientFailed) and vote.failure_class is FailureClass.PERMANENT:
                    refusals.setdefault(small.position, vote)
        for consumer, bundle in voting.items():
            for place in self._places(consumer, BundleStatus.PREPARED):
                if (refusal := refusals.get(bundle[place].position)) is not None:
                    self._stop(consumer, place, refusal)

    async def _commit(self, consumer: RecipientProxy) -> None:
        places = self._places(consumer, BundleStatus.PREPARED)
        if places:
            results = await consumer.commit_envelopes([self._shares[consumer][place] for place in places])
            self._note(consumer, places, failed_together(results))

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


class BundleCalls:
    """Makes the calls for a bundle, and notes nothing.

    Args:
        log: has notes about envelopes.
        workers: say which way leads to a consumer.
        trouble_after: a consumer that fails so often in a row has no vote any more.
    """

    def __init__(self, log: LogReader, workers: BundleWorkers, trouble_after: int) -> None:
        self._log = log
        self._workers = workers
        self._trouble_after = trouble_after

    def parties(
        self, graph_ids: Sequence[int], types: Collection[str], recipients: Collection[ServedRole]
    ) -> list[list[ServedRole]]:
        """Give those that get small envelopes of some graphs together, each with those that decide about it together.

        Those that have a vote decide together, or in a run if one of them can't. Nobody may wait for a reply. Several
        consumers behind workers go together too, whether they have a vote or not, so that their workers work once for
        all of them.

        Args:
            types: the names of the types of their events.
        """
        ways = {each: self._workers.way(graph_ids, each.role.service) for each in recipients}
        takes = {
            each
            for each, way in ways.items()
            if way is not None and each.abilities.bundles and each.abilities.immediate_reply.isdisjoint(types)
        }
        voters = [each for each in recipients if not each.role.own]
        sharing = [each for each in recipients if each.role.own and ways[each] != ()]
        parties = [[each] for each in recipients if each.role.own and each not in sharing]
        if any(ways[each] != () for each in voters):
            parties.append([*voters, *sharing])
        else:
            parties += [voters, sharing]
        return [party for party in parties if party and takes.issuperset(party) and _agree(party, ways)]

    def pass_workers(self, graph_ids: Sequence[int], recipient: ServedRole) -> bool:
        """Check whether envelopes of some graphs pass workers before they reach a consumer, and those with it."""
        return self._workers.way(graph_ids, recipient.role.service) != ()

    async def carry_out(self, consumers: Iterable[RecipientProxy], bundle: Sequence[SmallEnvelope]) -> Outcome:
        """Bring consumers a bundle; hand-overs are reserved.

        Returns:
            What became of each envelope. One that can't go in a bundle any more is with nobody.
        """
        shares = dict.fromkeys(consumers, bundle)
        logins = ", ".join([consumer.role.login for consumer in shares])
        with tracing.following("deliver", _traced(bundle), {"xbus.roles": logins}) as spans:
            outcome = await self._carry_out(shares)
            for span_id, span in spans.items():
                span.end("; ".join(str(failure) for failure in _failures_at(span_id, shares, outcome)))
        return outcome

    async def _carry_out(self, shares: Shares) -> Outcome:
        if len(shares) > 1:
            return await self.carry_on(shares, None)
        return {consumer: await self._to_one(consumer, bundle) for consumer, bundle in shares.items()}

    async def _to_one(self, consumer: RecipientProxy, bundle: Sequence[SmallEnvelope]) -> list[BundleResult]:
        if consumer.role.pause is not None:
            # It was paused meanwhile: nothing has begun with it.
            return [BundleStatus.NOT_BEGUN] * len(bundle)
        try:
            return await consumer.take_envelopes(bundle, await emitters_of(self._log, bundle))
        except Exception as error:
            # A fault of ours with one of them: each goes alone now, and shows whether it is the one.
            return [_fault(error, [consumer])] * len(bundle)

    async def carry_on(self, shares: Shares, votes: Outcome | None) -> Outcome:
        """Have several consumers decide about a bundle; hand-overs are reserved.

        Args:
            votes: the first ones of all, where they were asked already.
        """
        vote = BundleVote(shares, self._log, self._trouble_after, votes)
        try:
            await vote.carry_out()
        except Exception as error:
            vote.fail(_fault(error, shares))
        return vote.results


async def emitters_of(log: LogReader, bundle: Sequence[SmallEnvelope]) -> Mapping[int, str | None]:
    """Give the logins of those that sent a bundle, and of others."""
    return await log.emitter_logins({small.envelope.emitter_id for small in bundle})


def _agree(party: Sequence[ServedRole], ways: Mapping[ServedRole, tuple[str, ...] | None]) -> bool:
    """Check whether all of a party can decide together, and get what the same workers make."""
    if len(party) == 1:
        return True
    return len({ways[each] for each in party}) == 1 and all(each.abilities.prepares for each in party)


def _fault(error: Exception, consumers: Iterable[RecipientProxy]) -> RecipientFailed:
    _say_died(error, ", ".join([consumer.role.login for consumer in consumers]))
    return fault_among_many(error)


def _say_died(error: Exception, logins: str) -> None:
    log.error("a bundle died", exc_info=error, extra={"action": "bundle_died", "role": logins})


def _traced(bundle: Iterable[SmallEnvelope]) -> Iterable[tuple[UUID, bytes | None]]:
    """Give the ids of the envelopes that may be traced, with their headers."""
    heads = [(small, small.envelope.head.headers) for small in bundle]
    return [(small.envelope_id, each) for small, each in heads if each is not None and tracing.IN_BYTES in each]


def _failures_at(envelope_id: object, shares: Shares, outcome: Outcome) -> Iterable[RecipientFailed]:
    for recipient, bundle in shares.items():
        for small, result in zip(bundle, outcome[recipient], strict=True):
            if small.envelope_id == envelope_id and isinstance(result, RecipientFailed):
                yield result


def _failures_in_a_row(before: int, votes: Iterable[BundleResult]) -> int:
    for vote in votes:
        if isinstance(vote, RecipientFailed) and vote.failure_class is FailureClass.TRANSIENT:
            before += 1
        elif vote is not BundleStatus.NOT_BEGUN:
            before = 0
    return before


def failed_together(results: Iterable[BundleResult]) -> list[BundleResult]:
    """Let what was not committed behind a failed commit have failed with it: it had been begun."""
    found: list[BundleResult] = []
    failure: BundleResult | None = None
    for result in results:
        if isinstance(result, RecipientFailed):
            failure = result
        found.append(failure if result is BundleStatus.NOT_BEGUN and failure is not None else result)
    return found


def _made_of(small: SmallEnvelope, result: BundleResult) -> SmallEnvelope | BundleStatus:
    match result:
        case Transformed() if not any(batch.event_type for batches in result.batches for batch in batches):
            return small.with_items(result.batches)
        case BundleStatus.NOT_BEGUN:
            return BundleStatus.NOT_BEGUN
    return BundleStatus.GOES_ALONE


def _takes_bundles(service: str) -> AnyOf:
    return AnyOf(service, lambda worker: worker.abilities.bundles and worker.abilities.bulk_items is None)
