"""Carries a bundle out: one call brings several small envelopes to a consumer, and each has its own result."""

import logging
from collections.abc import Iterable, Mapping, Sequence

from xbus import tracing
from xbus.broker.back.dispatch.bundles.workers import BundleWorkers, accompany
from xbus.broker.back.log import LogReader, SmallEnvelope
from xbus.broker.back.progress import ConsumerRoles, DeliveryLedger, RunResults, Serving, transitions
from xbus.broker.back.recipients import (
    Absent,
    BundleResult,
    BundleStatus,
    RecipientFailed,
    RecipientProxy,
    RoleEvents,
    fault_among_many,
    own_fault,
)
from xbus.broker.back.run import BackRunContext
from xbus.broker.journal.writes import IsolatedItem

log = logging.getLogger(__name__)


class BundleRun:
    """Brings bundles to consumers whose slots are taken, and sees to it that what comes of it is noted.

    Args:
        log: where graphs are known.
        ledger: where hand-overs are reserved.
        workers: transform what must not reach the consumer as it is.
        context: where slots are given back.
        results: decides what becomes of what went wrong.
        roles: what is being brought to whom.
        events: told of a role for which an envelope was set aside that is tried again.
    """

    def __init__(
        self,
        log: LogReader,
        ledger: DeliveryLedger,
        workers: BundleWorkers,
        context: BackRunContext,
        results: RunResults,
        roles: ConsumerRoles,
        events: RoleEvents,
    ) -> None:
        self._log = log
        self._ledger = ledger
        self._workers = workers
        self._context = context
        self._results = results
        self._roles = roles
        self._events = events

    async def carry_out(self, recipient: RecipientProxy, bundle: Sequence[SmallEnvelope]) -> Sequence[BundleResult]:
        """Bring a bundle to a consumer, and note what was committed.

        Returns:
            What became of each envelope; of those that failed ``note_failed`` takes notice, and of those that were not
            begun nothing is noted.
        """
        traced = [(small.envelope_id, small.envelope.headers) for small in bundle if small.envelope.headers is not None]
        with tracing.following("deliver", traced, {"xbus.roles": recipient.role.login}) as spans:
            results = await self._bring(recipient, bundle)
            for small, result in zip(bundle, results, strict=True) if spans else ():
                if small.envelope_id in spans:
                    spans[small.envelope_id].end(str(result) if isinstance(result, RecipientFailed) else "")
        self._context.release_slot(recipient)
        committed = _with_status(BundleStatus.COMMITTED, bundle, results)
        self._results.settled_bundle([small.envelope for small in committed], recipient)
        self._end(recipient, committed)
        self.set_aside(recipient, _with_status(BundleStatus.GOES_ALONE, bundle, results))
        return results

    def set_aside(self, recipient: Serving, bundle: Sequence[SmallEnvelope]) -> None:
        """Have envelopes that were not handed over brought one by one, each read anew."""
        if not bundle:
            return
        for small in bundle:
            self._ledger.move(None, self._ledger.before_its_turn(small.envelope, recipient.role.id))
        self._end(recipient, bundle)
        self._events.rows_due.publish(recipient.role.id)

    def block(self, recipient: Serving, bundle: Sequence[SmallEnvelope]) -> None:
        """Have envelopes wait until an earlier one of their ordering key is settled."""
        for small in bundle:
            row = self._ledger.before_its_turn(small.envelope, recipient.role.id)
            self._ledger.move(None, transitions.held(row))
        self._end(recipient, bundle)

    async def note_failed(
        self, recipient: RecipientProxy, bundle: Sequence[SmallEnvelope], results: Sequence[BundleResult]
    ) -> bool:
        """Note what failed of a bundle, and what becomes of it; returns whether anything failed."""
        failed = [
            (small, result)
            for small, result in zip(bundle, results, strict=True)
            if isinstance(result, RecipientFailed)
        ]
        if failed:
            await self._note_failed(recipient, failed)
        return bool(failed)

    async def _bring(self, recipient: RecipientProxy, bundle: Sequence[SmallEnvelope]) -> Sequence[BundleResult]:
        if not bundle:
            # What waited was left to others while the slot was waited for.
            return []
        if not recipient.abilities.bundles:
            # Another program of the role does, and this one has come since they were queued.
            return [BundleStatus.GOES_ALONE] * len(bundle)
        try:
            await self._ledger.reserve([recipient.role.id], max(small.position for small in bundle))
            made = await self._workers.transform(bundle, recipient.role.service)
            if recipient.role.pause is not None:
                # It was paused while a worker was waited for: nothing has begun with it.
                return [BundleStatus.NOT_BEGUN if isinstance(each, SmallEnvelope) else each for each in made]
            going = [each for each in made if isinstance(each, SmallEnvelope)]
            await accompany(self._log, recipient, going)
            results = iter(await recipient.take_envelopes(going) if going else ())
            return [next(results) if isinstance(each, SmallEnvelope) else each for each in made]
        except Exception as error:
            # A fault of ours with one of them: each goes alone now, and shows whether it is the one.
            log.exception("a bundle died", extra={"action": "bundle_died", "role": recipient.role.login})
            return [fault_among_many(error)] * len(bundle)

    async def _note_failed(
        self, recipient: RecipientProxy, failed: Sequence[tuple[SmallEnvelope, RecipientFailed]]
    ) -> None:
        noted: set[RecipientFailed] = set()
        is_retried = False
        for small, failure in failed:
            self._say_where(recipient, small, failure)
            failures, bad_items = await self._with_bad_items(recipient, small, failure)
            retried = self._results.failed(
                small.envelope, [recipient], {}, failures, bad_items, is_counted=failure in noted
            )
            is_retried = is_retried or bool(retried)
            noted.add(failure)
        try:
            # Whoever reads rows must not find one of these as it was before.
            await self._ledger.written()
        finally:
            self._end(recipient, [small for small, _ in failed])
        if is_retried:
            self._events.rows_due.publish(recipient.role.id)

    async def _with_bad_items(
        self, recipient: RecipientProxy, small: SmallEnvelope, failure: RecipientFailed
    ) -> tuple[Mapping[int, RecipientFailed | Absent], Mapping[int, Sequence[IsolatedItem]]]:
        """The failure of an envelope, with the bad items that it may go on without."""
        role_id = recipient.role.id
        try:
            return {role_id: failure}, await self._results.bad_items(small.envelope, [recipient], {role_id: failure})
        except Exception as error:
            log.exception("a run died", extra={"action": "run_died", "envelope_id": small.envelope_id})
            return {role_id: own_fault(error)}, {}

    def _say_where(self, recipient: RecipientProxy, small: SmallEnvelope, failure: RecipientFailed) -> None:
        for event in small.envelope.events:
            graph = self._log.known_graph(event.graph_id)
            if event.event_id == failure.event_id and graph is not None:
                failure.happened_at(graph.nodes_of(recipient.role.service), event.items)

    def _end(self, recipient: Serving, bundle: Iterable[SmallEnvelope]) -> None:
        self._roles[recipient.role.id].in_flight.end_all(small.position for small in bundle)


def _with_status(
    status: BundleStatus, bundle: Sequence[SmallEnvelope], results: Sequence[BundleResult]
) -> list[SmallEnvelope]:
    return [small for small, result in zip(bundle, results, strict=True) if result is status]
