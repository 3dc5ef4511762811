"""A run: one envelope through the graphs of its events, in two phases, to all recipients that take part.

It calls recipients and returns what came of it. It never writes to the journal and never decides about a retry.
"""

from xbus.broker.back.run.context import BackRunContext
from xbus.broker.back.run.flow_control import together
from xbus.broker.back.run.plan import EventPlan, bulk_nodes
from xbus.broker.back.run.run import Run

__all__ = [
    "BackRunContext",
    "EventPlan",
    "Run",
    "bulk_nodes",
    "together",
]
