"""Keeps a forked process away from what its parent has opened; the child opens its own.

A fork copies the memory of a process, and of its threads only the one that forks. Event loop, sockets and files are
used on by the parent; a copy that the child reads from, writes to or closes would end or damage them there.
"""

import ctypes
import os
from typing import Protocol
from weakref import WeakSet

from xbus.errors import Refused


class Forked(Protocol):
    """An object that must know that a fork copied it."""

    def forked(self) -> None:
        """React to a fork: called in the child, in its only thread and before all else there."""


_told: WeakSet[Forked] = WeakSet()


def tell_of_forks(whom: Forked) -> None:
    """Have ``forked`` be called in each process that is forked from now on, as long as ``whom`` is in use."""
    _told.add(whom)


def leave_to_parent(thing: object) -> None:
    """Keep the copy of what is the parent's to the end of this process and beyond its last reference.

    Where Python removes an object it closes what that has opened: of an outbox's file even at the end of the process,
    with locks that the copy believes to have and a write-ahead log that the parent may have replaced since.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def begun_before() -> Refused:
    """Make the refusal of an envelope that the parent has begun."""
    return Refused(
        "the envelope was begun before this process was forked: its parent sends it",
        "begin an envelope of its own in this process",
        code="begun_before_fork",
    )


def _forked() -> None:
    for whom in list(_told):
        whom.forked()


os.register_at_fork(after_in_child=_forked)
