"""Nodes that emit: what comes to one is sealed as an envelope of the type that it emits, exactly once.

The bus itself serves the consumer role of such a node, by an object that takes the calls of every recipient. So the
back delivers to it as to all others: cursor, rows, retries, bundles and runs know nothing of it. It writes by the
journal, under a key that is the id of the delivered envelope; it never reads items, and never decides about a retry.
"""

from xbus.broker.back.chaining.emitting_consumer import EmittingRoles

__all__ = ["EmittingRoles"]
