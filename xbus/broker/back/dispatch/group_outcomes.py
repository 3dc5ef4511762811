"""Notes what became of envelopes that went together, and sees to those that can't go on with the others."""

import logging
from collections.abc import Collection, Mapping, Sequence

from xbus.broker.back.dispatch.eligibility import Eligibility
from xbus.broker.back.dispatch.group_calls import Outcome, Shares, failed_together
from xbus.broker.back.dispatch.parties import Apart, BundleParty, GroupCall
from xbus.broker.back.dispatch.run_executor import RunLauncher
from xbus.broker.back.log import LogReader, PagePart, Part, SmallEnvelope
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


class GroupOutcomes:
    """Takes note of the outcome of each envelope at each consumer.

    Args:
        log: where graphs are known, and what is corrected.
        ledger: where it is noted.
        results: decides what becomes of what went wrong.
        roles: what is being brought to whom.
        eligibility: who may get an envelope now.
        launcher: begins a run for what several consumers decide about, and can't go with others any more.
        context: what such a run lives on, and where slots are given back.
        events: told of a role for which an envelope was set aside that is tried again.
    """

    def __init__(
        self,
        log: LogReader,
        ledger: DeliveryLedger,
        results: RunResults,
        roles: ConsumerRoles,
        eligibility: Eligibility,
        launcher: RunLauncher,
        context: BackRunContext,
        events: RoleEvents,
    ) -> None:
        self._log = log
        self._ledger = ledger
        self.results = results
        self._roles = roles
        self._eligibility = eligibility
        self._launcher = launcher
        self._context = context
        self._events = events

    def release(self, slots: Mapping[RecipientProxy, int]) -> None:
        """Give slots back."""
        for instance, number in slots.items():
            self._context.release_slot(instance, number)

    # -- envelopes that go on otherwise ----------------------------------------------------------------------------

    def leave(self, recipient: Serving, bundle: Collection[SmallEnvelope]) -> None:
        """Bring envelopes no longer; what is not settled of them is read again when the role is served anew."""
        self._roles[recipient.role.id].in_flight.end_all([small.envelope.position for small in bundle])

    def leave_parts(self, recipients: Sequence[ServedRole], parts: Sequence[Part]) -> None:
        """The same for parts, and several recipients."""
        for recipient in recipients:
            for part in parts:
                self._roles[recipient.role.id].in_flight.end_all(part.positions)

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

    def keep_due(self, party: BundleParty) -> list[Apart]:
        """Keep waiting what all consumers of a party are to get as it was sent.

        What waits for an earlier one of its key gets a row.

        Returns:
            Other envelopes, which corrections change or one does not get any more, each with those that get it.
        """
        kept: list[Part] = []
        others: list[Apart] = []
        for part in party.parts:
            settled: dict[ServedRole, set[int]] = {}
            held: dict[ServedRole, set[int]] = {}
            for recipient in party.recipients:
                role = self._roles[recipient.role.id]
                found = role.settled_of(part.positions)
                settled[recipient] = {index for index, each in enumerate(part.positions) if each in found}
                blocked = role.keys.blocked(part.ordering_keys, part.positions) if role.keys.held else ()
                held[recipient] = {index for index in blocked if index not in settled[recipient]}
            leaving = set().union(*settled.values(), *held.values())
            smalls = part.smalls() if leaving or self._log.has_corrections else []
            leaving.update(index for index, small in enumerate(smalls) if self._log.is_corrected(small.envelope))
            for recipient in party.recipients if leaving else ():
                self.leave(recipient, [smalls[index] for index in settled[recipient]])
                self.block(recipient, [smalls[index] for index in sorted(held[recipient])])
            for index in sorted(leaving):
                getting = [each for each in party.recipients if index not in settled[each] | held[each]]
                others += [(part.chosen([index]), getting)] if getting else []
            staying = [index for index in range(len(part.positions)) if index not in leaving]
            kept += [part] if not leaving else [part.chosen(staying)] if staying else []
        party.parts = kept
        return others

    async def bring_in_run(
        self, recipients: Sequence[ServedRole], part: Part, *, holds_key: bool = False
    ) -> Sequence[RecipientProxy]:
        """Bring consumers that decide together an envelope in a run; one that can't take part gets it alone.

        Args:
            holds_key: whether its ordering key is in hand for it already.

        Returns:
            The instances for which a run has begun.
        """
        (small,) = part.smalls()
        present: Sequence[RecipientProxy] = ()
        if len(recipients) > 1:
            self.leave_parts(recipients, [part])
            present = await self._launcher.gather(
                small.envelope,
                recipients,
                lambda each: self._eligibility.in_turn(each, small.envelope),
                holds_key=holds_key,
            )
            if present:
                self._launcher.begin(small.envelope, present, {}, self._context)
            recipients = [each for each in recipients if self._eligibility.in_turn(each, small.envelope)]
        for recipient in recipients:
            self.set_aside(recipient, [small])
        return present

    async def bring_next_apart(self, call: GroupCall, *, is_finishing: bool) -> None:
        """Bring the next envelope of a call that can't go with others.

        Its ordering key stays in hand until then: nothing that waits behind it may come before it.
        """
        (part, going), *call.apart = call.apart
        begun: Sequence[RecipientProxy] = ()
        try:
            if is_finishing:
                self.leave_parts(going, [part])
            else:
                begun = await self.bring_in_run(going, part, holds_key=True)
        finally:
            # A run ends it itself.
            brought = [each.role.id for each in begun]
            for role in [self._roles[each.role.id] for each in call.instances if each.role.id not in brought]:
                role.keys_in_hand.end(part.positions)

    def end_keys(self, call: GroupCall) -> None:
        """Let go of the ordering keys of what came back, but for those of envelopes that are brought apart."""
        apart = {part.positions[0] for part, _ in call.apart}
        for role in [self._roles[each.role.id] for each in call.instances]:
            role.keys_in_hand.end([each for each in call.positions if each not in apart] if apart else call.positions)

    # -- outcomes --------------------------------------------------------------------------------------------------

    def read(self, call: GroupCall) -> Outcome:
        """Read the last answers about the envelopes of a call, where not all are committed."""
        bundle = call.bundle()
        if len(call.instances) == 1:
            return {each: each.results_of(bundle, *said) for each, said in call.answers.items()}
        read = {each: each.results_of_commit(bundle, *said) for each, said in call.answers.items()}
        return {each: failed_together(results) for each, results in read.items()}

    def note_committed(self, shares: Shares, outcome: Outcome) -> None:
        """Note the envelopes of a bundle that were committed."""
        for recipient, bundle in shares.items():
            pairs = zip(bundle, outcome[recipient], strict=True)
            committed = [small for small, result in pairs if result is BundleStatus.COMMITTED]
            self.results.settled_bundle([small.envelope for small in committed], recipient)
            self.leave(recipient, committed)

    def sort_out(
        self, party: BundleParty, recipients: Sequence[ServedRole], bundle: Sequence[SmallEnvelope], outcome: Outcome
    ) -> tuple[set[int], list[Apart]]:
        """Have envelopes brought on that were not begun, or that can't go with others.

        Returns:
            The positions of those that go next to all that are left, and those that several get in a run.
        """
        going_on: set[int] = set()
        apart: list[Apart] = []
        for place, small in enumerate(bundle):
            at: dict[int, BundleResult] = {each.role.id: results[place] for each, results in outcome.items()}
            if len(at) > 1 and set(at.values()) == {BundleStatus.GOES_ALONE}:
                going = [each for each in recipients if self._goes_on(party, each)]
                apart.append((PagePart.of([small]), going))
                for recipient in recipients:
                    if recipient not in going:
                        self._leave_one(recipient, small)
                continue
            is_new = set(at.values()) == {BundleStatus.NOT_BEGUN}
            for recipient in recipients:
                result = at.get(recipient.role.id)
                goes_on = is_new and self._goes_on(party, recipient)
                if result is BundleStatus.GOES_ALONE:
                    self.set_aside(recipient, [small])
                elif result is BundleStatus.NOT_BEGUN and goes_on:
                    going_on.add(small.position)
                elif result is BundleStatus.NOT_BEGUN:
                    self._leave_one(recipient, small)
        return going_on, apart

    def _goes_on(self, party: BundleParty, recipient: ServedRole) -> bool:
        return recipient in party.recipients and self._roles[recipient.role.id].is_served_by(recipient)

    def _leave_one(self, recipient: ServedRole, small: SmallEnvelope) -> None:
        """Leave an envelope to the lane that reads on for its role.

        The lane of the next recipient may have passed it, as it counted as being brought: then it gets a row.
        """
        if self._roles[recipient.role.id].lane is None:
            self.leave(recipient, [small])
        else:
            self.set_aside(recipient, [small])

    async def note_failed(self, shares: Shares, outcome: Outcome, counted: Collection[RecipientFailed]) -> None:
        """Note what failed of a bundle, and what becomes of it.

        Args:
            counted: failures that count with those of another bundle.
        """
        failed: dict[int, dict[RecipientProxy, RecipientFailed]] = {}
        smalls: dict[int, SmallEnvelope] = {}
        for recipient, bundle in shares.items():
            for small, result in zip(bundle, outcome[recipient], strict=True):
                if isinstance(result, RecipientFailed):
                    smalls[small.position] = small
                    failed.setdefault(small.position, {})[recipient] = result
        if failed:
            await self._note_failed([(smalls[position], failed[position]) for position in sorted(failed)], set(counted))

    async def _note_failed(
        self,
        failed: Sequence[tuple[SmallEnvelope, Mapping[RecipientProxy, RecipientFailed]]],
        counted: set[RecipientFailed],
    ) -> None:
        retried: set[int] = set()
        for small, at in failed:
            self._say_where(small, at)
            failures, bad_items = await self._with_bad_items(small, at)
            retried.update(self.results.failed(small.envelope, list(at), {}, failures, bad_items, counted=counted))
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
            return failures, await self.results.bad_items(small.envelope, list(at), failures)
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
