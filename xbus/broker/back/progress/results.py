"""Notes the results of runs in the ledger, and decides about each envelope that could not be delivered."""

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Protocol

from xbus.broker.back.progress import transitions
from xbus.broker.back.progress.bad_items import in_words
from xbus.broker.back.progress.blocked_keys import BlockedKeys
from xbus.broker.back.progress.ledger import DeliveryLedger
from xbus.broker.back.progress.open_replies import OpenReplies
from xbus.broker.back.progress.retry_policy import RetryPolicy
from xbus.broker.back.recipients.failures import FailureClass, RecipientFailed
from xbus.broker.back.recipients.probing import BreakerProbes
from xbus.broker.back.recipients.recipient import RecipientProxy
from xbus.broker.back.recipients.registry import Registry
from xbus.broker.back.recipients.slots import Absent, AnyOf
from xbus.broker.journal.log.catalog import RoleEntry
from xbus.broker.journal.log.reading import LogEnvelope
from xbus.broker.journal.writes import DeliveryRow, IsolatedItem
from xbus.clock import Clock
from xbus.states import DeliveryState

log = logging.getLogger(__name__)


class Serving(Protocol):
    """A consumer: its recipient, or who stands for that while it is away."""

    @property
    def role(self) -> RoleEntry:
        """Which role it serves."""


class RunResults:
    """Notes for each consumer of a run whether it has got the envelope, and if not, when it is tried again.

    It is the policy of the consumer's service that counts, also where a worker before it failed: whose envelope it is
    decides how long it may take.

    Args:
        ledger: where it is noted.
        registry: who is there.
        holds: what consumers may hold open.
        probing: takes notice of what fails and what goes well; of a role in trouble no attempts are counted.
        order: knows who wants order.
        policy: what counts for services that have no wishes of their own.
        clock: says what time it is.
        random: makes delays longer or shorter.
    """

    def __init__(
        self,
        ledger: DeliveryLedger,
        registry: Registry,
        holds: OpenReplies,
        probing: BreakerProbes,
        order: BlockedKeys,
        policy: RetryPolicy,
        clock: Clock,
        random: Random,
    ) -> None:
        self._ledger = ledger
        self._registry = registry
        self._holds = holds
        self._probing = probing
        self._order = order
        self._policy = policy
        self._clock = clock
        self._random = random

    def before_its_turn(self, envelope: LogEnvelope, role_id: int, *, attempts: int = 0) -> DeliveryRow:
        """The delivery of an envelope that has no row for a role yet; see ``fate``."""
        return transitions.before_its_turn(role_id, envelope, self._order.key(role_id, envelope), attempts=attempts)

    def settled(self, envelope: LogEnvelope, recipient: RecipientProxy, row: DeliveryRow | None) -> None:
        """Note that a consumer has committed.

        Args:
            row: its delivery row; None where it got the envelope in its turn.
        """
        self._holds.believe(envelope.envelope_id, recipient.role.id)
        if row is None:
            self._ledger.settle(recipient.role.id, envelope.position)
        else:
            self._ledger.move(row, transitions.settled(row))
        self._probing.went_well(recipient.role.id)
        log.debug(
            "delivered",
            extra={"action": "delivered", "envelope_id": envelope.envelope_id, "role": recipient.role.login},
        )

    def worked(self, worker: RecipientProxy) -> None:
        """Note that a worker has committed."""
        self._probing.went_well(worker.role.id)

    def failed(
        self,
        envelope: LogEnvelope,
        recipients: Sequence[Serving],
        rows: Mapping[int, DeliveryRow],
        failures: Mapping[int, RecipientFailed | Absent],
        bad_items: Mapping[int, Sequence[IsolatedItem]],
    ) -> list[int]:
        """Note what went wrong, and what becomes of it.

        Args:
            recipients: all consumers of the run.
            rows: the delivery rows of those that did not get it in its turn, by role id, with this attempt counted.
            failures: why those that have not committed could not, by role id.
            bad_items: see ``Isolating.bad_items``.

        Returns:
            The ids of the roles for which it comes again.
        """
        retried: list[int] = []
        for failure in dict.fromkeys(failures.values()):
            if isinstance(failure, RecipientFailed):
                self._ledger.fail(envelope.envelope_id, failure)
                if failure.role_id is not None and failure.failure_class is FailureClass.TRANSIENT:
                    self._probing.failed(failure.role_id, envelope.position)
        for recipient in recipients:
            why = failures.get(recipient.role.id)
            if why is None:
                continue
            row = rows.get(recipient.role.id)
            attempt = row or self.before_its_turn(envelope, recipient.role.id, attempts=1)
            attempt = self._order.keyed(attempt, envelope)
            items = bad_items.get(recipient.role.id)
            new = (
                self._after(attempt, recipient, why)
                if items is None
                else transitions.isolated(attempt, in_words(items))
            )
            self._ledger.move(row, new, items or ())
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
        if isinstance(why, Absent):
            return transitions.waiting_for(transitions.not_counted(attempt), _service(why))
        if why.failure_class is FailureClass.ABSENT:
            return transitions.put_off(attempt, why, due_at=self._when_back(recipient, why))
        policy = self._policy.as_wished(recipient.role.retry)
        due_at = self._due_at(recipient, policy.delay(attempt.attempts, self._random.random()))
        is_counted = why.role_id is None or not self._probing.is_troubled(why.role_id)
        return transitions.after_failure(attempt, why, attempts=policy.attempts if is_counted else None, due_at=due_at)

    def _when_back(self, recipient: Serving, why: RecipientFailed) -> datetime | None:
        """What found somebody about to go waits until there is another one; it needs no delay for that."""
        if why.role_id is None or self._registry.get(why.role_id) is None:
            return None
        return self._due_at(recipient, self._policy.as_wished(recipient.role.retry).first_delay)

    def _due_at(self, recipient: Serving, delay: float) -> datetime | None:
        """A delay is for one that is there and fails; one that is gone gets what waits as soon as it is back."""
        if self._registry.get(recipient.role.id) is not recipient:
            return None
        return self._clock.now() + timedelta(seconds=delay)


def _service(absent: Absent) -> str:
    return absent.want.service if isinstance(absent.want, AnyOf) else ""
