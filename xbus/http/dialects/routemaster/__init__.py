"""Routemaster's own protocol, for clients that were written for it. A topic is an event type.

The source of its rules is the documentation of deliveroo/routemaster, "API". If its server or its published clients
differ from the documentation, the gateway serves both.

Face: ``OPERATIONS``.
"""

from dataclasses import replace

from xbus.http.dialects.routemaster import pulse, subscriptions, tokens, topics

OPERATIONS = tuple(
    # The protocol has no bodies for errors.
    replace(operation, explains=False)
    for operation in (*topics.OPERATIONS, *subscriptions.OPERATIONS, *tokens.OPERATIONS, *pulse.OPERATIONS)
)

__all__ = ["OPERATIONS"]
