"""Sends what waits for a party, bundle after bundle, and notes what became of each envelope at each consumer."""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from xbus import tracing
from xbus.broker.back.dispatch.bundle_calls import BundleCalls, Outcome, Shares
from xbus.broker.back.dispatch.eligibility import Eligibility
from xbus.broker.back.dispatch.gathering import ConsumerGathering
from xbus.broker.back.dispatch.parties import BundleParty, GroupCall
from xbus.broker.back.dispatch.run_launcher import RunLauncher
from xbus.broker.back.log import LogReader, SmallEnvelope
from xbus.broker.back.progress import ConsumerRoles, DeliveryLedger, RunResults, Serving, transitions
from xbus.broker.back.recipients import (
    Absent,
    BundleResult,
    BundleStatus,
    RecipientFailed,
    RecipientProxy,
    RoleEvents,
    ServedRole,
    own_fault,
)
from xbus.broker.back.run import BackRunContext
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
        traced = {
            small.envelope_id: small.envelope.head.headers
            for bundle in shares.values()
            for small in bundle
            if small.envelope.head.headers is not None and tracing.IN_BYTES in small.envelope.head.headers
        }
        if traced:
            outcome = await self._carry_out_traced(shares, traced)
        else:
            outcome = await self._calls.carry_out(shares)
        self.note_committed(shares, outcome)
        return outcome

    async def carry_on(self, shares: Shares, votes: Outcome) -> Outcome:
        """Carry on a vote that began with these votes."""
        return await self._calls.carry_on(shares, votes)

    def note_committed(self, shares: Shares, outcome: Outcome) -> None:
        """Note the envelopes of a bundle that were committed."""
        for recipient, bundle in shares.items():
            pairs = zip(bundle, outcome[recipient], strict=True)
            committed = [small for small, result in pairs if result is BundleStatus.COMMITTED]
            self._results.settled_bundle([small.envelope for small in committed], recipient)
            self.leave(recipient, committed)

    async def _carry_out_traced(self, shares: Shares, traced: Mapping[UUID, bytes | None]) -> Outcome:
        logins = ", ".join(recipient.role.login for recipient in shares)
        with tracing.following("deliver", traced.items(), {"xbus.roles": logins}) as spans:
            outcome = await self._calls.carry_out(shares)
            for span_id, span in spans.items():
                span.end("; ".join(str(failure) for failure in _failures_at(span_id, shares, outcome)))
        return outcome

    def leave(self, recipient: Serving, bundle: Sequence[SmallEnvelope]) -> None:
        """Bring envelopes no longer; what is not settled of them is read again when the role is served anew."""
        self._roles[recipient.role.id].in_flight.end_all([small.envelope.position for small in bundle])

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
                graph = self._log.known_graphs.get(event.graph_id)
                if event.event_id == failure.event_id and graph is not None:
                    failure.happened_at(graph.nodes_of(recipient.role.service), event.items)


class BundleSender:
    """Sends bundles, and brings each envelope on that no bundle took.

    Args:
        roles: which of them want order, and what is being brought to them.
        eligibility: who may get an envelope now.
        gathering: takes the consumers' slots.
        run: carries a bundle out.
        launcher: begins a run for what several consumers decide about, and can't go in a bundle any more.
        context: what such a run lives on, and where slots are given back.
    """

    def __init__(
        self,
        roles: ConsumerRoles,
        eligibility: Eligibility,
        gathering: ConsumerGathering,
        run: BundleRun,
        launcher: RunLauncher,
        context: BackRunContext,
    ) -> None:
        self._roles = roles
        self._eligibility = eligibility
        self._gathering = gathering
        self._run = run
        self._launcher = launcher
        self._context = context
        self._is_finishing = False

    def finish(self) -> None:
        """Send no other bundle."""
        self._is_finishing = True

    async def send(self, party: BundleParty) -> None:
        """Send bundles to one instance of each consumer after another; several of these tasks may be at it."""
        try:
            while party.has_queued and not self._is_finishing:
                await self._key_free(party)
                taken = await self._gathering.take(
                    list(party.recipients),
                    lambda each: each in party.recipients and self._eligibility.is_served(each),
                )
                if not taken:
                    return
                await self._send_one(party, taken)
                if party.has_queued:
                    # Whoever else waits for the slot, as a row that is due, is woken now and takes it first.
                    await asyncio.sleep(0)
        finally:
            self._end_sending(party)

    async def send_after(self, call: GroupCall, outcome: Outcome, *, is_vote: bool) -> None:
        """Note what became of envelopes that went as columns, and send what waits for their party.

        Args:
            is_vote: whether the outcome is that of a vote, which is to be carried on first.
        """
        try:
            await self._end_call(call, outcome, is_vote=is_vote)
        except BaseException:
            self._end_sending(call.party)
            raise
        await self.send(call.party)

    async def _end_call(self, call: GroupCall, outcome: Outcome, *, is_vote: bool) -> None:
        """Note what became of the envelopes of a call; give its slots and keys back, whatever goes wrong."""
        recipients = list(call.instances.values())
        try:
            try:
                bundle = call.bundle()
                shares = dict.fromkeys(call.instances, bundle)
                if is_vote:
                    outcome = await self._run.carry_on(shares, outcome)
                self._learn(call.party, outcome, asyncio.get_running_loop().time() - call.began)
                if len(shares) > 1:
                    self._gathering.note_run(call.busy_seconds())
                self._run.note_committed(shares, outcome)
            finally:
                self._release(call.slots)
            together = await self._note_others(call.party, recipients, bundle, shares, outcome)
        finally:
            for recipient in recipients:
                self._roles[recipient.role.id].keys_in_hand.end(call.positions)
        for small in together:
            await self._run_together(recipients, small)

    def _release(self, slots: Mapping[RecipientProxy, int]) -> None:
        for instance, number in slots.items():
            self._context.release_slot(instance, number)

    def leave(self, party: BundleParty) -> None:
        """Leave what waits to the lanes that read on for its roles when they are served again."""
        waiting = party.queue.take_all()
        for recipient in party.recipients:
            self._run.leave(recipient, waiting)

    def _end_sending(self, party: BundleParty) -> None:
        task = asyncio.current_task()
        if task is not None:
            party.end(task)
        for recipient in party.recipients if self._gathering.awaited else ():
            self._gathering.note_idle(self._roles[recipient.role.id])
        is_served = all(self._eligibility.is_served(each) for each in party.recipients)
        if not is_served or (not party.sending and party.has_queued):
            self.leave(party)
        elif not party.sending and party.go_on is not None:
            party.go_on()

    async def _send_one(self, party: BundleParty, taken: Sequence[RecipientProxy]) -> None:
        """Send what may go now to instances whose slots are taken."""
        instances = {instance.role.id: instance for instance in taken}
        recipients = [recipient for recipient in party.recipients if recipient.role.id in instances]
        bundle = party.queue.take(
            self._keys_in_hand(recipients),
            party.takers,
            min(map(self._gathering.may_prepare, taken)) if len(taken) > 1 else len(party.queue),
        )
        further = self._gathering.take_further(taken, len(bundle) - 1) if len(taken) > 1 else {}
        shares = self._shares(recipients, instances, bundle)
        for recipient in recipients:
            role = self._roles[recipient.role.id]
            if role.keys.is_wanted:
                for small in shares.get(instances[role.id], ()):
                    role.keys_in_hand.begin(small.position, role.keys.key(small.envelope))
        together: Sequence[SmallEnvelope] = ()
        try:
            try:
                outcome = await self._carry_out(party, shares)
            finally:
                self._release({instance: 1 + further.get(instance, 0) for instance in taken})
            together = await self._note_others(party, recipients, bundle, shares, outcome)
        finally:
            for recipient in recipients:
                self._roles[recipient.role.id].keys_in_hand.end([small.envelope.position for small in bundle])
        for small in together:
            await self._run_together(recipients, small)

    async def _note_others(
        self,
        party: BundleParty,
        recipients: Sequence[ServedRole],
        bundle: Sequence[SmallEnvelope],
        shares: Shares,
        outcome: Outcome,
    ) -> Sequence[SmallEnvelope]:
        """Note what became of the envelopes of a bundle that were not committed.

        Returns:
            Those that all of several consumers get in a run.
        """
        if all(results.count(BundleStatus.COMMITTED) == len(results) for results in outcome.values()):
            return ()
        # Before the failures are noted, which may take long: another recipient may come in the meantime.
        together = self._put_back(party, recipients, bundle, _results_at(shares, outcome))
        await self._run.note_failed(shares, outcome)
        return together

    async def _carry_out(self, party: BundleParty, shares: Shares) -> Outcome:
        """Have a bundle carried out, and learn from it how many go together and who keeps the others waiting."""
        now = asyncio.get_running_loop().time
        began = now()
        busy = {instance: instance.busy_seconds for instance in shares}
        outcome = await self._run.carry_out(shares)
        seconds = now() - began
        self._learn(party, outcome, seconds)
        if len(shares) > 1:
            self._gathering.note_run({each: each.busy_seconds - before for each, before in busy.items()})
        return outcome

    def _learn(self, party: BundleParty, outcome: Outcome, seconds: float) -> None:
        results = [result for of_one in outcome.values() for result in of_one]
        if results:
            committed = max([of_one.count(BundleStatus.COMMITTED) for of_one in outcome.values()])
            party.objects.size.learn(committed, seconds, has_failed=RecipientFailed in set(map(type, results)))

    def _shares(
        self, recipients: Sequence[ServedRole], instances: Mapping[int, RecipientProxy], bundle: Sequence[SmallEnvelope]
    ) -> dict[RecipientProxy, list[SmallEnvelope]]:
        """Give each consumer what of a bundle is due to it, and waits for no other of its ordering key meanwhile."""
        shares: dict[RecipientProxy, list[SmallEnvelope]] = {}
        for recipient in recipients:
            role = self._roles[recipient.role.id]
            settled = role.settled_of([small.envelope.position for small in bundle])
            due = [small for small in bundle if small.envelope.position not in settled]
            blocked = [small for small in due if role.keys.blocks(small.envelope)] if role.keys.held else []
            if settled:
                self._run.leave(recipient, [small for small in bundle if small.envelope.position in settled])
            if blocked:
                self._run.block(recipient, blocked)
            held = {small.envelope.position for small in blocked}
            share = [small for small in due if small.envelope.position not in held]
            if share:
                shares[instances[role.id]] = share
        return shares

    def _put_back(
        self,
        party: BundleParty,
        recipients: Sequence[ServedRole],
        bundle: Sequence[SmallEnvelope],
        results: Mapping[int, Mapping[int, BundleResult]],
    ) -> list[SmallEnvelope]:
        """Have envelopes brought on that no consumer of a bundle has, or some of them.

        Args:
            results: by position and role id what became of each envelope.

        Returns:
            Those that all of several consumers get in a run.
        """
        going_on: list[SmallEnvelope] = []
        together: list[SmallEnvelope] = []
        for small in bundle:
            at = results.get(small.position, {})
            if len(at) > 1 and set(at.values()) == {BundleStatus.GOES_ALONE}:
                together.append(small)
                continue
            is_new = set(at.values()) == {BundleStatus.NOT_BEGUN}
            for recipient in recipients:
                result = at.get(recipient.role.id)
                if result is BundleStatus.GOES_ALONE:
                    self._run.set_aside(recipient, [small])
                elif result is BundleStatus.NOT_BEGUN and not (is_new and self._goes_on(party, recipient)):
                    self._leave_one(recipient, small)
            if is_new and any(self._goes_on(party, recipient) for recipient in recipients):
                going_on.append(small)
        party.queue.put_back(going_on)
        return together

    def _goes_on(self, party: BundleParty, recipient: ServedRole) -> bool:
        return recipient in party.recipients and self._eligibility.is_served(recipient)

    def _leave_one(self, recipient: ServedRole, small: SmallEnvelope) -> None:
        """Leave an envelope to the lane that reads on for its role.

        The lane of the next recipient may have passed it, as it counted as being brought: then it gets a row.
        """
        if self._roles[recipient.role.id].lane is None:
            self._run.leave(recipient, [small])
        else:
            self._run.set_aside(recipient, [small])

    async def _run_together(self, recipients: Sequence[ServedRole], small: SmallEnvelope) -> None:
        """Bring several consumers an envelope in a run; one that can't take part gets it alone."""
        for recipient in recipients:
            self._run.leave(recipient, [small])
        if self._is_finishing:
            return
        present = await self._launcher.gather(
            small.envelope, recipients, lambda each: self._eligibility.in_turn(each, small.envelope)
        )
        if present:
            self._launcher.begin(small.envelope, present, {}, self._context)
        for recipient in recipients:
            if self._eligibility.in_turn(recipient, small.envelope):
                self._run.set_aside(recipient, [small])

    # -- ordering keys ---------------------------------------------------------------------------------------------

    async def _key_free(self, party: BundleParty) -> None:
        """Wait until an envelope that waits is of no ordering key that an instance of its consumers has in hand."""
        while party.has_queued and party.recipients:
            in_hand = self._keys_in_hand(party.recipients)
            if in_hand is None or not in_hand >= (keys := party.queue.keys):
                return
            key = next(iter(keys))
            hands = (self._roles[recipient.role.id].keys_in_hand for recipient in party.recipients)
            await next(hand for hand in hands if key in hand).changed()

    def _keys_in_hand(self, recipients: Iterable[ServedRole]) -> set[str] | None:
        """The ordering keys of which an instance of some consumers has an envelope; None where none wants order."""
        roles = [self._roles[recipient.role.id] for recipient in recipients]
        if not any(role.keys.is_wanted for role in roles):
            return None
        return {key for role in roles for key in role.keys_in_hand.all()}


def _results_at(shares: Shares, outcome: Outcome) -> dict[int, dict[int, BundleResult]]:
    """By position and role id what became of each envelope."""
    found: dict[int, dict[int, BundleResult]] = {}
    for recipient, bundle in shares.items():
        for small, result in zip(bundle, outcome[recipient], strict=True):
            found.setdefault(small.position, {})[recipient.role.id] = result
    return found


def _failures_at(envelope_id: object, shares: Shares, outcome: Outcome) -> Iterable[RecipientFailed]:
    for recipient, bundle in shares.items():
        for small, result in zip(bundle, outcome[recipient], strict=True):
            if small.envelope_id == envelope_id and isinstance(result, RecipientFailed):
                yield result
