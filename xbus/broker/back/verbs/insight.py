"""The verbs by which operators ask for the memory of the back; they need no login, as health."""

from xbus.broker.back.back import Back
from xbus.errors import Refused
from xbus.ids import parse_uuid
from xbus.rpc.dispatch import verb
from xbus.rpc.messages.insight import MOST_ROLES_TOLD, DeliveredSoFar, Insight


class InsightVerbs:
    """One method per verb, named as the verb.

    Args:
        back: has the memory.
    """

    def __init__(self, back: Back) -> None:
        self._back = back

    @verb("xbus.why")
    def why(self, roles: list[int], envelope_id: str | None, position: int | None) -> Insight:
        wanted = None if envelope_id is None else parse_uuid(envelope_id)
        if wanted is None and envelope_id is not None:
            raise Refused(f"{envelope_id!r:.80} is no id of an envelope", "give a UUID", code="wrong_arguments")
        return self._back.insight.tell(_role_ids(roles), wanted, position)

    @verb("xbus.delivered")
    def delivered(self, roles: list[int]) -> DeliveredSoFar:
        return {"roles": self._back.delivered(_role_ids(roles))}


def _role_ids(roles: list[int]) -> list[int]:
    return [role_id for role_id in roles[:MOST_ROLES_TOLD] if type(role_id) is int]
