"""Shows operators the back: which recipients are present, and which absent roles are owed something for too long.

It looks at the other packages and writes to the journal now and then; nothing depends on it.
"""

from xbus.broker.back.monitoring.insight import BackInsight, DeliveryFigures
from xbus.broker.back.monitoring.overdue import OverdueBacklog
from xbus.broker.back.monitoring.presence import CALLING_SECONDS, Presence, RecipientSigns
from xbus.broker.back.monitoring.stalled import StalledDeliveries

__all__ = [
    "CALLING_SECONDS",
    "BackInsight",
    "DeliveryFigures",
    "OverdueBacklog",
    "Presence",
    "RecipientSigns",
    "StalledDeliveries",
]
