"""The back's verbs for gateways, which call subscribers; those of readers give them the batches."""

from xbus.broker.answers import coded_answer
from xbus.broker.back.readers import MOST_WAIT_SECONDS, ReaderDesks, Subscriptions, read_failed_call
from xbus.broker.sessions import Sessions
from xbus.rpc.codec import Value
from xbus.rpc.dispatch import verb
from xbus.rpc.messages.subscriptions import FailedCallAnswer, MeasuredSubscriptions, SubscriptionsAnswer


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
    async def list_subscriptions(self, token: str, known: int = -1, wait: float = 0) -> SubscriptionsAnswer:
        self._desks.gateway(self._sessions.owner(token))
        await self._desks.beyond(known, min(max(wait, 0), MOST_WAIT_SECONDS))
        # What changes while they are read is told by the next call.
        changes = self._desks.changes
        return {"subscriptions": await self._subscriptions.of_gateways(), "changes": changes}

    @verb("xbus.measure_subscriptions")
    @coded_answer
    async def measure_subscriptions(self, token: str, notes_dropped: bool = False) -> MeasuredSubscriptions:
        self._desks.gateway(self._sessions.owner(token))
        return {"subscriptions": await self._subscriptions.measure(notes_dropped=notes_dropped)}

    @verb("xbus.note_callback")
    @coded_answer
    async def note_callback(self, token: str, reader: str, outcome: dict[str, Value]) -> FailedCallAnswer:
        role_id = self._sessions.owner(token)
        self._desks.gateway(role_id)
        failed = read_failed_call(outcome) if outcome else None
        decided = None
        if failed is not None and failed.batch is not None and not failed.ended_url:
            program = self._desks.program(role_id, failed.program, reader)
            decided = await self._desks.fail(program, failed.batch, failed.failure)
        await self._subscriptions.note(reader, failed, None if decided is None else decided.retry_at)
        return {
            "retry_seconds": None if decided is None else self._subscriptions.seconds_until(decided.retry_at),
            "parked": decided is not None and decided.retry_at is None,
        }
