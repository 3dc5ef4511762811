"""The ZeroMQ context: one per process is enough, one per program that owns its sockets is cleaner."""

import ctypes
import secrets
from typing import TypeAlias

import zmq

Context: TypeAlias = "zmq.Context[zmq.Socket[bytes]]"

_LIBC = ctypes.CDLL(None)


def new_context() -> Context:
    """Make a context; its owner ends it with ``destroy``, after closing its sockets."""
    return zmq.Context()


def router(context: Context) -> "zmq.Socket[bytes]":
    """Make a ROUTER socket whose ids for its peers nobody can foretell.

    libzmq counts these ids up from a number that it takes from the C library's ``rand`` and never seeds: each process
    would begin with the same one. A peer may claim any id. Where it claims the next one, libzmq ends this process as
    soon as somebody else connects; where it claims that of a peer who has left, it gets the replies to that peer.
    """
    _seed()
    try:
        return context.socket(zmq.ROUTER)
    finally:
        # libzmq also takes its pauses between two attempts to connect from there. They must not reveal the ids.
        _seed()


def _seed() -> None:
    # Each C library of POSIX has this; on another system the program ends here rather than go on unprotected.
    _LIBC.srand(ctypes.c_uint(secrets.randbits(32)))
