"""Routemaster's own protocol, for clients that were written for it. A topic is an event type.

The source of its rules is the documentation of deliveroo/routemaster, "API". Where its server or its published clients
differ from that, both are served.

Face: ``OPERATIONS``.
"""

from xbus.http.dialects.routemaster import pulse, tokens, topics

OPERATIONS = (*topics.OPERATIONS, *tokens.OPERATIONS, *pulse.OPERATIONS)

__all__ = ["OPERATIONS"]
