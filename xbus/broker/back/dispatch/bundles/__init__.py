"""Bundles: small envelopes that wait for the same consumer go together, through workers and to it.

``bundles`` queues and sends them, ``queue`` says how many go together, ``workers`` takes them through workers, and
``run`` has them carried out and notes the result of each. What fails here goes alone, in a run. The dispatcher alone
adds to them.
"""

from xbus.broker.back.dispatch.bundles.bundles import Bundles
from xbus.broker.back.dispatch.bundles.run import BundleRun
from xbus.broker.back.dispatch.bundles.workers import BundleWorkers

__all__ = ["BundleRun", "BundleWorkers", "Bundles"]
