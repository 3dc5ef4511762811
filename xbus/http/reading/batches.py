"""Waits for the next batch of a reader, call by call, for as long as its program is there."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from xbus.http.reading.back import BackConnection
from xbus.http.reading.tickets import CheckpointTicket
from xbus.rpc.codec import Value
from xbus.rpc.messages import BatchAnswer
from xbus.rpc.shapes import AnswerReader

POLL_SECONDS = 2.0
"""Seconds that a call to the back waits. More notice later that the client is gone, or that its token is revoked."""

_BATCH = AnswerReader("xbus.read_batch", BatchAnswer)


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """A request for a batch.

    Args:
        reader: the name of the reader.
        token: of the request.
        program: the UUID of the program, as text.
        wait: seconds to wait while nothing is there.
        bounds: the options ``max_items`` and ``max_bytes`` of the back, where the program wants less.
        done: what is settled first.
    """

    reader: str
    token: str
    program: str
    wait: float
    bounds: dict[str, Value]
    done: CheckpointTicket | None


async def next_batch(
    back: BackConnection, request: BatchRequest, is_gone: Callable[[], Awaitable[bool]]
) -> BatchAnswer:
    """Wait for a batch.

    Each call to the back is a sign of life of the program, so its leases last while it waits. Nobody calls any more
    for a program that is gone.

    Args:
        back: hands it out.
        request: says which one.
        is_gone: checks whether the answer would reach nobody.

    Raises:
        Refused: the back refuses it; ``lease_lost`` where the program has lost what it settles.
        Failed: the back does not answer.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + request.wait
    options: dict[str, Value] = {"reader": request.reader, **request.bounds}
    done = request.done
    while True:
        wait = min(POLL_SECONDS, max(0.0, until - loop.time()))
        asked = {**options, "wait": wait}
        if done is not None:
            asked["done"] = done.settled()
        answer = _BATCH.read(await back.call("xbus.read_batch", request.token, request.program, asked, wait=wait))
        done = None
        if answer["batch"] is not None or loop.time() >= until or await is_gone():
            return answer
