"""The front's verbs by which programs make event types, and API tokens for others."""

from xbus.broker.answers import coded_answer
from xbus.broker.front.provisioning import Provisioning
from xbus.broker.sessions import Sessions
from xbus.rpc.dispatch import verb
from xbus.rpc.messages import ClientTokenMap, TopicMap


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

    @verb("xbus.count_waiting")
    @coded_answer
    async def count_waiting(self, token: str, most: int) -> int:
        self._sessions.owner(token)
        return await self._provisioning.count_waiting(most)

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
