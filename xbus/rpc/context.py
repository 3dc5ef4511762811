"""The ZeroMQ context: one per process is enough, one per program that owns its sockets is cleaner."""

from typing import TypeAlias

import zmq

Context: TypeAlias = "zmq.Context[zmq.Socket[bytes]]"


def new_context() -> Context:
    """A context of its own; whoever makes it ends it with ``destroy``, after closing its sockets."""
    return zmq.Context()
