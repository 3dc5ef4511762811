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


class FailedCallAnswer(TypedDict):
    """The answer to ``xbus.note_callback``.

    ``retry_seconds`` is None where the batch is not called again by itself; ``parked`` tells whether it is parked now.
    """

    retry_seconds: int | float | None
    parked: bool


class SubscriptionsAnswer(TypedDict):
    """The answer to ``xbus.list_subscriptions``."""

    subscriptions: list[SubscriptionMap]
