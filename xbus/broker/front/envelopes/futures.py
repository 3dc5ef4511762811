"""Small things about answers that are not there yet."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Protocol, TypeVar

from xbus.rpc.deferred import Answer, Deferred, Promise

T = TypeVar("T")


class AnswerLater(Protocol):
    """Gives the answer that a coroutine will have; its error is the caller's."""

    def __call__(self, work: Coroutine[Any, Any, T], /) -> "asyncio.Future[T]":
        """Begin the work."""


def done(value: T) -> Promise[T]:
    """An answer that is there already."""
    promise: Promise[T] = Promise()
    promise.set_result(value)
    return promise


def pass_on(outcome: Answer[T], answer: Promise[T]) -> None:
    """Give ``answer`` an outcome, at once or when it is there."""
    if not isinstance(outcome, Deferred):
        answer.set_result(outcome)
        return

    def give(outcome: Deferred[T]) -> None:
        if answer.done():
            return
        if outcome.cancelled():
            answer.set_exception(asyncio.CancelledError())
        elif (error := outcome.exception()) is not None:
            answer.set_exception(error)
        else:
            answer.set_result(outcome.result())

    outcome.add_done_callback(give)


def ignore(answers: Iterable[Deferred[Any]]) -> None:
    """Let nobody hear of these answers: what follows them tells as much."""
    for answer in answers:
        answer.add_done_callback(lambda outcome: outcome.cancelled() or outcome.exception())
