"""Emitters make event types, and API tokens for others, as far as their profile says."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ParamSpec, TypeVar

from xbus.broker.configuration import Configuration
from xbus.broker.journal.audit import done_by
from xbus.broker.journal.clients import ClientToken, add_client_token, list_client_tokens, revoke_client_token
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.subscribers import (
    Subscriber,
    SubscriptionWish,
    check_wish,
    list_subscribers,
    make_topics,
    remove_subscribed,
    subscribe,
    unsubscribe,
)
from xbus.broker.journal.topics import Topic, claim_topic, count_waiting, list_topics
from xbus.broker.sessions import Sessions
from xbus.clock import Clock
from xbus.errors import Refused

P = ParamSpec("P")
T = TypeVar("T")

ORIGIN = "the front"
"""The origin of such acts in the audit: a gateway calls for the program, so the peer's address says nothing of it."""


TOPICS_AT_ONCE = 10
"""Topics that one write makes for a subscriber. More make whoever sends meanwhile wait for longer."""


class Provisioning:
    """Changes the configuration for emitters, and has the change in force here before it answers.

    Other fronts of the same journal take it over within 2 seconds.

    Args:
        journal: has the configuration.
        configuration: says whose profile allows it.
        sessions: the emitters'.
        clock: dates the changes.
        autodrop_envelopes: the lag from which a subscription of a program does without the oldest; 0 for none.
    """

    def __init__(
        self,
        journal: Journal,
        configuration: Configuration,
        sessions: Sessions,
        clock: Clock,
        autodrop_envelopes: int = 0,
    ) -> None:
        self._journal = journal
        self._configuration = configuration
        self._sessions = sessions
        self._clock = clock
        self._max_lag = autodrop_envelopes or None

    async def claim_topic(self, emitter_id: int, name: str) -> None:
        """Make an event type of which an emitter is the publisher; see ``topics.claim_topic``."""
        errand = self._as_client(emitter_id, claim_topic)
        await self._journal.run(errand, emitter_id, name, self._clock.now())
        await self._configuration.refresh()

    async def remove_topic(self, emitter_id: int, name: str) -> None:
        """Remove an event type that an emitter publishes; see ``topics.remove_topic``."""
        errand = self._as_emitter(emitter_id, remove_subscribed, "type_not_allowed")
        await self._journal.run(errand, emitter_id, name, self._clock.now())
        await self._configuration.refresh()

    async def list_topics(self, emitter_id: int) -> Sequence[Topic]:
        """List the event types that programs made, and those that an emitter may send."""
        return await self._journal.read(list_topics, emitter_id, self._clock.now())

    async def count_waiting(self, most: int) -> int:
        """Count the envelopes that the recipient with the most of them lacks, up to a number."""
        return await self._journal.read(count_waiting, most)

    async def subscribe(self, emitter_id: int, wish: SubscriptionWish) -> None:
        """Subscribe an emitter to topics; see ``subscribers.subscribe``. Many new topics come a part at a time."""
        check_wish(wish)
        making = self._as_client(emitter_id, make_topics)
        for first in range(0, len(wish.topics) if len(wish.topics) > TOPICS_AT_ONCE else 0, TOPICS_AT_ONCE):
            part = wish.topics[first : first + TOPICS_AT_ONCE]
            await self._journal.run(making, emitter_id, part, self._clock.now())
        errand = self._as_client(emitter_id, subscribe)
        await self._journal.run(errand, emitter_id, replace(wish, max_lag=self._max_lag), self._clock.now())
        await self._configuration.refresh()

    async def unsubscribe(self, emitter_id: int, topic: str | None) -> None:
        """Unsubscribe an emitter from a topic, or from all; see ``subscribers.unsubscribe``."""
        errand = self._as_emitter(emitter_id, unsubscribe, "not_subscribed")
        await self._journal.run(errand, emitter_id, topic, self._clock.now())
        await self._configuration.refresh()

    async def list_subscribers(self, emitter_id: int) -> Sequence[Subscriber]:
        """List the subscriptions of programs; see ``subscribers.list_subscribers``."""
        return await self._journal.read(list_subscribers, emitter_id, self._clock.now())

    async def add_token(self, registrar_id: int, client: str, chosen: str | None) -> str:
        """Make an API token for a client; see ``clients.add_client_token``."""
        errand = self._as_emitter(registrar_id, add_client_token, "clients_not_allowed")
        token = await self._journal.run(errand, registrar_id, client, chosen, self._clock.now())
        await self._configuration.refresh()
        await self._sessions.end_removed()
        return token

    async def list_tokens(self, registrar_id: int) -> Sequence[ClientToken]:
        """List the API tokens of a registrar's clients; see ``clients.list_client_tokens``."""
        return await self._journal.read(list_client_tokens, registrar_id)

    async def revoke_token(self, registrar_id: int, wanted: str) -> bool:
        """Revoke an API token of a client; see ``clients.revoke_client_token``."""
        errand = self._as_emitter(registrar_id, revoke_client_token, "clients_not_allowed")
        revoked = await self._journal.run(errand, registrar_id, wanted, self._clock.now())
        await self._sessions.end_removed()
        return revoked

    def _as_client(self, emitter_id: int, errand: Callable[P, T]) -> Callable[P, T]:
        """Let an errand act for an emitter that publishes or subscribes, and for none that makes tokens alone."""
        emitter = self._configuration.catalog.emitters.get(emitter_id)
        if emitter is not None and emitter.clients and not (emitter.new_types or emitter.event_types):
            cause = "this token makes tokens for clients, and neither publishes nor subscribes"
            raise Refused(cause, "use the token of a client", code="client_wanted")
        return self._as_emitter(emitter_id, errand, "type_not_allowed")

    def _as_emitter(self, emitter_id: int, errand: Callable[P, T], refusal: str) -> Callable[P, T]:
        """Let an errand act for an emitter, unless its profile has nothing that would allow it.

        The journal decides. This spares it the calls of those who never may.

        Args:
            refusal: the code for those.
        """
        emitter = self._configuration.catalog.emitters.get(emitter_id)
        if emitter is None or not (emitter.new_types or emitter.clients):
            step = "have an operator give the profile new_types or clients, with xbus apply"
            raise Refused("the emitter's profile does not allow this", step, code=refusal)
        return done_by(emitter.login, ORIGIN, errand)
