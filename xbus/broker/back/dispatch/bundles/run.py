"""Has bundles carried out, and notes what became of each envelope at each consumer."""

import logging
from collections.abc import Iterable, Mapping, Sequence

from xbus import tracing
from xbus.broker.back.dispatch.bundles.calls import BundleCalls
from xbus.broker.back.dispatch.bundles.vote import Outcome, Shares
from xbus.broker.back.log import LogReader, SmallEnvelope
from xbus.broker.back.progress import ConsumerRoles, DeliveryLedger, RunResults, Serving, transitions
from xbus.broker.back.recipients import (
    Absent,
    BundleResult,
    BundleStatus,
    RecipientFailed,
    RecipientProxy,
    RoleEvents,
    own_fault,
)
from xbus.broker.journal.writes import IsolatedItem

log = logging.getLogger(__name__)


class BundleRun:
    """Brings bundles to consumers whose slots are taken, and sees to it that what comes of it is noted.

    Args:
        log: where graphs are known.
        ledger: where it is noted.
        calls: bring them.
        results: decides what becomes of what went wrong.
        roles: what is being brought to whom.
        events: told of a role for which an envelope was set aside that is tried again.
    """

    def __init__(
        self,
        log: LogReader,
        ledger: DeliveryLedger,
        calls: BundleCalls,
        results: RunResults,
        roles: ConsumerRoles,
        events: RoleEvents,
    ) -> None:
        self._log = log
        self._ledger = ledger
        self._calls = calls
        self._results = results
        self._roles = roles
        self._events = events

    async def carry_out(self, shares: Shares) -> Outcome:
        """Bring consumers a bundle, and note what was committed.

        Args:
            shares: what each consumer gets of it.

        Returns:
            What became of each envelope; of those that failed ``note_failed`` takes notice, and of those that were not
            begun, or can't go in a bundle, nothing is noted.
        """
        smalls = [small for bundle in shares.values() for small in bundle if small.envelope.head.headers is not None]
        traced = {small.envelope_id: small.envelope.head.headers for small in smalls}.items()
        logins = ", ".join(recipient.role.login for recipient in shares)
        with tracing.following("deliver", traced, {"xbus.roles": logins}) as spans:
            outcome = await self._calls.carry_out(shares)
            for span_id, span in spans.items():
                span.end("; ".join(str(failure) for failure in _failures_at(span_id, shares, outcome)))
        for recipient, bundle in shares.items():
            committed = with_status(BundleStatus.COMMITTED, bundle, outcome[recipient])
            self._results.settled_bundle([small.envelope for small in committed], recipient)
            self.leave(recipient, committed)
        return outcome

    def leave(self, recipient: Serving, bundle: Iterable[SmallEnvelope]) -> None:
        """Bring envelopes no longer; what is not settled of them is read again when the role is served anew."""
        self._roles[recipient.role.id].in_flight.end_all(small.position for small in bundle)

    def set_aside(self, recipient: Serving, bundle: Sequence[SmallEnvelope]) -> None:
        """Have envelopes that were not handed over brought one by one, each read anew."""
        if not bundle:
            return
        for small in bundle:
            self._ledger.move(None, self._ledger.before_its_turn(small.envelope, recipient.role.id))
        self.leave(recipient, bundle)
        self._events.rows_due.publish(recipient.role.id)

    def block(self, recipient: Serving, bundle: Sequence[SmallEnvelope]) -> None:
        """Have envelopes wait until an earlier one of their ordering key is settled."""
        for small in bundle:
            row = self._ledger.before_its_turn(small.envelope, recipient.role.id)
            self._ledger.move(None, transitions.held(row))
        self.leave(recipient, bundle)

    async def note_failed(self, shares: Shares, outcome: Outcome) -> bool:
        """Note what failed of a bundle, and what becomes of it; returns whether anything failed."""
        failed: dict[int, dict[RecipientProxy, RecipientFailed]] = {}
        smalls: dict[int, SmallEnvelope] = {}
        for recipient, bundle in shares.items():
            for small, result in zip(bundle, outcome[recipient], strict=True):
                if isinstance(result, RecipientFailed):
                    smalls[small.position] = small
                    failed.setdefault(small.position, {})[recipient] = result
        if failed:
            await self._note_failed([(smalls[position], failed[position]) for position in sorted(failed)])
        return bool(failed)

    async def _note_failed(
        self, failed: Sequence[tuple[SmallEnvelope, Mapping[RecipientProxy, RecipientFailed]]]
    ) -> None:
        counted: set[RecipientFailed] = set()
        retried: set[int] = set()
        for small, at in failed:
            self._say_where(small, at)
            failures, bad_items = await self._with_bad_items(small, at)
            retried.update(self._results.failed(small.envelope, list(at), {}, failures, bad_items, counted=counted))
            counted.update(at.values())
        try:
            # Whoever reads rows must not find one of these as it was before.
            await self._ledger.written()
        finally:
            for small, at in failed:
                for recipient in at:
                    self.leave(recipient, [small])
        for role_id in retried:
            self._events.rows_due.publish(role_id)

    async def _with_bad_items(
        self, small: SmallEnvelope, at: Mapping[RecipientProxy, RecipientFailed]
    ) -> tuple[Mapping[int, RecipientFailed | Absent], Mapping[int, Sequence[IsolatedItem]]]:
        """The failures of an envelope by role, with the bad items that it may go on without."""
        failures = {recipient.role.id: failure for recipient, failure in at.items()}
        try:
            return failures, await self._results.bad_items(small.envelope, list(at), failures)
        except Exception as error:
            log.exception("a run died", extra={"action": "run_died", "envelope_id": small.envelope_id})
            return dict.fromkeys(failures, own_fault(error)), {}

    def _say_where(self, small: SmallEnvelope, at: Mapping[RecipientProxy, RecipientFailed]) -> None:
        for recipient, failure in at.items():
            if failure.role_id != recipient.role.id:
                # It was stopped here, as another one refused it.
                continue
            for event in small.envelope.events:
                graph = self._log.known_graph(event.graph_id)
                if event.event_id == failure.event_id and graph is not None:
                    failure.happened_at(graph.nodes_of(recipient.role.service), event.items)


def with_status(
    status: BundleStatus, bundle: Sequence[SmallEnvelope], results: Sequence[BundleResult]
) -> list[SmallEnvelope]:
    """Give those envelopes of a bundle that have a status."""
    return [small for small, result in zip(bundle, results, strict=True) if result is status]


def _failures_at(envelope_id: object, shares: Shares, outcome: Outcome) -> Iterable[RecipientFailed]:
    for recipient, bundle in shares.items():
        for small, result in zip(bundle, outcome[recipient], strict=True):
            if small.envelope_id == envelope_id and isinstance(result, RecipientFailed):
                yield result
