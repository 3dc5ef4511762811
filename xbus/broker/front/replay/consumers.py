"""Shows an emitter the introductions of consumers: the address of a clearing database is not for everybody."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from xbus.broker.journal.log.sessions import StoredIntroduction
from xbus.config import without_password


def shown_to_emitter(consumer: StoredIntroduction, may_send: Callable[[str], bool]) -> StoredIntroduction:
    """Leave out the clearing database unless the emitter may send requests about its items, and its password always.

    Args:
        consumer: as it introduced itself.
        may_send: whether the emitter's profile allows an event type, by name.
    """
    match consumer.features:
        case {"clearing": [True, str(address)], **others}:
            may_clear = any(map(may_send, _reply_types(consumer.features)))
            shown = [True, without_password(address)] if may_clear else [False, None]
            return replace(consumer, features={"clearing": shown, **others})
    return consumer


def _reply_types(features: Mapping[str, object]) -> list[str]:
    """List the event types to which a consumer replies; requests about its items are among them."""
    match features.get("immediate_reply"):
        case [True, list(types)]:
            return types
    return []
