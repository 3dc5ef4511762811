"""The back's verbs for gateways, which call subscribers; those of readers give them the batches."""

import math

from xbus.broker.answers import coded_answer
from xbus.broker.back.readers import ReaderDesks, Subscriptions
from xbus.broker.sessions import Sessions
from xbus.errors import Refused
from xbus.rpc.codec import Value
from xbus.rpc.dispatch import verb
from xbus.rpc.messages.subscriptions import SubscriptionsAnswer


class SubscriptionVerbs:
    """One method per verb, named as the verb. None of them needs a registration.

    Args:
        subscriptions: carry the calls out.
        desks: know the roles of gateways.
        sessions: the roles'.
    """

    def __init__(self, subscriptions: Subscriptions, desks: ReaderDesks, sessions: Sessions) -> None:
        self._subscriptions = subscriptions
        self._desks = desks
        self._sessions = sessions

    @verb("xbus.list_subscriptions")
    @coded_answer
    async def list_subscriptions(self, token: str) -> SubscriptionsAnswer:
        self._desks.gateway(self._sessions.owner(token))
        return {"subscriptions": await self._subscriptions.of_gateways()}

    @verb("xbus.note_callback")
    @coded_answer
    async def note_callback(self, token: str, reader: str, outcome: dict[str, Value]) -> bool:
        self._desks.gateway(self._sessions.owner(token))
        seconds = outcome.get("retry_seconds", 0)
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or math.isnan(seconds):
            raise Refused("retry_seconds is no number", "give seconds until the next call", code="option_invalid")
        code, error, url = (str(outcome.get(name) or "") for name in ("code", "error", "url"))
        await self._subscriptions.note(reader, code, error, seconds, url if outcome.get("ended") is True else "")
        return True
