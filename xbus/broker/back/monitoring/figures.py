"""The figures of deliveries that metrics show, as the back has them in memory."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from xbus.broker.back.progress import RoleCounts
from xbus.broker.journal.log.catalog import RoleEntry
from xbus.broker.journal.log.event_states import DONE
from xbus.rpc.messages.insight import DeliveredToRole


@dataclass(frozen=True, slots=True)
class DeliveryFigures:
    """The figures at one moment.

    Args:
        counts: by the login of a role, what came of the deliveries to it; None stands for all further roles.
        in_groups: how many of the committed envelopes were handed over in one call with others.
        in_flight: by the id of a role, how many envelopes are being brought to it.
        bundled_bytes: the bytes of small envelopes that wait for their recipients.
        tail_bytes: the bytes of the envelopes that were sealed last, and are kept so that nobody reads them back.
        head: the position of the last envelope.
    """

    counts: Mapping[str | None, RoleCounts]
    in_groups: int
    in_flight: Mapping[int, int]
    bundled_bytes: int
    tail_bytes: int
    head: int

    def delivered(self, roles: Iterable[RoleEntry]) -> Iterator[DeliveredToRole]:
        """Tell how much each role has committed; a role that is not counted apart is left out."""
        for role in roles:
            counts = self.counts.get(role.login)
            if counts is not None:
                yield {"role": role.id, "envelopes": counts.results[DONE], "items": counts.items}
            elif None not in self.counts:
                yield {"role": role.id, "envelopes": 0, "items": 0}
