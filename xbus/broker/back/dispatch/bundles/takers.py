"""Says who gets a small envelope in bundles, and who decides about it together."""

from collections.abc import Collection

from xbus.broker.back.dispatch.bundles.workers import BundleWorkers
from xbus.broker.back.progress import ConsumerRoles, OpenReplies
from xbus.broker.back.recipients import ServedRole
from xbus.broker.journal.log.reading import LogEnvelope


class BundleTakers:
    """The rules of who may get bundles.

    Args:
        roles: of which ordering keys an envelope waits.
        open_replies: what consumers hold open already.
        workers: say which envelopes they can transform in a bundle.
    """

    def __init__(self, roles: ConsumerRoles, open_replies: OpenReplies, workers: BundleWorkers) -> None:
        self._roles = roles
        self._open_replies = open_replies
        self._workers = workers

    def may_take(self, envelope: LogEnvelope, recipient: ServedRole) -> bool:
        """Check whether a consumer may get envelopes of the same graphs as this one in a bundle, if they are small.

        Nobody may wait for a reply.
        """
        abilities = recipient.abilities
        return (
            abilities.bundles
            and abilities.immediate_reply.isdisjoint([event.type_name for event in envelope.events])
            and self._workers.way(envelope, recipient.role.service) is not None
        )

    def parties(self, envelope: LogEnvelope, recipients: Collection[ServedRole]) -> list[list[ServedRole]]:
        """Those that get a small envelope in bundles, each with those that decide about it together.

        Those that have a vote decide together, or in a run if one of them can't. What was corrected or begun before
        goes alone, and what waits for one of its key gets a row. Several consumers behind workers share a run, so that
        its workers work once for all of them.
        """
        if self._open_replies or self._workers.is_corrected(envelope):
            return []
        voters = [each for each in recipients if not each.role.own]
        parties = [[each] for each in recipients if each.role.own]
        if len(voters) == 1 or (voters and all(self._may_vote(envelope, each) for each in voters)):
            parties.append(voters)
        if len(recipients) > 1:
            behind_workers = [each for each in recipients if self._workers.way(envelope, each.role.service) != ()]
            shared = behind_workers if len(behind_workers) > 1 else []
            parties = [party for party in parties if not any(each in shared for each in party)]
        return [party for party in parties if all(self._may_begin(envelope, each) for each in party)]

    def is_as_others(self, envelope: LogEnvelope, recipients: Collection[ServedRole]) -> bool:
        """Check whether an envelope goes to these consumers as others of the same graphs, if they may get it now."""
        is_open = self._open_replies.may_be_open(envelope.envelope_id, recipients)
        return not is_open and not self._workers.is_corrected(envelope)

    def _may_vote(self, envelope: LogEnvelope, recipient: ServedRole) -> bool:
        """Check whether a consumer can hold several envelopes open, which reach it as they were sent."""
        return recipient.abilities.prepares > 1 and self._workers.way(envelope, recipient.role.service) == ()

    def _may_begin(self, envelope: LogEnvelope, recipient: ServedRole) -> bool:
        is_blocked = self._roles[recipient.role.id].keys.blocks(envelope)
        is_open = self._open_replies.may_be_open(envelope.envelope_id, [recipient])
        return self.may_take(envelope, recipient) and not is_blocked and not is_open
