"""Answers that are there later, without a task and without a turn of the loop for each step."""

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeAlias, TypeVar

T = TypeVar("T")
U = TypeVar("U")


class Deferred(Generic[T]):
    """The outcome of a future, after some steps.

    The steps are taken once, all in the turn of the loop in which the outcome is first asked for: a caller that waits
    for each answer before it makes the next call would feel every further turn.

    Args:
        future: what the steps start from.
        step: makes the outcome from the future when that is done: returns the answer, or raises the error.
    """

    __slots__ = ("_answer", "_before", "_error", "_future", "_step")

    def __init__(
        self,
        future: "asyncio.Future[Any]",
        step: "Callable[[asyncio.Future[Any]], T]",
        before: "Deferred[Any] | None" = None,
    ) -> None:
        self._future = future
        self._before = before
        self._step: Callable[[asyncio.Future[Any]], T] | None = step
        self._answer: T | None = None
        self._error: BaseException | None = None

    @classmethod
    def of(cls, outcome: "asyncio.Future[T] | Deferred[T]") -> "Deferred[T]":
        """Make an outcome without any steps yet."""
        return outcome if isinstance(outcome, Deferred) else cls(outcome, _result)

    def map(self, make: Callable[[T], U]) -> "Deferred[U]":
        """Go on from the answer; an error goes past."""
        return Deferred(self._future, lambda _: make(self.result()), self)

    def recover(self, heal: Callable[[Exception], T]) -> "Deferred[T]":
        """Go on from an error: ``heal`` returns an answer in its place, or raises another error."""

        def step(_: "asyncio.Future[Any]") -> T:
            try:
                return self.result()
            except Exception as error:
                return heal(error)

        return Deferred(self._future, step, self)

    def add_done_callback(self, callback: "Callable[[Deferred[T]], object]") -> None:
        """Call ``callback`` with this when the outcome can be asked for."""
        self._future.add_done_callback(lambda _: callback(self))

    def give_up(self, error: Exception) -> None:
        """Wait for the future no longer: the steps apply to ``error``; ask for the result at once."""
        first: Deferred[Any] = self
        while first._before is not None:
            first = first._before
        first._step, first._error = None, error
        # What comes of it all the same is nobody's concern.
        self._future.add_done_callback(lambda future: future.cancelled() or future.exception())

    def cancel(self) -> None:
        """Cancel the work behind the future, if it has any."""
        if isinstance(self._future, asyncio.Task):
            self._future.cancel()

    def cancelled(self) -> bool:
        """Check whether the future was cancelled; then it has no outcome."""
        return self._future.cancelled()

    def exception(self) -> BaseException | None:
        """Give the error, or None without one."""
        self._take()
        return self._error

    def result(self) -> T:
        """Give the answer, or raise the error."""
        self._take()
        if self._error is not None:
            raise self._error
        return self._answer  # type: ignore[return-value]

    def _take(self) -> None:
        if self._step is None:
            return
        step, self._step = self._step, None
        try:
            self._answer = step(self._future)
        except Exception as error:
            self._error = error

    def __await__(self) -> Generator[object, None, T]:
        if not self._future.done():
            yield from asyncio.wait([self._future]).__await__()
        return self.result()


Answer: TypeAlias = T | Deferred[T]
"""The answer to a call: the value itself, or the value later."""


def map_answer(answer: Answer[T], make: Callable[[T], U]) -> Answer[U]:
    """Go on from an answer: at once if it is a value, otherwise when it comes."""
    return answer.map(make) if isinstance(answer, Deferred) else make(answer)


async def awaited(answer: Answer[T]) -> T:
    """Wait for an answer, where it is not there yet."""
    return await answer if isinstance(answer, Deferred) else answer


def _result(future: "asyncio.Future[T]") -> T:
    return future.result()
