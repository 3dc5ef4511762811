"""The maps by which gateways learn whom to call."""

from typing import TypedDict


class SubscriptionMap(TypedDict):
    """A subscription, as a gateway needs it; ``reader`` is the key of its reader."""

    name: str
    reader: str
    url: str
    format: str
    secret: str
    verify: bool
    ranges: int


class SubscriptionsAnswer(TypedDict):
    """The answer to ``xbus.list_subscriptions``."""

    subscriptions: list[SubscriptionMap]
