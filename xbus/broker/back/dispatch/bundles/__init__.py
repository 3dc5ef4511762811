"""Bundles: small envelopes that wait for the same consumer go together, through workers and to it.

``takers`` says who may get them, ``bundles`` queues for each ``party`` of consumers, ``queue`` says how many go
together, and ``sending`` sends them. ``calls`` brings one, ``workers`` through workers, and ``vote`` to several
consumers that decide together; ``run`` notes the result of each envelope. What fails here goes alone, in a run. The
dispatcher alone adds to them.
"""

from xbus.broker.back.dispatch.bundles.bundles import Bundles
from xbus.broker.back.dispatch.bundles.calls import BundleCalls
from xbus.broker.back.dispatch.bundles.run import BundleRun
from xbus.broker.back.dispatch.bundles.sending import BundleSender
from xbus.broker.back.dispatch.bundles.takers import BundleTakers
from xbus.broker.back.dispatch.bundles.workers import BundleWorkers

__all__ = ["BundleCalls", "BundleRun", "BundleSender", "BundleTakers", "BundleWorkers", "Bundles"]
