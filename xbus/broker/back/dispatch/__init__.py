"""Brings envelopes to roles: in the log's order by lanes, and again by the rows of the retry queue.

It decides who takes part in a run, and when. It never calls a recipient itself: runs do.
"""

from xbus.broker.back.dispatch.backlog_changes import BacklogChanges
from xbus.broker.back.dispatch.dispatcher import Dispatcher
from xbus.broker.back.dispatch.eligibility import Eligibility
from xbus.broker.back.dispatch.gathering import ConsumerGathering
from xbus.broker.back.dispatch.group_calls import BundleCalls, BundleWorkers
from xbus.broker.back.dispatch.group_delivery import GroupDelivery
from xbus.broker.back.dispatch.group_outcomes import GroupOutcomes
from xbus.broker.back.dispatch.lanes import Lanes
from xbus.broker.back.dispatch.page_delivery import PageDelivery
from xbus.broker.back.dispatch.retry_queue import DueRows, OrderedQueue, RetryQueue
from xbus.broker.back.dispatch.run_executor import RunExecutor, RunLauncher
from xbus.broker.back.dispatch.worker_availability import WorkerAvailability

__all__ = [
    "BacklogChanges",
    "BundleCalls",
    "BundleWorkers",
    "ConsumerGathering",
    "Dispatcher",
    "DueRows",
    "Eligibility",
    "GroupDelivery",
    "GroupOutcomes",
    "Lanes",
    "OrderedQueue",
    "PageDelivery",
    "RetryQueue",
    "RunExecutor",
    "RunLauncher",
    "WorkerAvailability",
]
