"""Subscriptions as objects; no secret is in them."""

from xbus.admin.objects.base import JsonObject, shown
from xbus.broker.journal.readers.parked import ParkedBatch
from xbus.broker.journal.readers.status import ReaderStatus
from xbus.broker.journal.readers.subscriptions import SubscriptionEntry


def of_subscription(each: SubscriptionEntry, reader: ReaderStatus) -> JsonObject:
    return {
        "subscription": each.name,
        "state": subscription_state(each, reader),
        "url": each.url,
        "format": each.format,
        "signed": bool(each.secret),
        "verify": each.verify,
        "types": [*reader.event_types],
        "reader": each.reader_name,
        "at_place": str(reader.place),
        "lag": reader.lag,
        "owed_since": reader.waits_since,
        "failed_calls": each.failures,
        "parked_batches": 0 if reader.subscriber is None else reader.subscriber.parked,
        "since": each.failing_since,
        "retry_at": each.retry_at,
        "code": each.code,
        "error": each.error,
        "ended_at": each.ended_at,
    }


def of_parked_batch(each: ParkedBatch) -> JsonObject:
    return shown(each, "range", id="batch")


def subscription_state(each: SubscriptionEntry, reader: ReaderStatus) -> str:
    """Say in a word how a subscription is."""
    if each.ended_at is not None:
        return "ended"
    if reader.is_paused:
        return "paused"
    return "failing" if each.failures else "calling" if reader.programs else "waiting"
