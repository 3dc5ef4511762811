"""Follows the ends of event types: all who follow one by the same token share one look at the log, and one text.

One who begins earlier catches up by itself, then waits at the end with all others. The gateway keeps the tails that
somebody follows at this moment, and nothing that has to outlive a request.
"""

import asyncio
import json
import logging
from bisect import bisect_left
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from xbus.errors import Failed, XbusError
from xbus.http.batches import BackConnection, item_lines, sse_event, sse_mark
from xbus.http.bodies import HeldRoom
from xbus.reader.batch import read_event
from xbus.rpc.codec import Value
from xbus.rpc.messages import LogAnswer
from xbus.rpc.shapes import AnswerReader

CHUNK_BYTES = 65_536
"""Bytes of items that are read at once, and one item at least. Fewer make more calls for those who catch up; a follower
who takes them slowly holds as many."""

KEPT_CHUNKS = 64
"""The chunks that a tail keeps. More take longer to look through."""

LOOKS_AT_ONCE = 32
"""Looks at the log of followers who catch up. More take more memory while many come at once."""

RETRY_SECONDS = 1.0
"""Seconds to wait behind a call that got no answer. Fewer make more calls to a broker that is away."""

log = logging.getLogger(__name__)

_ANSWER = AnswerReader("xbus.read_log", LogAnswer)


@dataclass(frozen=True, slots=True)
class TailPace:
    """The times and bounds of tails.

    Args:
        poll_seconds: how long a look at the log waits. More notice later that a token is revoked.
        beat_seconds: of silence, behind which followers get a sign of life. Web servers close what is silent for a
            minute.
        kept_bytes: of text that a tail keeps. More let a follower be slower before it has to read by itself.
        all_bytes: of text that all tails keep together. Where there are many, each keeps less.
    """

    poll_seconds: float = 2.0
    beat_seconds: float = 15.0
    kept_bytes: int = 1024 * 1024
    all_bytes: int = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TailQuestion:
    """Names what is followed.

    Args:
        token: of the request; the back decides what it may read.
        type_name: the event type.
        key: the partition key of the wanted events, or the ordering key of those without one; None for all.
    """

    token: str
    type_name: str
    key: str | None


class TailChunk:
    """Items that were read together, as text.

    Args:
        answer: of the back.

    Attributes:
        begin: the place at which they begin.
        end: the place at which the next ones begin.
        text: events of server-sent events, in UTF-8.
    """

    __slots__ = ("_ends", "_places", "begin", "end", "text")

    def __init__(self, answer: LogAnswer) -> None:
        self.begin, self.end = answer["from"], answer["to"]
        self._places: list[list[int]] = []
        self._ends: list[int] = []
        texts, size = [], 0
        for event in answer["events"]:
            for place, line in item_lines(read_event(event)):
                texts.append(sse_event(place, line).encode())
                size += len(texts[-1])
                self._places.append(place)
                self._ends.append(size)
        self.text = b"".join(texts)

    def from_place(self, place: list[int]) -> bytes:
        """Give the text of the items from a place on."""
        passed = bisect_left(self._places, place)
        return self.text[self._ends[passed - 1] :] if passed else self.text


ReadLog = Callable[[TailQuestion, Value, float], Awaitable[TailChunk]]
"""Reads a chunk from some start on; where nothing is there, it waits for so many seconds."""


class Tail:
    """The end of an event type, as long as somebody follows it.

    Args:
        question: names it.
        read: reads the log from a place on.
        place: where to begin.
        pace: its times and bounds.
        tails: how many tails there are now.
    """

    def __init__(
        self, question: TailQuestion, read: ReadLog, place: list[int], pace: TailPace, tails: Callable[[], int]
    ) -> None:
        self.question = question
        self._pace = pace
        self._tails = tails
        self.begin = place
        self.end = place
        self.error: XbusError | None = None
        """The reason why it goes on no more."""
        self.beats = 0
        self._read = read
        self._chunks: deque[TailChunk] = deque()
        self._bytes = 0
        self._waiting: set[Callable[[], None]] = set()

    def covers(self, place: list[int]) -> bool:
        """Check whether nothing is missing here from a place on."""
        return self.begin <= place

    def chunk_from(self, place: list[int]) -> TailChunk | None:
        """Give the first chunk that goes beyond a place; None at the end."""
        found = None
        for chunk in reversed(self._chunks):
            if chunk.end <= place:
                break
            found = chunk
        return found

    def wake_later(self, wake: Callable[[], None]) -> None:
        """Call a function when more has come, at a beat, and at the end."""
        self._waiting.add(wake)

    def forget(self, wake: Callable[[], None]) -> None:
        """Call a function no more."""
        self._waiting.discard(wake)

    async def run(self) -> None:
        """Follow the log until it is cancelled, or the back refuses it."""
        loop = asyncio.get_running_loop()
        beat_at = loop.time() + self._pace.beat_seconds
        while self.error is None:
            has_news = await self._look()
            if loop.time() >= beat_at:
                self.beats += 1
            if has_news or loop.time() >= beat_at:
                beat_at = loop.time() + self._pace.beat_seconds
                self.wake()

    async def _look(self) -> bool:
        """Look for more; whether followers are to know of it."""
        try:
            chunk = await self._read(self.question, [*self.end], self._pace.poll_seconds)
        except Failed as error:
            log.warning("a tail waits for the broker: %s", error, extra={"action": "tail_waits"})
            await asyncio.sleep(RETRY_SECONDS)
            return False
        except XbusError as error:
            self.error = error
        except Exception:
            log.exception("a tail has a fault", extra={"action": "tail_failed"})
            self.error = XbusError(
                "the gateway has a fault", "the log of start_xbushttp says which", code="gateway_failed"
            )
        else:
            self.end = chunk.end
            if not chunk.text:
                return False
            self._keep(chunk)
        return True

    def _keep(self, chunk: TailChunk) -> None:
        self._chunks.append(chunk)
        self._bytes += len(chunk.text)
        self.shrink()

    def shrink(self) -> None:
        """Let go what is beyond its part of all that tails keep. The newest chunk stays: somebody may wait for it."""
        kept_bytes = min(self._pace.kept_bytes, self._pace.all_bytes // max(1, self._tails()))
        while len(self._chunks) > 1 and (self._bytes > kept_bytes or len(self._chunks) > KEPT_CHUNKS):
            passed = self._chunks.popleft()
            self._bytes -= len(passed.text)
            self.begin = passed.end

    def wake(self) -> None:
        """Have all who wait look again."""
        waiting, self._waiting = self._waiting, set()
        for wake in waiting:
            wake()


class Tails:
    """All tails that somebody follows at one gateway.

    Args:
        back: reads the log.
        pace: the times and bounds of each.

    Attributes:
        is_stopping: whether the gateway is about to end.
    """

    def __init__(self, back: BackConnection, pace: TailPace) -> None:
        self._back = back
        self._pace = pace
        self._tails: dict[TailQuestion, tuple[Tail, asyncio.Task[None]]] = {}
        self._followers: dict[TailQuestion, int] = {}
        self._looks = asyncio.Semaphore(LOOKS_AT_ONCE)
        self.is_stopping = False

    @property
    def followers(self) -> int:
        """The number of those who follow."""
        return sum(self._followers.values())

    @property
    def open(self) -> int:
        """The number of tails: all who follow the same are one."""
        return len(self._tails)

    def stop(self) -> None:
        """Have all followers end."""
        self.is_stopping = True
        for tail, _ in self._tails.values():
            tail.wake()

    async def look(self, question: TailQuestion, start: Value) -> TailChunk:
        """Read a chunk from some start on, without waiting for more.

        Raises:
            Refused: the token may not read it, or the start is invalid.
            Failed: the back does not answer.
        """
        async with self._looks:
            return await self._read(question, start, 0.0)

    def join(self, question: TailQuestion, place: list[int]) -> Tail:
        """Follow an end; whoever joins leaves."""
        if question not in self._tails:
            tail = Tail(question, self._read, place, self._pace, lambda: self.open)
            self._tails[question] = (tail, asyncio.create_task(tail.run(), name="tail"))
            for other, _ in self._tails.values():
                other.shrink()
        self._followers[question] = self._followers.get(question, 0) + 1
        return self._tails[question][0]

    def leave(self, tail: Tail) -> None:
        """Follow an end no more; the last one ends it."""
        self._followers[tail.question] -= 1
        if not self._followers[tail.question]:
            del self._followers[tail.question]
            _, task = self._tails.pop(tail.question)
            task.cancel()

    async def _read(self, question: TailQuestion, start: Value, wait: float) -> TailChunk:
        asked: dict[str, Value] = {
            "types": [question.type_name],
            "from": start,
            "key": question.key,
            "wait": wait,
            "max_bytes": CHUNK_BYTES,
        }
        answer = _ANSWER.read(await self._back.call("xbus.read_log", question.token, asked, wait=wait))
        return TailChunk(answer)


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


PART_BYTES = 16_384
"""Bytes that are given to the connection at once. More wait in memory for a client that reads slowly."""


class HeldAnswer(Response):
    """An answer that takes room until it is sent.

    Args:
        body: all of it.
        media_type: of the body.
        headers: beside that.
        room: the room that it takes.
    """

    def __init__(self, body: bytes, media_type: str, headers: Mapping[str, str], room: HeldRoom) -> None:
        super().__init__(body, headers=headers, media_type=media_type)
        self._room = room

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._room.close()


class TailAnswer(Response):
    """The answer to a follower.

    Args:
        follower: gives the text.
    """

    media_type = "text/event-stream"

    def __init__(self, follower: Follower) -> None:
        # Neither caches nor the buffers of nginx may keep it.
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._follower = follower

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the text as it comes."""
        listening = asyncio.create_task(self._listen(receive), name="follower's connection")
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async with aclosing(self._follower.parts()) as parts:
                async for part in parts:
                    for place in range(0, len(part), PART_BYTES):
                        body = part if len(part) <= PART_BYTES else part[place : place + PART_BYTES]
                        await send({"type": "http.response.body", "body": body, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            listening.cancel()

    async def _listen(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._follower.leave()
