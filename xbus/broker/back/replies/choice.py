"""Chooses the consumer that gives an immediate reply, from those present at the time of the question."""

from xbus.broker.back.recipients import Registry, ServedRole
from xbus.graph import Graph

ARRIVAL_SECONDS = 1.0
"""Seconds between looks for a consumer that has come, in case a wake-up got lost."""


class NoReply(Exception):
    """There will be no reply.

    Args:
        code: as ``docs/wire.md`` lists them.
        cause: in a sentence.
    """

    def __init__(self, code: str, cause: str) -> None:
        super().__init__(cause)
        self.code = code
        self.cause = cause


async def replier(type_name: str, graph: Graph, registry: Registry) -> ServedRole:
    """Wait for the consumer that is to reply and the workers before it, and give the consumer.

    Args:
        type_name: of the event.
        graph: the event's.
        registry: knows who is registered.

    Raises:
        NoReply: several consumers are registered, or this one did not announce the event type.
    """
    while True:
        consumers = [each for each in registry.all() if each.role.service in graph.consumer_services]
        if len(consumers) > 1:
            logins = ", ".join(sorted(consumer.role.login for consumer in consumers))
            raise NoReply("reply_ambiguous", f"more than one consumer is registered: {logins}")
        for consumer in consumers:
            if type_name not in consumer.abilities.immediate_reply:
                raise NoReply(
                    "reply_unsupported", f'{consumer.role.login} did not announce immediate replies to "{type_name}"'
                )
            workers = graph.leading_to({consumer.role.service}).worker_services
            if all(registry.is_served(service) for service in workers):
                return consumer
        await registry.arrival(ARRIVAL_SECONDS)
