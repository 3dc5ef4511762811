"""One who follows an event type: catches up by itself, then waits at the end with all others."""

import asyncio
import json
from collections.abc import AsyncGenerator

from xbus.errors import XbusError
from xbus.http.reading.tails import Tail, TailChunk, TailQuestion, Tails
from xbus.http.reading.writing import sse_mark

BEAT = b":\n\n"
"""A comment, which clients ignore."""


class Follower:
    """Follows an event type from a chunk on.

    Args:
        tails: all that are followed.
        question: names what is followed.
        chunk: what was read first.
    """

    def __init__(self, tails: Tails, question: TailQuestion, chunk: TailChunk) -> None:
        self._tails = tails
        self._question = question
        self._first: TailChunk | None = chunk
        self._place = chunk.begin
        self._tail: Tail | None = None
        """Its end, once it has been there."""
        self._beats = 0
        self._is_gone = False
        self._woken: asyncio.Future[None] | None = None

    @property
    def is_over(self) -> bool:
        """True once nobody is to get any more."""
        return self._is_gone or self._tails.is_stopping

    def leave(self) -> None:
        """Follow no more."""
        self._is_gone = True
        self._wake()

    async def parts(self) -> AsyncGenerator[bytes, None]:
        """Iterate over the text for the follower, for ever, with a sign of life where it is silent."""
        yield sse_mark(self._place).encode()
        try:
            while not self.is_over:
                if self._tail is not None and self._tail.covers(self._place):
                    text = await self._from_tail(self._tail)
                else:
                    text = await self._from_log()
                if text:
                    yield text
        except XbusError as error:
            yield _problem(error)
        finally:
            if self._tail is not None:
                self._tails.leave(self._tail)

    async def _from_log(self) -> bytes:
        """Read the next items; at the end of the log go to the tail."""
        chunk, self._first = self._first or await self._tails.look(self._question, [*self._place]), None
        text = self._take(chunk)
        if not text and self._tail is None:
            self._tail = self._tails.join(self._question, self._place)
            self._beats = self._tail.beats
        return text

    async def _from_tail(self, tail: Tail) -> bytes:
        """Give what the tail has; else wait for more, and give nothing or a sign of life."""
        if (chunk := tail.chunk_from(self._place)) is not None:
            return self._take(chunk)
        if tail.error is not None:
            raise tail.error
        self._place = max(self._place, tail.end)
        if tail.beats != self._beats:
            self._beats = tail.beats
            return BEAT + sse_mark(self._place).encode()
        await self._more(tail)
        return b""

    def _take(self, chunk: TailChunk) -> bytes:
        text = chunk.from_place(self._place)
        self._place = chunk.end
        return text

    async def _more(self, tail: Tail) -> None:
        self._woken = asyncio.get_running_loop().create_future()
        tail.wake_later(self._wake)
        try:
            await self._woken
        finally:
            tail.forget(self._wake)
            self._woken = None

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)


def _problem(error: XbusError) -> bytes:
    told = {"detail": error.cause, "code": error.code, "next_step": error.next_step}
    return f"event: problem\ndata: {json.dumps(told)}\n\n".encode()
