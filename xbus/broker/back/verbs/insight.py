"""The verb by which ``xbus why`` asks for the memory of the back; it needs no login, as health."""

from xbus.broker.back.monitoring import BackInsight
from xbus.errors import Refused
from xbus.ids import parse_uuid
from xbus.rpc.dispatch import verb
from xbus.rpc.messages import Insight

MOST_ROLES = 1000
"""So many roles are told of in one answer. More would keep the back from its work for longer."""


class InsightVerbs:
    """One method, named as the verb.

    Args:
        insight: the memory of the back.
    """

    def __init__(self, insight: BackInsight) -> None:
        self._insight = insight

    @verb("xbus.why")
    def why(self, roles: list[int], envelope_id: str | None, position: int | None) -> Insight:
        role_ids = [role_id for role_id in roles[:MOST_ROLES] if type(role_id) is int]
        wanted = None if envelope_id is None else parse_uuid(envelope_id)
        if wanted is None and envelope_id is not None:
            raise Refused(f"{envelope_id!r:.80} is no id of an envelope", "give a UUID", code="wrong_arguments")
        return self._insight.tell(role_ids, wanted, position)
