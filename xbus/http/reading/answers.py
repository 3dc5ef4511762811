"""Answers that take memory, or time: a batch, and the stream of events as long as its client is there."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from xbus.http.reading.followers import Follower

PART_BYTES = 16_384
"""Bytes that are given to the connection at once. More wait in memory for a client that reads slowly."""


class Closable(Protocol):
    """Gives back what was taken."""

    def close(self) -> None:
        """Give it back."""


class HeldAnswer(Response):
    """An answer that takes room until it is sent.

    Args:
        body: all of it.
        media_type: of the body.
        headers: beside that.
        room: the room that it takes.
    """

    def __init__(self, body: bytes, media_type: str, headers: Mapping[str, str], room: Closable) -> None:
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
