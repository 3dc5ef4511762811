"""Gives each write the type of its answer."""

from typing import Generic, Protocol, TypeVar

A_co = TypeVar("A_co", covariant=True)
A_contra = TypeVar("A_contra", contravariant=True)


class Write(Generic[A_co]):
    """The journal makes a write durable, and answers it with ``A_co``; a ``Write[None]`` is only done.

    Type checkers alone see the answer. This is no protocol, as one would make each ``match`` of a write slow.
    """

    __slots__ = ()


class WriteAnswer(Protocol[A_contra]):
    """Takes the answer of a write, or its error: a future, or what calls those who wait at once.

    That of a group may have an attribute ``early``. The writer's thread calls it with the answer, if nothing else waits
    for the thread. The loop is told of the answer first, and takes it up before whatever follows from that.
    """

    def done(self) -> bool:
        """Check whether it has one already."""

    def set_result(self, answer: A_contra, /) -> None:
        """Take the answer."""

    def set_exception(self, error: BaseException, /) -> None:
        """Take the error."""


class EarlierWrite(Protocol):
    """The answer of a write that was handed in before, as far as it is there."""

    def done(self) -> bool:
        """Check whether it is there."""

    def cancelled(self) -> bool:
        """Check whether nobody waits for it any more."""

    def exception(self) -> BaseException | None:
        """Give the error, if it is one."""
