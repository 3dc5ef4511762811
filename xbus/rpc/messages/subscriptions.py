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


class SubscriptionHealthMap(TypedDict):
    """The health of a subscription, in the answer to ``xbus.measure_subscriptions``. Moments are seconds since 1970.

    ``state`` is healthy, failed, paused or stopped. ``events`` is its lag, ``batch_events`` the most of a batch.
    ``dropped`` counts envelopes that it was made to do without and nobody was told of yet.
    """

    name: str
    state: str
    events: int
    waits_since: int | float | None
    batch_events: int
    failures: int
    failing_since: int | float | None
    retry_at: int | float | None
    code: str
    error: str
    parked: int
    dropped: int


class MeasuredSubscriptions(TypedDict):
    """The answer to ``xbus.measure_subscriptions``."""

    subscriptions: list[SubscriptionHealthMap]


class FailedCallAnswer(TypedDict):
    """The answer to ``xbus.note_callback``.

    ``retry_seconds`` is None where the batch is not called again by itself; ``parked`` tells whether it is parked now.
    """

    retry_seconds: int | float | None
    parked: bool


class SubscriptionsAnswer(TypedDict):
    """The answer to ``xbus.list_subscriptions``; ``changes`` is what the next call gives as ``known``."""

    subscriptions: list[SubscriptionMap]
    changes: int
