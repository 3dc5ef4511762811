"""The maps in calls and answers of these verbs; the wire's page explains them."""

from typing import TypedDict


class TopicMap(TypedDict):
    """An event type in the answer of the front to ``xbus.list_topics``."""

    name: str
    publisher: str | None
    events: int


class SubscriptionWishMap(TypedDict):
    """The wish of ``xbus.subscribe``; ``timeout`` is in milliseconds."""

    topics: list[str]
    url: str
    secret: str
    timeout: int
    max: int


class SubscriberMap(TypedDict):
    """A subscription in the answer of the front to ``xbus.list_subscribers``.

    ``oldest`` is in seconds since 1970. ``secret`` is that of the caller's own subscription, and None for all others.
    """

    name: str
    url: str
    secret: str | None
    max: int
    timeout: int
    topics: list[str]
    sent: int
    queued: int
    oldest: int | None


class ClientTokenMap(TypedDict):
    """An API token in the answer of the front to ``xbus.list_tokens``, without its secret."""

    client: str
    hash: str
