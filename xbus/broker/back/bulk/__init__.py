"""Large events and the bulk workers that transform them past the broker: attempts, leases, reports and waits.

The ordinary path asks this package only whether an envelope needs an output, and whether that is ready.
"""

from xbus.broker.back.bulk.attempt import OutputAttempt
from xbus.broker.back.bulk.attempts import OutputAttempts
from xbus.broker.back.bulk.bulk_step import BulkStep
from xbus.broker.back.bulk.job_sender import BulkJobSender
from xbus.broker.back.bulk.leases import Leases
from xbus.broker.back.bulk.outputs import BulkOutputs
from xbus.broker.back.bulk.reports import OutputReports
from xbus.broker.back.bulk.requirements import OutputRequirements
from xbus.broker.back.bulk.waiting import WaitingDeliveries
from xbus.broker.back.bulk.workers import BulkWorkerPool

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
