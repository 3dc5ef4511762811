"""Nodes that emit, in the configuration: the entries that the bus has of its own for them, and their rules; pure.

``owned`` says what belongs to such a node, ``rules`` which nodes are refused.
"""

from xbus.broker.journal.configuration.chaining.owned import (
    SEPARATOR,
    EmittingNode,
    emitting_nodes,
    expanded,
    stored_nodes,
)
from xbus.broker.journal.configuration.chaining.rules import find_chain_problems

__all__ = ["SEPARATOR", "EmittingNode", "emitting_nodes", "expanded", "find_chain_problems", "stored_nodes"]
