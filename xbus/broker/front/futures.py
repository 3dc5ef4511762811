"""Answers that follow from other answers, without a task each: an emitter may have a hundred calls in flight."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

T = TypeVar("T")
U = TypeVar("U")


def done(value: T) -> "asyncio.Future[T]":
    """An answer that is there already."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    future.set_result(value)
    return future


def after(first: "asyncio.Future[T]", make: Callable[[T], U]) -> "asyncio.Future[U]":
    """What ``make`` makes of the answer of ``first``; the error of either where there is one."""
    second: asyncio.Future[U] = first.get_loop().create_future()
    chain(first, second, make)
    return second


def chain(first: "asyncio.Future[T]", second: "asyncio.Future[U]", make: Callable[[T], U]) -> None:
    """Give ``second`` what ``make`` makes of the answer of ``first``; the error of either where there is one."""

    def pass_on(first: "asyncio.Future[T]") -> None:
        if second.done():
            return
        if first.cancelled():
            second.cancel()
            return
        try:
            second.set_result(make(first.result()))
        except Exception as error:
            second.set_exception(error)

    first.add_done_callback(pass_on)


def unheard(answers: "Iterable[asyncio.Future[Any]]") -> None:
    """Let nobody hear of these answers: what follows them tells as much."""
    for answer in answers:
        answer.add_done_callback(lambda future: future.cancelled() or future.exception())
