"""Bulk workers: recipients that make the output for a large event as a whole, and their jobs.

Only the recipient API and programs of bulk workers import it; it never calls the author's other methods.
"""

from xbus.recipient.bulk.worker import BulkWorker, Handover, Made

__all__ = ["BulkWorker", "Handover", "Made"]
