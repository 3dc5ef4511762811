"""Gives each write the type of its answer."""

from typing import Generic, TypeVar

A_co = TypeVar("A_co", covariant=True)


class Write(Generic[A_co]):
    """The journal makes a write durable, and answers it with ``A_co``; a ``Write[None]`` is only done.

    Type checkers alone see the answer. This is no protocol, as one would make each ``match`` of a write slow.
    """

    __slots__ = ()
