"""The bus as an administrator names it: entries that refer to each other by name, without ids and without secrets.

``specs`` has an entry of each kind, ``bus`` all entries by section and name, and the places in them.
"""

from xbus.broker.journal.configuration.entries.bus import (
    BusSpec,
    ConfigurationProblem,
    Place,
    Section,
)
from xbus.broker.journal.configuration.entries.specs import (
    BOT_ATTEMPTS,
    BOT_BATCH_BYTES,
    BOT_BATCH_ITEMS,
    BOT_SECONDS,
    MAX_ISOLATED,
    BotSpec,
    EmitterSpec,
    Entry,
    EventTypeSpec,
    NodeSpec,
    ProfileSpec,
    ReaderSpec,
    RoleSpec,
    ServiceSpec,
    Start,
    SubscriptionSpec,
)

__all__ = [
    "BOT_ATTEMPTS",
    "BOT_BATCH_BYTES",
    "BOT_BATCH_ITEMS",
    "BOT_SECONDS",
    "MAX_ISOLATED",
    "BotSpec",
    "BusSpec",
    "ConfigurationProblem",
    "EmitterSpec",
    "Entry",
    "EventTypeSpec",
    "NodeSpec",
    "Place",
    "ProfileSpec",
    "ReaderSpec",
    "RoleSpec",
    "Section",
    "ServiceSpec",
    "Start",
    "SubscriptionSpec",
]
