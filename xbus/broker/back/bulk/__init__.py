"""Large events and the bulk workers that transform them past the broker: attempts, leases, reports and waits.

The ordinary path asks this package only whether an envelope needs an output, and whether that is ready.
"""

from xbus.broker.back.bulk.attempt import OutputAttempt
from xbus.broker.back.bulk.attempts import OutputAttempts
from xbus.broker.back.bulk.outputs import BulkJobSender, BulkOutputs, BulkWorkerPool, Leases
from xbus.broker.back.bulk.reports import OutputReports
from xbus.broker.back.bulk.requirements import BulkStep, OutputRequirements
from xbus.broker.back.bulk.waiting import WaitingDeliveries

__all__ = [
    "BulkJobSender",
    "BulkOutputs",
    "BulkStep",
    "BulkWorkerPool",
    "Leases",
    "OutputAttempt",
    "OutputAttempts",
    "OutputReports",
    "OutputRequirements",
    "WaitingDeliveries",
]
