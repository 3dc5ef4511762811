"""Answers that are there later, without a task and without a turn of the loop for each step."""

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeAlias, TypeVar

T = TypeVar("T")
U = TypeVar("U")


class Promise(Generic[T]):
    """An answer that somebody gives later: a future that calls those who wait for it at once, in their order.

    A future of asyncio calls each of them by a handle of its own, in the next turn of the loop. A caller that waits for
    each answer before it makes the next call would feel that. Callbacks must not raise.
    """

    # Of the class until they are set, as a promise is made for each call.
    _is_done = False
    _callbacks: "tuple[Callable[[Promise[T]], object], ...]" = ()
    answer: T | None = None
    """The answer, once it is there."""
    error: BaseException | None = None
    """The error in its place."""
    early: "Callable[[T], object] | None" = None
    """Called with the answer by the thread that makes it, if that has the time: what counts is ``set_result``."""

    def done(self) -> bool:
        """Check whether the answer is there."""
        return self._is_done

    def cancelled(self) -> bool:
        """Check whether there is no answer, as the work behind it was cancelled."""
        return isinstance(self.error, asyncio.CancelledError)

    def exception(self) -> BaseException | None:
        """Give the error, or None without one; to be asked when it is done."""
        return self.error

    def result(self) -> T:
        """Give the answer, or raise the error; to be asked when it is done."""
        if self.error is not None:
            raise self.error
        return self.answer  # type: ignore[return-value]

    def set_result(self, answer: T, /) -> None:
        """Answer those who wait."""
        self.answer = answer
        self._is_done = True
        callbacks, self._callbacks = self._callbacks, ()
        for callback in callbacks:
            callback(self)

    def set_exception(self, error: BaseException, /) -> None:
        """Answer those who wait with an error."""
        self.error = error
        self._is_done = True
        callbacks, self._callbacks = self._callbacks, ()
        for callback in callbacks:
            callback(self)

    def add_done_callback(self, callback: "Callable[[Promise[T]], object]") -> None:
        """Have ``callback`` called with this when the answer is there; soon, if it is there already."""
        if self._is_done:
            asyncio.get_running_loop().call_soon(callback, self)
        else:
            self._callbacks = (*self._callbacks, callback)

    def __await__(self) -> Generator[object, None, T]:
        yield from settled(self).__await__()
        return self.result()


AnswerSource: TypeAlias = asyncio.Future[T] | Promise[T]
"""Where an answer comes from."""


async def settled(source: AnswerSource[Any]) -> None:
    """Wait for an answer or an error; it comes all the same when the wait is cancelled."""
    if source.done():
        return
    is_there = asyncio.Event()
    source.add_done_callback(lambda _: is_there.set())
    await is_there.wait()


class Deferred(Generic[T]):
    """The outcome of a future or a promise, after some steps.

    Each step changes it, so it belongs to one owner, who adds steps and hands it on. The steps are taken once, all in
    the turn of the loop in which the outcome is first asked for: a caller that waits for each answer before it makes
    the next call would feel every further turn.

    Args:
        source: what the steps start from.
    """

    __slots__ = ("_answer", "_error", "_source", "_steps")

    def __init__(self, source: AnswerSource[Any]) -> None:
        self._source = source
        self._steps: list[tuple[Callable[[Any], object] | None, Callable[[Exception], object] | None]] | None = []
        self._answer: T | None = None
        self._error: Exception | None = None

    @classmethod
    def of(cls, outcome: "AnswerSource[T] | Deferred[T]") -> "Deferred[T]":
        """Make an outcome without any further steps."""
        return outcome if isinstance(outcome, Deferred) else cls(outcome)

    def map(self, make: Callable[[T], U]) -> "Deferred[U]":
        """Go on from the answer; an error goes past."""
        assert self._steps is not None, "nobody has asked for the outcome yet"
        self._steps.append((make, None))
        return self  # type: ignore[return-value]

    def recover(self, heal: Callable[[Exception], T]) -> "Deferred[T]":
        """Go on from an error: ``heal`` returns an answer in its place, or raises another error."""
        assert self._steps is not None, "nobody has asked for the outcome yet"
        self._steps.append((None, heal))
        return self

    def add_done_callback(self, callback: "Callable[[Deferred[T]], object]") -> None:
        """Call ``callback`` with this when the outcome can be asked for."""
        self._source.add_done_callback(lambda _: callback(self))

    def give_up(self, error: Exception) -> None:
        """Wait for the source no longer: the steps apply to ``error``."""
        # What comes of it all the same is nobody's concern.
        self._source.add_done_callback(lambda source: source.cancelled() or source.exception())
        self._take(None, error)

    def cancel(self) -> None:
        """Cancel the work behind the source, if it has any."""
        if isinstance(self._source, asyncio.Task):
            self._source.cancel()

    def cancelled(self) -> bool:
        """Check whether the work was cancelled; then it has no outcome."""
        return self._source.cancelled()

    def exception(self) -> BaseException | None:
        """Give the error, or None without one."""
        return self.outcome()[1]

    def result(self) -> T:
        """Give the answer, or raise the error."""
        answer, error = self.outcome()
        if error is not None:
            raise error
        return answer  # type: ignore[return-value]

    def outcome(self) -> tuple[T | None, BaseException | None]:
        """Give the answer and the error, one of which is None; the work's ``CancelledError`` where it was cancelled."""
        if self._steps is not None:
            try:
                answer = self._source.result()
            except asyncio.CancelledError as cancelled:
                return None, cancelled
            except Exception as error:
                self._take(None, error)
            else:
                self._take(answer, None)
        return self._answer, self._error

    def _take(self, answer: Any, error: Exception | None) -> None:
        """Take the steps, from an answer or an error."""
        steps, self._steps = self._steps or [], None
        for make, heal in steps:
            try:
                if error is None:
                    answer = answer if make is None else make(answer)
                elif heal is not None:
                    answer, error = heal(error), None
            except Exception as raised:
                error = raised
        self._answer, self._error = answer, error

    def __await__(self) -> Generator[object, None, T]:
        # Given up, it has its outcome before the source has one.
        if self._steps is not None:
            yield from settled(self._source).__await__()
        return self.result()


Answer: TypeAlias = T | Deferred[T]
"""The answer to a call: the value itself, or the value later."""


def map_answer(answer: Answer[T], make: Callable[[T], U]) -> Answer[U]:
    """Go on from an answer: at once if it is a value, otherwise when it comes."""
    return answer.map(make) if isinstance(answer, Deferred) else make(answer)


async def awaited(answer: Answer[T]) -> T:
    """Wait for an answer, where it is not there yet."""
    return await answer if isinstance(answer, Deferred) else answer
