"""The front's verbs by which programs make event types, subscriptions, and API tokens for others."""

from xbus.broker.answers import coded_answer
from xbus.broker.front.provisioning import Provisioning
from xbus.broker.journal.subscribers import Subscriber, SubscriptionWish
from xbus.broker.sessions import Sessions
from xbus.errors import Refused
from xbus.rpc.dispatch import verb
from xbus.rpc.messages import ClientTokenMap, SubscriberMap, SubscriptionWishMap, TopicMap


class ProvisioningVerbs:
    """One method per verb of the namespace ``xbus``, named as the verb.

    Args:
        provisioning: carries the calls out.
        sessions: the emitters'.
    """

    def __init__(self, provisioning: Provisioning, sessions: Sessions) -> None:
        self._provisioning = provisioning
        self._sessions = sessions

    @verb("xbus.claim_topic")
    @coded_answer
    async def claim_topic(self, token: str, name: str) -> bool:
        await self._provisioning.claim_topic(self._sessions.owner(token), name)
        return True

    @verb("xbus.remove_topic")
    @coded_answer
    async def remove_topic(self, token: str, name: str) -> bool:
        await self._provisioning.remove_topic(self._sessions.owner(token), name)
        return True

    @verb("xbus.list_topics")
    @coded_answer
    async def list_topics(self, token: str) -> list[TopicMap]:
        found = await self._provisioning.list_topics(self._sessions.owner(token))
        return [{"name": each.name, "publisher": each.publisher, "events": each.events} for each in found]

    @verb("xbus.subscribe")
    @coded_answer
    async def subscribe(self, token: str, wish: SubscriptionWishMap) -> bool:
        topics = wish["topics"]
        if not all(isinstance(name, str) for name in topics):
            raise Refused("the topics are no texts", "name each topic", code="bad_subscription")
        wished = SubscriptionWish([*topics], wish["url"], wish["secret"], wish["timeout"], wish["max"])
        await self._provisioning.subscribe(self._sessions.owner(token), wished)
        return True

    @verb("xbus.unsubscribe")
    @coded_answer
    async def unsubscribe(self, token: str, topic: str | None = None) -> bool:
        await self._provisioning.unsubscribe(self._sessions.owner(token), topic)
        return True

    @verb("xbus.list_subscribers")
    @coded_answer
    async def list_subscribers(self, token: str) -> list[SubscriberMap]:
        found = await self._provisioning.list_subscribers(self._sessions.owner(token))
        return [_told(each, shows_secret=each.is_own) for each in found]

    @verb("xbus.count_waiting")
    @coded_answer
    async def count_waiting(self, token: str, most: int) -> int:
        self._sessions.owner(token)
        return await self._provisioning.count_waiting(max(most, 0))

    @verb("xbus.new_token")
    @coded_answer
    async def new_token(self, token: str, client: str, chosen: str | None = None) -> str:
        return await self._provisioning.add_token(self._sessions.owner(token), client, chosen)

    @verb("xbus.list_tokens")
    @coded_answer
    async def list_tokens(self, token: str) -> list[ClientTokenMap]:
        found = await self._provisioning.list_tokens(self._sessions.owner(token))
        return [{"client": each.client, "hash": each.token_hash.hex()} for each in found]

    @verb("xbus.revoke_token")
    @coded_answer
    async def revoke_token(self, token: str, wanted: str) -> bool:
        return await self._provisioning.revoke_token(self._sessions.owner(token), wanted)


def _told(each: Subscriber, *, shows_secret: bool) -> SubscriberMap:
    return {
        "name": each.name,
        "url": each.spec.url,
        "secret": (each.spec.secret or None) if shows_secret else None,
        "max": each.spec.max,
        "timeout": each.spec.timeout,
        "topics": sorted(each.spec.event_types),
        "sent": each.sent,
        "queued": each.queued,
        "oldest": None if each.oldest_at is None else int(each.oldest_at.timestamp()),
    }
