"""Tracks how far each role has come: cursors and delivery rows, in memory and, a moment later, in the journal.

Here a failed delivery gets its next attempt, or is parked. Nothing in this package calls a recipient.
"""

from xbus.broker.back.progress.bad_item_search import BadItems, Serving
from xbus.broker.back.progress.blocked_keys import First
from xbus.broker.back.progress.consumer_role import ConsumerRole, ConsumerRoles, Lane
from xbus.broker.back.progress.ledger import RESERVE_POSITIONS, DeliveryLedger
from xbus.broker.back.progress.recovery import Recovery
from xbus.broker.back.progress.results import OpenReplies, OpenReply, RoleCounts, RunResults
from xbus.broker.back.progress.retry_policy import RetryPolicy, RetrySchedule
from xbus.broker.back.progress.transitions import before_its_turn, settled

__all__ = [
    "RESERVE_POSITIONS",
    "BadItems",
    "ConsumerRole",
    "ConsumerRoles",
    "DeliveryLedger",
    "First",
    "Lane",
    "OpenReplies",
    "OpenReply",
    "Recovery",
    "RetryPolicy",
    "RetrySchedule",
    "RoleCounts",
    "RunResults",
    "Serving",
    "before_its_turn",
    "settled",
]
