"""Notes the results of runs in the ledger, and decides about each envelope that could not be delivered."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from xbus.broker.back.progress import transitions
from xbus.broker.back.progress.bad_item_search import BadItems, Serving, in_words
from xbus.broker.back.progress.consumer_role import ConsumerRole
from xbus.broker.back.progress.ledger import DeliveryLedger
from xbus.broker.back.progress.retry_policy import RetrySchedule
from xbus.broker.back.recipients import (
    Absent,
    AnyOf,
    BreakerProbes,
    FailureClass,
    RecipientFailed,
    RecipientProxy,
    This,
)
from xbus.broker.back.run import Run
from xbus.broker.counts import CountsBy
from xbus.broker.journal.log.catalog import Catalog
from xbus.broker.journal.log.event_states import DONE
from xbus.broker.journal.log.reading import LogEnvelope
from xbus.broker.journal.writes import DeliveryRow, IsolatedItem
from xbus.states import DeliveryState

log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class OpenReply:
    """An envelope that a consumer keeps open after its reply; its slot stays taken.

    Args:
        run: the run to be ended or stopped.
        event_ids: the events that it gave replies to.
        expiry: ends it if the envelope's end does not come.
        asking: whether an event of it is being delivered now; that delivery also ends it if necessary.
    """

    envelope_id: UUID
    recipient: RecipientProxy
    run: Run
    event_ids: list[UUID] = field(default_factory=list)
    expiry: asyncio.TimerHandle | None = None
    asking: bool = False

    def forget_expiry(self) -> None:
        """Let the envelope's end take as long as it takes."""
        if self.expiry is not None:
            self.expiry.cancel()


class OpenReplies:
    """All open replies. The caller that ends one takes it, so that it ends once.

    Args:
        on_taken: called with each that ends while its recipient is registered, whatever follows.
    """

    def __init__(self, on_taken: Callable[[OpenReply], None]) -> None:
        self.open: dict[tuple[UUID, int], OpenReply] = {}
        """The replies that have not ended, by their envelopes and roles."""
        self.maybe_open: set[tuple[UUID, int]] = set()
        """Envelopes that may still be open at a role from an earlier registration."""
        self._on_taken = on_taken

    def all(self) -> list[OpenReply]:
        """List those that have not ended."""
        return list(self.open.values())

    def of_role(self, envelope_id: UUID, role_id: int) -> OpenReply | None:
        """Give the open reply of a role for an envelope, whichever of its instances gave it."""
        return self.open.get((envelope_id, role_id))

    def get(self, envelope_id: UUID, recipient: RecipientProxy) -> OpenReply | None:
        """Give the open reply of a recipient for an envelope."""
        open_reply = self.open.get((envelope_id, recipient.role.id))
        return open_reply if open_reply is not None and open_reply.recipient is recipient else None

    def add(self, open_reply: OpenReply) -> None:
        """Begin one."""
        self.open[open_reply.envelope_id, open_reply.recipient.role.id] = open_reply

    def take(self, envelope_id: UUID, recipient: RecipientProxy) -> OpenReply | None:
        """Take the open reply of a recipient for an envelope; its run and its slot are the caller's now."""
        open_reply = self.get(envelope_id, recipient)
        if open_reply is not None:
            del self.open[envelope_id, recipient.role.id]
            open_reply.forget_expiry()
            self._on_taken(open_reply)
        return open_reply

    def lose(self, recipient: RecipientProxy) -> list[OpenReply]:
        """Take all open replies of a recipient that has gone; it may come back with them still open."""
        lost = [open_reply for open_reply in self.open.values() if open_reply.recipient is recipient]
        for open_reply in lost:
            del self.open[open_reply.envelope_id, recipient.role.id]
            self.mark_maybe_open(open_reply.envelope_id, recipient.role.id)
        return lost

    def mark_maybe_open(self, envelope_id: UUID, role_id: int) -> None:
        """Note that an envelope without an open reply may be open at a role; it is stopped before its delivery."""
        self.maybe_open.add((envelope_id, role_id))

    def mark_closed(self, envelope_id: UUID, role_id: int) -> None:
        """Note that nothing is open of an envelope at a role any more."""
        self.maybe_open.discard((envelope_id, role_id))

    def may_be_open(self, envelope_id: UUID, recipients: Iterable[Serving]) -> bool:
        """Check whether an envelope may still be open at one of some recipients from an earlier registration."""
        maybe_open = self.maybe_open
        return bool(maybe_open) and any((envelope_id, recipient.role.id) in maybe_open for recipient in recipients)


@dataclass(slots=True)
class RoleCounts:
    """The results of the deliveries to a role since this process began.

    Args:
        results: how often a delivery came to each state; ``done`` where the role has committed.
        items: the items of the envelopes that it has committed.
    """

    results: Counter[str] = field(default_factory=Counter)
    items: int = 0

    def committed(self, envelopes: Sequence[LogEnvelope]) -> None:
        """Count envelopes that the role has committed."""
        self.results[DONE] += len(envelopes)
        self.items += sum([event.items for envelope in envelopes for event in envelope.events])


class RunResults:
    """Notes for each consumer of a run whether it has got the envelope, and the next attempt if not.

    Args:
        ledger: takes the notes.
        open_replies: the open replies of consumers.
        probing: takes note of successes and failures; it counts no attempts of a role in trouble.
        schedule: says when the next attempt is due.
        bad_items: finds the bad items that are parked alone.
        catalog: says which services are paused.
    """

    def __init__(
        self,
        ledger: DeliveryLedger,
        open_replies: OpenReplies,
        probing: BreakerProbes,
        schedule: RetrySchedule,
        bad_items: BadItems,
        catalog: Callable[[], Catalog],
    ) -> None:
        self._ledger = ledger
        self._open_replies = open_replies
        self._probing = probing
        self._schedule = schedule
        self._bad_items = bad_items
        self._catalog = catalog
        self.counts: CountsBy[str, RoleCounts] = CountsBy(RoleCounts)
        """By the login of a role."""

    def settled(self, envelope: LogEnvelope, recipient: RecipientProxy, row: DeliveryRow | None) -> None:
        """Note that a consumer has committed.

        Args:
            row: its delivery row; None where it got the envelope in its turn.
        """
        self._open_replies.mark_closed(envelope.envelope_id, recipient.role.id)
        if row is None:
            self._ledger.settle(recipient.role.id, envelope.position)
            self.cure([envelope], recipient)
        else:
            self._ledger.move(row, transitions.settled(row))
        self._probing.went_well(recipient.role.id)
        self.counts[recipient.role.login].committed([envelope])
        _log_delivered(envelope.envelope_id, recipient.role.login)

    def settled_bundle(self, bundle: Sequence[LogEnvelope], recipient: RecipientProxy) -> None:
        """Note that a consumer has committed some envelopes of a bundle, each in its turn."""
        if not bundle:
            return
        self._ledger.settle(recipient.role.id, *sorted([envelope.position for envelope in bundle]))
        self.cure(bundle, recipient)
        self._probing.went_well(recipient.role.id)
        self.counts[recipient.role.login].committed(bundle)
        for envelope in bundle if log.isEnabledFor(logging.DEBUG) else ():
            _log_delivered(envelope.envelope_id, recipient.role.login)

    def settled_group(
        self, role: ConsumerRole, login: str, positions: Sequence[int], ids: Sequence[bytes], items: int
    ) -> None:
        """Note that a consumer has committed all envelopes of a call, each in its turn.

        Repeats among them are to be told to ``cure``: a group has none.

        Args:
            ids: theirs, of 16 bytes.
            items: how many they have.
        """
        self._ledger.settle_all(role, positions)
        role.in_flight.positions.difference_update(positions)
        if role.keys_in_hand.key_at:
            role.keys_in_hand.end(positions)
        if not role.breaker.is_clean:
            self._probing.went_well(role.id)
        counts = self.counts[login]
        counts.results[DONE] += len(ids)
        counts.items += items
        for each in ids if log.isEnabledFor(logging.DEBUG) else ():
            _log_delivered(UUID(bytes=each), login)

    def cure(self, delivered: Iterable[LogEnvelope], recipient: RecipientProxy) -> None:
        """Have repeats among envelopes that a consumer has committed cure the failures of what they repeat."""
        # Such envelopes are rare, and others pass here by the hundred: nothing is called for them.
        for envelope in [each for each in delivered if each.events and each.events[0].origin is not None]:
            self._ledger.cure(recipient.role.id, envelope.envelope_id)

    def worked(self, worker: RecipientProxy) -> None:
        """Note that a worker has committed."""
        self._probing.went_well(worker.role.id)

    async def bad_items(
        self,
        envelope: LogEnvelope,
        recipients: Sequence[Serving],
        failures: Mapping[int, RecipientFailed | Absent],
    ) -> Mapping[int, Sequence[IsolatedItem]]:
        """Find what ``failed`` has to know before it decides; see ``BadItems.bad_items``."""
        return await self._bad_items.bad_items(envelope, recipients, failures)

    def failed(
        self,
        envelope: LogEnvelope,
        recipients: Sequence[Serving],
        rows: Mapping[int, DeliveryRow],
        failures: Mapping[int, RecipientFailed | Absent],
        bad_items: Mapping[int, Sequence[IsolatedItem]],
        *,
        counted: Collection[RecipientFailed] = (),
    ) -> list[int]:
        """Note the failures, and decide about the next attempts.

        Args:
            recipients: all consumers of the run.
            rows: the delivery rows of consumers that did not get it in its turn, by role id, with this attempt counted.
            failures: by role id, why a role has not committed.
            bad_items: see ``bad_items``.
            counted: failures that were noted of another envelope already, that came in the same call.

        Returns:
            The ids of the roles to which it will be redelivered.
        """
        retried: list[int] = []
        for failure in dict.fromkeys(failures.values()):
            # A recipient that stops in order fails at nothing: the envelope is put off, and no attempt counts.
            if isinstance(failure, RecipientFailed) and failure.failure_class is not FailureClass.ABSENT:
                self._ledger.fail(envelope.envelope_id, failure)
                is_trouble = failure.failure_class is FailureClass.TRANSIENT and failure not in counted
                if failure.role_id is not None and is_trouble:
                    self._probing.failed(failure.role_id, envelope.position)
        for recipient in recipients:
            why = failures.get(recipient.role.id)
            if why is None:
                continue
            row = rows.get(recipient.role.id)
            attempt = row or self._ledger.before_its_turn(envelope, recipient.role.id, attempts=1)
            attempt = self._ledger.keyed(attempt, envelope)
            items = bad_items.get(recipient.role.id)
            new = (
                self._after(attempt, recipient, why)
                if items is None
                else transitions.isolated(attempt, in_words(items))
            )
            self._ledger.move(row, new, items or ())
            self.counts[recipient.role.login].results[new.state.value] += 1
            if new.state is DeliveryState.RETRY:
                retried.append(recipient.role.id)
            log.warning(
                "not delivered: %s",
                new.cause,
                extra={
                    "action": new.state.value,
                    "envelope_id": envelope.envelope_id,
                    "role": recipient.role.login,
                    "code": new.code,
                    "attempts": new.attempts,
                },
            )
        return retried

    def _after(self, attempt: DeliveryRow, recipient: Serving, why: RecipientFailed | Absent) -> DeliveryRow:
        if isinstance(why, Absent) and isinstance(why.want, This):
            return transitions.paused(attempt, recipient.role.pause)
        if isinstance(why, Absent):
            service = _service(why)
            pause = self._catalog().pause_of_service(service)
            return transitions.waiting_for(transitions.not_counted(attempt), service, pause)
        if why.failure_class is FailureClass.ABSENT:
            return transitions.put_off(attempt, why, due_at=self._schedule.when_back(recipient, why))
        due_at = self._schedule.after_attempts(recipient, attempt.attempts)
        is_counted = why.role_id is None or not self._probing.is_troubled(why.role_id)
        attempts = self._schedule.attempts(recipient) if is_counted else None
        return transitions.after_failure(attempt, why, attempts=attempts, due_at=due_at)


def _log_delivered(envelope_id: UUID, login: str) -> None:
    log.debug("delivered", extra={"action": "delivered", "envelope_id": envelope_id, "role": login})


def _service(absent: Absent) -> str:
    return absent.want.service if isinstance(absent.want, AnyOf) else ""
